"""Outside of a workspace: a file that the workbench did not write, or not as it is, is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from workbench.errors import UsageError
from workbench.evidence.store import write_bytes

WRITTEN = ".written.json"  # name to the sha256 of what was written under it


def claim(folder: Path, files: Mapping[str, bytes]) -> None:
    """Note what is about to be written to ``folder``. Raises UsageError for users' files there."""
    written = _read(folder / WRITTEN)
    for name in files:
        path = folder / name
        if path.is_symlink() or (path.exists() and _sha256(path) not in written.get(name, ())):
            raise UsageError(
                f"{path} was not written by the workbench, or was changed since",
                hint="move it away, or run the same command in another folder",
            )
    # Before any of them is there, so that a run that is killed in between can be repeated.
    now = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    kept = {name: sorted({*written.get(name, ()), digest}) for name, digest in now.items()}
    text = json.dumps({**written, **kept}, indent=1, sort_keys=True)
    write_bytes(folder / WRITTEN, (text + "\n").encode())


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _read(path: Path) -> dict[str, list[str]]:
    """Empty where there is none, or none that could be believed."""
    try:
        known = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(known, dict):
        return {}
    return {name: each for name, each in known.items() if isinstance(each, list)}
