"""Reads a workspace's files; TOML strictly, so that a misspelt key never passes for a setting."""

from __future__ import annotations

import errno
import os
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import EnumType
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from workbench.cuda.includes import source_text
from workbench.errors import UsageError, nearest

Filled = TypeVar("Filled")
MOST = 64 << 20  # bytes of a file that is read whole
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


def too_large(path: Path) -> str:
    """Why a file is not read; "" where it is."""
    return f"is larger than {MOST >> 20} MiB" if path.stat().st_size > MOST else ""


def read_text(path: Path) -> str:
    """Raises UsageError for what is no file, is too large, may not be read, or is not UTF-8: with
    the byte.
    """
    if why := no_file(path) or too_large(path):
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


def check_keys(path: Path, table: str, found: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise UsageError for the first key of ``found`` that is not known."""
    known = list(known)
    for key in found:
        if key not in known:
            where = f"{table}.{key}" if table else key
            raise UsageError(f"{path}: unknown key '{where}'", hint=nearest(key, known))


def fill(kind: type[Filled], path: Path, table: str, found: Mapping[str, Any]) -> Filled:
    """``kind``, a dataclass, with the values found, by the types of its fields. Raises UsageError
    naming file and key.
    """
    untyped: Any = kind
    hints = _hints(untyped)
    check_keys(path, table, found, hints)
    values: dict[str, Any] = {}
    for key, value in found.items():
        where = f"{table}.{key}" if table else key
        want = hints[key]
        if is_dataclass(hints[key]):
            if not isinstance(value, dict):
                raise UsageError(f"{path}: '{where}' must be a table", hint=f"write [{where}]")
            values[key] = fill(want, path, where, value)
            continue
        try:
            values[key] = msgspec.convert(value, want)
        except msgspec.ValidationError:
            known = [str(word) for part in (want, *get_args(want)) for word in _choices(part)]
            hint = HINTS.get(want, "leave '{key}' out for the default").format(key=key, where=where)
            raise UsageError(
                f"{path}: '{where}' must be {_expected(want)}, not {_shown(value)}",
                hint=nearest(str(value), known) if known else hint,
            ) from None
        _check_text(path, where, values[key])
    for field in fields(untyped):
        if field.name not in values and field.default is field.default_factory is MISSING:
            raise UsageError(f"{path}: {table} has no '{field.name}'")
    return kind(**values)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _choices(want: Any) -> Iterable[object]:
    if get_origin(want) is Literal:
        return get_args(want)
    return want if isinstance(want, EnumType) else ()


WORDS = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    tuple[str, ...]: "a list of strings",
    tuple[float, float]: "[low, high]",
    tuple[dict[str, Any], ...]: "tables, each below its name in [[ ]]",
}
HINTS: dict[Any, str] = {
    bool: "write {key} = true, without quotes",
    tuple[str, ...]: 'such as {key} = ["one", "two"]',
    tuple[dict[str, Any], ...]: "write [[{where}]]",
}


def _expected(want: Any) -> str:
    """A type in words; of ``X | None`` that of X, of numbers with their bounds."""
    if want in WORDS:
        return WORDS[want]
    if get_origin(want) is Annotated:
        kind, bounds = get_args(want)
        return f"{WORDS[kind]} above zero and at most {bounds.le:g}"
    if words := list(_choices(want)):
        return f"one of {', '.join(map(str, words))}"
    return _expected(get_args(want)[0])


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _check_text(path: Path, where: str, value: object) -> None:
    """No control characters: such a value goes into a command line or a file's name."""
    texts = value if isinstance(value, tuple) else (value,)
    if wrong := [text for text in texts if isinstance(text, str) and not text.isprintable()]:
        raise UsageError(
            f"{path}: '{where}' has a character that cannot be printed: {_shown(wrong[0])}",
            hint="take it out",
        )
