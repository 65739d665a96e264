"""Reads a workspace's files; TOML strictly, so that a misspelt key never passes for a setting."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from workbench.cuda.includes import source_text
from workbench.errors import UsageError

NAME_BYTES = 200  # of a name that becomes a file's, with its ending


def stands(path: Path) -> bool:
    """Whether there is anything of that name, be it a folder or a link to nothing."""
    try:
        return os.path.lexists(path)
    except ValueError:  # a name with a zero byte
        return False


def no_file(path: Path) -> str:
    """Why there is no file to read at ``path``; "" where there is one."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "is a link to nothing" if path.is_symlink() else "is not there"
    except ValueError:
        return "is no name of a file"
    except OSError as error:
        return "is a link in a loop" if error.errno == errno.ELOOP else str(error.strerror)
    if stat.S_ISDIR(mode):
        return "is a folder, not a file"
    return "" if stat.S_ISREG(mode) else "is no regular file"


def read_text(path: Path) -> str:
    """Raises UsageError for what is no file, may not be read, or is not UTF-8: with the byte."""
    if why := no_file(path):
        raise UsageError(f"{path} {why}", hint="put a text file there")
    try:
        return source_text(path, str(path))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", hint="look at who may read it"
        ) from None


def readable_text(path: Path) -> str:
    """A source to be shown: what is not UTF-8 in it is replaced, and refused when it is built."""
    return path.read_text(encoding="utf-8", errors="replace")


def is_plain_name(name: str) -> bool:
    """Whether a name can be that of a file, and of none outside of its folder."""
    inside = not name.startswith(".") and not {"/", "\\", "\0"} & set(name)
    try:
        return inside and 0 < len(os.fsencode(name)) <= NAME_BYTES
    except UnicodeError:
        return False
