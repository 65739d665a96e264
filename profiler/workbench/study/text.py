"""Reads a workspace's files; TOML strictly, so that a misspelt key never passes for a setting."""

from __future__ import annotations

import errno
import os
import stat
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from workbench.cuda.includes import source_text
from workbench.errors import UsageError, nearest

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


@dataclass(frozen=True)
class Rules:
    """By the dotted name of a key: the ``most`` of a number, the ``choices`` of a text, what to do
    about keys that are ``gone``.
    """

    most: Mapping[str, float] = field(default_factory=dict)
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gone: Mapping[str, str] = field(default_factory=dict)


def read_toml(path: Path) -> dict[str, Any]:
    """Raises UsageError naming the file for what cannot be read, or is not TOML."""
    try:
        return tomllib.loads(read_text(path))
    except ValueError as error:  # also of a number with more digits than Python reads
        named = isinstance(error, tomllib.TOMLDecodeError)
        hint = "mend the place named" if named else "write a number with fewer digits"
        raise UsageError(f"{path} is not valid TOML: {error}", hint=hint) from None
    except RecursionError:
        raise UsageError(
            f"{path} is not valid TOML here: too deeply nested", hint="nothing in it needs depth"
        ) from None


def is_number(value: object) -> bool:
    """Whether it is an integer or float of TOML that a float can hold: no inf, no nan."""
    most = sys.float_info.max
    return type(value) in (int, float) and -most <= value <= most  # type: ignore[operator]


def check_keys(
    path: Path,
    table: str,
    found: dict[str, Any],
    known: list[str],
    gone: Mapping[str, str] | None = None,
) -> None:
    """Raise UsageError for the first key of ``found`` that is not known."""
    for key in found:
        if key not in known:
            where = f"{table}.{key}" if table else key
            if gone and where in gone:
                raise UsageError(f"{path}: '{where}' is gone", hint=gone[where])
            raise UsageError(f"{path}: unknown key '{where}'", hint=nearest(key, known))


def require_table(path: Path, where: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: '{where}' must be a table", hint=f"write [{where}]")
    return value


def fill(kind: Any, path: Path, table: str, found: dict[str, Any], rules: Rules) -> Any:
    """``kind`` with the values found, by the types of its fields. Raises UsageError naming file and
    key.
    """
    hints = get_type_hints(kind)
    check_keys(path, table, found, [f.name for f in fields(kind)], rules.gone)
    values: dict[str, Any] = {}
    for key, value in found.items():
        where = f"{table}.{key}" if table else key
        want = hints[key]
        if is_dataclass(want):
            values[key] = fill(want, path, where, require_table(path, where, value), rules)
        elif want in (int, float) and type(value) in (int, want):
            _check_range(path, where, value, rules)
            values[key] = want(value)
        elif want in (bool, str) and type(value) is want:
            values[key] = value
        elif want not in (int, float, bool, str) and _is_strings(value):
            values[key] = tuple(value)
        else:
            name = want.__name__ if isinstance(want, type) else "list of strings"
            raise UsageError(
                f"{path}: '{where}' must be of type {name}, not {_shown(value)}",
                hint=f"leave '{key}' out for the default",
            )
        _check_text(path, where, values[key])
        if where in rules.choices and value not in rules.choices[where]:
            known = rules.choices[where]
            raise UsageError(f"{path}: '{where}' is {value!r}", hint=nearest(str(value), known))
    return kind(**values)


def _is_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _check_range(path: Path, where: str, value: float, rules: Rules) -> None:
    most = rules.most[where]
    if is_number(value) and 0 < value <= most:
        return
    raise UsageError(
        f"{path}: '{where}' must be above zero and at most {most:g}, not {_shown(value)}",
        hint=f"leave '{where.rpartition('.')[2]}' out for the default",
    )


def _check_text(path: Path, where: str, value: object) -> None:
    """No control characters: such a value goes into a command line or a file's name."""
    texts = value if isinstance(value, tuple) else (value,)
    if wrong := [text for text in texts if isinstance(text, str) and not text.isprintable()]:
        raise UsageError(
            f"{path}: '{where}' has a character that cannot be printed: {_shown(wrong[0])}",
            hint="take it out",
        )
