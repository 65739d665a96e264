"""What the workbench may write, delete and follow: nothing through a link out of the workspace, and
only what is recorded as its own is deleted.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from workbench.errors import EnvironmentLacks, UsageError
from workbench.study.text import stands

CONFIG_FILE = "workbench.toml"
PART = ".part"  # at the end of the name of a file that is being written
DEAD_AFTER_S = 3600.0  # writing one file takes less than a second


def require_inside(path: Path, top: Path | None = None) -> None:
    """Raises UsageError where links lead a file out of its workspace: out of ``top``, else out of
    the folder with a ``workbench.toml`` above it. Other folders have no such border.
    """
    if top is None:
        above = (path.absolute(), *path.absolute().parents)
        top = next((each for each in above if (each / CONFIG_FILE).is_file()), None)
    if top is not None and not resolved(path).is_relative_to(resolved(top)):
        raise UsageError(
            f"{path} leads out of the workspace {top}, to {resolved(path)}",
            hint="put the folder itself there in place of the link",
        )


def resolved(path: Path) -> Path:
    """Without links. Raises UsageError for links in a loop and for a name that no file has."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        raise UsageError(f"{path} is a link in a loop", hint="name the file itself") from None
    except ValueError as error:
        raise UsageError(f"{path}: {error}", hint="name a file that there is") from None


def mode_of(path: Path) -> int:
    """The permissions that a file is to be written with: as it has them, else by the umask."""
    with suppress(OSError):
        return stat.S_IMODE(path.stat().st_mode)
    mask = os.umask(0o077)
    os.umask(mask)
    return 0o666 & ~mask


def delete(path: Path, recorded: Collection[str]) -> None:
    """Only a file whose name is ``recorded`` as written here: no link, and no file of the user."""
    if path.name in recorded and stat.S_ISREG(path.lstat().st_mode):
        require_inside(path)
        path.unlink()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock a folder, which is made if it is not there: nobody else is inside meanwhile. Every use
    case that writes or deletes files because of what it read holds the lock of the folder above
    them all. Not to be nested. Raises EnvironmentLacks where the disk is full.
    """
    require_inside(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_full(folder, error) or error from None
    with locked(folder):
        yield


@contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Raises BlockingIOError where it does not ``wait`` and somebody else is inside."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:  # a file system without locks
            if not wait:
                raise
        yield
    finally:
        os.close(handle)


@contextmanager
def all_or_nothing() -> Iterator[list[Path]]:
    """What is made inside is added to the list, and deleted again where anything fails."""
    made: list[Path] = []
    try:
        yield made
    except BaseException:
        for path in reversed(made):
            with suppress(OSError):  # a folder in which somebody else put something stays
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        raise


def write_new(path: Path, data: bytes, top: Path, made: list[Path]) -> bool:
    """Write a file below ``top``, whole or not at all; False where its name is taken, be it by a
    link. What it makes is added to ``made``. Raises UsageError where a folder on the way is a file.
    """
    if stands(path):
        return False
    require_inside(path, top)
    make_folder(path.parent, made)
    write_bytes(path, data)
    made.append(path)
    return True


def make_folder(folder: Path, made: list[Path]) -> Path:
    """The folder; it and those above that it makes are added to ``made``. Raises UsageError where
    one of them is a file.
    """
    for each in reversed([folder, *folder.parents]):
        if each.is_dir():
            continue
        if stands(each):
            raise UsageError(
                f"{each} is a file, where a folder is needed",
                hint="move it away, or name another folder",
            )
        with suppress(FileExistsError):  # another command was faster
            each.mkdir()
            made.append(each)
    return folder


def disk_full(path: Path, error: OSError) -> EnvironmentLacks | None:
    """The error to raise where a write failed for want of space; None for other reasons."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    return EnvironmentLacks(
        f"no space left on the disk that holds {path}",
        hint="free some space and run the same command again: what was finished is kept",
    )


def _sweep(path: Path) -> None:
    """Delete what killed runs have left of writing this file."""
    for part in path.parent.glob(f".{escape(path.name)}.*{PART}"):
        with suppress(OSError):  # another process was faster
            if part.stat().st_mtime < time.time() - DEAD_AFTER_S:
                part.unlink()


def _is_stream(path: Path) -> bool:
    """Whether a file must not come in its place; one that the shell has opened neither."""
    opened = path.is_symlink() and str(path.readlink()).startswith("/proc/")
    return opened or (path.exists() and not (path.is_file() or path.is_dir()))


def write_bytes(path: Path, data: bytes) -> None:
    """Write all of it or nothing: a reader never sees half a file. Raises EnvironmentLacks.

    What killed runs left beside it goes. A pipe or a device, such as /dev/stdout, is written to.
    """
    part: Path | None = None
    try:
        if _is_stream(path):
            path.write_bytes(data)
            return
        require_inside(path.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)
        part = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(handle, mode_of(path))
            file.flush()
            os.fsync(handle)
        part.replace(path)
    except OSError as error:
        raise disk_full(path, error) or error from None
    finally:
        if part is not None:
            part.unlink(missing_ok=True)
