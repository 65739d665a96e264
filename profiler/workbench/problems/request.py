"""What was asked for: a file or folder, and what the options say of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from workbench.errors import UsageError, nearest
from workbench.study.text import stands


@dataclass(frozen=True)
class Request:
    """``source`` with the ``function`` in it that was named, and the options as they were given.

    ``name``: of the study to be made, "" for one after the source. ``elsewhere``: it is called on
    another machine, with the packages of that one.
    """

    source: Path
    function: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    versus: str = ""
    launch: str = ""
    solution: Path | None = None
    workload: Path | None = None
    shape: str = ""
    name: str = ""
    elsewhere: bool = False


def split(source: str) -> tuple[Path, str]:
    """``FILE:FUNCTION``: a colon in the path itself is one only where no such file stands."""
    path = Path(source)
    file, colon, function = source.rpartition(":")
    if colon and not stands(path):
        return Path(file), function
    return path, ""


def require(path: Path, what: str = "file or folder") -> Path:
    """Raises UsageError where nothing of that name stands."""
    if stands(path):
        return path.resolve()
    folder = path.parent
    beside = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
    hint = nearest(path.name, beside) if beside else f"there is no folder {folder}"
    if folder.is_dir() and not beside:
        hint = f"the folder {folder.resolve()} is empty"
    raise UsageError(f"there is no {what} {path}", hint=hint)
