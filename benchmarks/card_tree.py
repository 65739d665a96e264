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
from pathlib import Path

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
        whole(self.copied, json.dumps(known, indent=0).encode())  # from now on it is this one's
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
        whole(self.copied, json.dumps(known, indent=0).encode())
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
            whole(to.with_name(name), data[number * PIECE :][:PIECE])
        for old in to.parent.glob(f"{to.name}*"):
            if old.name not in names:
                old.unlink()


def _note(known: dict[str, str], name: str, content: str | None) -> None:
    if content is None:
        known.pop(name, None)
    else:
        known[name] = content


def whole(path: Path, data: bytes) -> None:
    """Written whole or not at all."""
    half = path.with_name(f".{path.name}.half")
    half.write_bytes(data)
    half.replace(path)


def packed(archive: Path) -> Iterator[tuple[str, str, bytes | None]]:
    """Each file of an archive, which may lie there in pieces: what sha256 it was copied with, and
    its content, None where it is gone.
    """
    data = joined(archive.parent.iterdir()).get(archive.name) or archive.read_bytes()
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as opened:
            told = json.loads(_content(opened, TOLD))
            for name, was in told["made"].items():
                yield name, was, _content(opened, name)
            for name, was in told["removed"].items():
                yield name, was, None
    except (tarfile.TarError, KeyError) as error:
        raise ValueError(f"{archive} was not packed by this program: {error}") from None


def _content(opened: tarfile.TarFile, name: str) -> bytes:
    file = opened.extractfile(name)
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
