"""What the operating system refused, with a hint that fits."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from workbench.errors import EnvironmentLacks
from workbench.evidence.store import disk_full

HINTS = {
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EROFS: "that file system is read-only: work on a copy elsewhere",
    errno.ELOOP: "its links lead round in a circle: name the file itself",
    errno.EMFILE: "too many files are open: raise `ulimit -n`",
    errno.ENOTDIR: "a part of that path is a file, not a folder",
    errno.EISDIR: "that is a folder where a file is wanted",
    errno.ENOENT: "it was there a moment ago, or its folder is missing",
}


def refused(error: OSError) -> EnvironmentLacks:
    """The error to show for an OSError that nothing has worded before."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        return _of_a_copy(error.args[0])
    path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
    full = disk_full(path or Path(), error)
    if full is not None:
        return full
    what = error.strerror or str(error) or type(error).__name__
    where = f"{path}: " if path is not None else ""
    return EnvironmentLacks(f"{where}{what}", hint=_hint(error, path))


def _of_a_copy(failed: list[tuple[str, str, str]]) -> EnvironmentLacks:
    """Of the files that could not be copied, each with where to and why, the first."""
    path = Path(failed[0][0])
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    why = failed[0][2].partition("] ")[2].partition(": ")[0] or failed[0][2]
    return EnvironmentLacks(f"{path} cannot be copied: {why}{more}", hint=_permission(path))


def _hint(error: OSError, path: Path | None) -> str:
    if error.errno in (errno.EACCES, errno.EPERM) and path is not None:
        return _permission(path)
    if error.errno is None and "shared object" in str(error):
        return "a library that Python needs is missing; see `workbench doctor`"
    return HINTS.get(error.errno or 0, "")


def _permission(path: Path) -> str:
    """Which permission is lacking; "" where that cannot be seen."""
    if path.exists() and not os.access(path, os.R_OK):
        return f"you may not read it: its permissions are {path.stat().st_mode & 0o777:o}"
    folder = next((each for each in path.parents if each.is_dir()), None)
    if folder is not None and not os.access(folder, os.W_OK | os.X_OK):
        return f"you may not write to the folder {folder}"
    return ""
