"""What steps changed on a machine with a GPU, put into a checkout.

Nothing but the standard library.
"""

from __future__ import annotations

import bz2
import hashlib
import json
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from benchmarks.card_tree import TOP, packed, whole

PACKED = ".bz2"
Change = tuple[str, bytes | None]  # the sha256 that it was copied with, "" for new; None is gone


@dataclass(frozen=True)
class Taken:
    """Files of a checkout; ``both`` are those that it has changed too, or that lanes have changed
    otherwise: they stay as they are.
    """

    written: tuple[str, ...]
    removed: tuple[str, ...]
    both: tuple[str, ...]


def take(archives: Sequence[Path], into: Path) -> Taken:
    """What ``Tree.pack`` has packed, into a checkout: one archive, or those of all lanes of a run.

    Where several have changed a file, what each has changed of it is put together: in files that
    are only ever appended to, ``.jsonl``, lines; in checks, shapes; in texts, as git merges. Builds
    and what reports are made of are the last one's.

    Raises ValueError for what is no such archive, OSError where there is none.
    """
    changed: dict[str, list[Change]] = {}
    for archive in archives:
        for name, was, new in packed(archive):
            parts = PurePosixPath(name).parts
            if parts[0] not in TOP or ".." in parts:
                raise ValueError(f"'{name}' in {archive} is no file of this repository")
            changed.setdefault(name, []).append((was, new))
    written, removed, both = list[str](), list[str](), list[str]()
    for name, changes in changed.items():
        path = into / name
        here = path.read_bytes() if path.is_file() else None
        found, known = together(name, here, changes)
        if not known:
            both.append(name)
        elif found is None and here is not None:
            path.unlink()
            removed.append(name)
        elif found is not None and found != here:
            path.parent.mkdir(parents=True, exist_ok=True)
            whole(path, found)
            written.append(name)
    return Taken(tuple(written), tuple(removed), tuple(both))


def together(name: str, here: bytes | None, changes: Sequence[Change]) -> tuple[bytes | None, bool]:
    """A file with all changes of it, and whether they go together."""
    own = hashlib.sha256(here).hexdigest() if here is not None else ""
    news = [new for _, new in dict.fromkeys(changes) if new != here]
    if not news:
        return here, True
    if name.endswith(".jsonl") and None not in news:
        return lines(here or b"", [new for new in news if new is not None]), True
    if any(was != own for was, new in changes if new != here):
        return here, False
    if len(news) == 1 or PurePosixPath(name).parts[0] == "reports" or "/builds/" in name:
        return news[-1], True
    base = here
    if "/checks/" in name:
        base = here or b'{"shapes": {}}'
    elif name.endswith(".json"):
        base = None
    found = base
    for new in news:
        if base is None or found is None or new is None:
            return here, False
        found = (shapes if "/checks/" in name else texts)(base, found, new)
    if found is None:
        return here, False
    return (bz2.compress(found) if name.endswith(PACKED) else found), True


def lines(here: bytes, news: Sequence[bytes]) -> bytes:
    """With those that it lacks, in the order of their time where they tell it."""
    known = here.splitlines(keepends=True)
    more = dict.fromkeys(line for new in news for line in new.splitlines(True) if line not in known)
    return b"".join([*known, *sorted(more, key=_date)])


def _date(line: bytes) -> str:
    try:
        found = json.loads(line)
    except ValueError:
        return ""
    return str(found.get("date", "")) if isinstance(found, dict) else ""


def shapes(base: bytes, one: bytes, other: bytes) -> bytes:
    """Checks of a variant: what either has found at a shape, with the later's provenance. Packed or
    not; what comes of it is not.
    """
    was, mine, its = (json.loads(_plain(text)) for text in (base, one, other))
    later = max(its, mine, key=lambda each: each.get("provenance", {}).get("date", ""))
    new = {name: found for name, found in its["shapes"].items()
           if was["shapes"].get(name) != found}  # fmt: skip
    merged = {**later, "shapes": {**mine["shapes"], **new}}
    return (json.dumps(merged, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _plain(data: bytes) -> bytes:
    return bz2.decompress(data) if data.startswith(b"BZh") else data


def texts(base: bytes, one: bytes, other: bytes) -> bytes | None:
    """None where both have changed the same lines."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("one", "base", "other")]
        for file, data in zip(files, (one, base, other), strict=True):
            file.write_bytes(data)
        command = ["git", "merge-file", "--stdout", *map(str, files)]
        merged = subprocess.run(command, capture_output=True, check=False)
    return merged.stdout if merged.returncode == 0 else None
