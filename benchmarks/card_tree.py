"""A copy of this repository to measure in, and what measuring changed of it, as one archive.

Captures hold the paths that they were made under, so the copy stands in a neutral folder. Nothing
but the standard library.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

# What is copied of a checkout, where wheels and environments may lie beside it.
TOP = (
    *("LICENSE", "README.md", "pyproject.toml", "workbench.toml", "ablations", "benchmarks"),
    *("docs", "kernels", "profiler", "reports", "starters", "templates", "tests"),
)
TOLD = "on_card.json"  # in an archive: what its files were copied as, and which are gone
PIECE = 15 << 20  # bytes of an archive that are sent in one piece
PART = re.compile(r"(?P<whole>.+)\.part(?P<number>\d+)")


def files(top: Path) -> Iterator[str]:
    """Those of a tree, relative to it; nobody's are what is hidden, and compiled Python."""
    for name in TOP:
        path = top / name
        if path.is_file():
            yield name
        for each in sorted(path.rglob("*")) if path.is_dir() else ():
            found = each.relative_to(top)
            own = not any(part.startswith(".") or part == "__pycache__" for part in found.parts)
            if own and each.is_file():
                yield found.as_posix()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Tree:
    """``root`` is the copy; ``copied`` beside it says of what content each file was."""

    root: Path
    copied: Path

    def known(self) -> dict[str, str]:
        """File to sha256, as they were copied last."""
        if not self.copied.is_file():
            return {}
        found: dict[str, str] = json.loads(self.copied.read_text(encoding="utf-8"))
        return found

    def refresh(self, source: Path) -> list[str]:
        """Copy what is new in the source, and leave alone what steps have changed. Returns what
        both have changed, which stays as the steps left it.
        """
        known, wanted, both = self.known(), {n: digest(source / n) for n in files(source)}, []
        self.root.mkdir(parents=True, exist_ok=True)
        _whole(self.copied, json.dumps(known, indent=0).encode())  # from now on it is this one's
        for name in sorted({*known, *wanted}):
            here, new = self.root / name, wanted.get(name)
            own = digest(here) if here.is_file() else None
            if own == new:
                _note(known, name, new)
            elif own == known.get(name):
                _note(known, name, new)
                if new is None:
                    here.unlink()
                else:
                    here.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(source / name, here)
            elif new != known.get(name):
                both.append(name)
        _whole(self.copied, json.dumps(known, indent=0).encode())
        return both

    def changes(self) -> tuple[dict[str, str], dict[str, str]]:
        """The files that steps made or changed since they were copied, and those that they took
        away, each with the sha256 that it was copied with, "" where it is new.
        """
        known, here = self.known(), {name: digest(self.root / name) for name in files(self.root)}
        made = {name: known.get(name, "") for name, own in here.items() if known.get(name) != own}
        return made, {name: own for name, own in known.items() if name not in here}

    def pack(self, to: Path) -> None:
        """All that was changed into one archive, in pieces where it is large; an earlier one is
        there until this one is.
        """
        made, removed = self.changes()
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            told = json.dumps({"made": made, "removed": removed}, indent=0).encode()
            member = tarfile.TarInfo(TOLD)
            member.size = len(told)
            archive.addfile(member, io.BytesIO(told))
            for name in made:
                archive.add(self.root / name, arcname=name)
        data = packed.getvalue()
        names = [to.name]
        if len(data) > PIECE:
            names = [f"{to.name}.part{number}" for number in range(-(-len(data) // PIECE))]
        for number, name in enumerate(names):
            _whole(to.with_name(name), data[number * PIECE :][:PIECE])
        for old in to.parent.glob(f"{to.name}*"):
            if old.name not in names:
                old.unlink()


def _note(known: dict[str, str], name: str, content: str | None) -> None:
    if content is None:
        known.pop(name, None)
    else:
        known[name] = content


def _whole(path: Path, data: bytes) -> None:
    """Written whole or not at all."""
    half = path.with_name(f".{path.name}.half")
    half.write_bytes(data)
    half.replace(path)


@dataclass(frozen=True)
class Taken:
    """Files of a checkout; ``both`` are those that it has changed too: they stay as they are."""

    written: tuple[str, ...]
    removed: tuple[str, ...]
    both: tuple[str, ...]


def take(archive: Path, into: Path) -> Taken:
    """What ``Tree.pack`` has packed, into a checkout; ``archive`` may lie there in pieces. To files
    that are only ever appended to, ``.jsonl``, the lines are added that they lack.

    Raises ValueError for what is no such archive, OSError where there is none.
    """
    written, removed, both = list[str](), list[str](), list[str]()
    for name, was, new in _packed(archive):
        if PurePosixPath(name).parts[0] not in TOP or ".." in PurePosixPath(name).parts:
            raise ValueError(f"'{name}' in {archive} is no file of this repository")
        path = into / name
        here = path.read_bytes() if path.is_file() else None
        own = hashlib.sha256(here).hexdigest() if here is not None else ""
        if here == new:
            continue
        if own != was and here and new and path.suffix == ".jsonl":
            lines = here.splitlines(keepends=True)
            new = b"".join([*lines, *(one for one in new.splitlines(True) if one not in lines)])
        elif own != was:
            both.append(name)
            continue
        if new is None:
            path.unlink()
            removed.append(name)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            _whole(path, new)
            written.append(name)
    return Taken(tuple(written), tuple(removed), tuple(both))


def _packed(archive: Path) -> Iterator[tuple[str, str, bytes | None]]:
    """Each file of an archive: what sha256 it was copied with, and its content, None where it is
    gone.
    """
    data = joined(archive.parent.iterdir()).get(archive.name) or archive.read_bytes()
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as packed:
            told = json.loads(_content(packed, TOLD))
            for name, was in told["made"].items():
                yield name, was, _content(packed, name)
            for name, was in told["removed"].items():
                yield name, was, None
    except (tarfile.TarError, KeyError) as error:
        raise ValueError(f"{archive} was not packed by this program: {error}") from None


def _content(packed: tarfile.TarFile, name: str) -> bytes:
    file = packed.extractfile(name)
    if file is None:
        raise KeyError(f"{name} is no file")
    return file.read()


def joined(paths: Iterable[Path]) -> Mapping[str, bytes]:
    """What lies there as ``NAME.part0``, ``NAME.part1``: by name, where the first pieces are there
    without a gap.
    """
    pieces: dict[str, dict[int, Path]] = {}
    for path in paths:
        if (match := PART.fullmatch(path.name)) is not None:
            pieces.setdefault(match["whole"], {})[int(match["number"])] = path
    return {
        name: b"".join(found[number].read_bytes() for number in range(len(found)))
        for name, found in pieces.items()
        if found.keys() == set(range(len(found)))
    }
