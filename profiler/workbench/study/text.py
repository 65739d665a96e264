"""Reads a workspace's files; TOML strictly, so that a misspelt key never passes for a setting."""

from __future__ import annotations

import errno
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from enum import EnumType
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

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


def read_toml(path: Path) -> dict[str, object]:
    """Raises UsageError naming the file for what cannot be read, or is not TOML."""
    try:
        return tomllib.loads(read_text(path))
    except ValueError as error:  # also of a number with more digits than Python reads
        named = isinstance(error, tomllib.TOMLDecodeError)
        hint = "fix this line" if named else "write a number with fewer digits"
        raise UsageError(f"{path} is not valid TOML: {error}", hint=hint) from None
    except RecursionError:
        raise UsageError(
            f"{path} is not valid TOML here: too deeply nested", hint="nothing in it needs depth"
        ) from None


class TomlTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a user writes into a table. Another key than a field of it is an error."""


def convert(data: object, kind: type[Filled], path: Path) -> Filled:
    """``data`` of the file ``path`` as a ``kind``. Raises UsageError naming the file, the key, the
    type expected there, and the nearest right key or value.
    """
    try:
        found = msgspec.convert(data, kind)
    except msgspec.ValidationError:
        raise _explained(path, data, kind) from None
    for where, text in _texts(data):  # they go into command lines and names of files
        if not text.isprintable():
            raise UsageError(
                f"{path}: '{where}' has a character that cannot be printed: {_shown(text)}",
                hint="take it out",
            )
    return found


def _explained(path: Path, value: Any, want: Any, where: str = "") -> UsageError:
    """What is wrong with a value that is of another type, at the innermost key."""
    if isinstance(value, dict) and (known := _fields(want)):
        for key, inner in value.items():
            place = f"{where}.{key}" if where else key
            if key not in known:
                if not want.__struct_config__.forbid_unknown_fields:
                    continue
                return UsageError(f"{path}: unknown key '{place}'", hint=nearest(key, known))
            if not _is(inner, known[key].type):
                return _explained(path, inner, known[key].type, place)
        lacking = next(n for n, f in known.items() if f.required and n not in value)
        return UsageError(f"{path}: {where or 'it'} has no '{lacking}'", hint=f"write {lacking} = ")
    each = next(iter(get_args(want)), None)
    if isinstance(value, list) and _fields(each) and all(isinstance(one, dict) for one in value):
        wrong = next(one for one in value if not _is(one, each))
        return _explained(path, wrong, each, _item(where, wrong))
    key = where.rpartition(".")[2]
    hint = HINTS.get(want, "leave '{key}' out for the default").format(key=key)
    if words := [str(word) for part in (want, *get_args(want)) for word in _choices(part)]:
        hint = nearest(str(value), words)
    elif _fields(want) or _fields(each):
        table = re.sub(" '.*?'", "", where)
        hint = f"write [{table}]" if _fields(want) else f"write [[{table}]]"
    return UsageError(f"{path}: '{where}' must be {expected(want)}, not {_shown(value)}", hint=hint)


def _is(value: object, want: Any) -> bool:
    try:
        msgspec.convert(value, want)
    except msgspec.ValidationError:
        return False
    return True


def _fields(want: Any) -> dict[str, msgspec.structs.FieldInfo]:
    """Of a struct, by the key that each has in a file; else none."""
    if not (isinstance(want, type) and issubclass(want, msgspec.Struct)):
        return {}
    return {field.encode_name: field for field in msgspec.structs.fields(want)}


def _item(where: str, table: Mapping[str, object]) -> str:
    """A table of several, by the variant that it is of."""
    return f"{where} '{table['variant']}'" if isinstance(table.get("variant"), str) else where


def _texts(value: object, where: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, f"{where}.{key}" if where else key)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, _item(where, inner) if isinstance(inner, dict) else where)


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
}
HINTS: dict[Any, str] = {
    bool: "write {key} = true, without quotes",
    tuple[str, ...]: 'such as {key} = ["one", "two"]',
}


def expected(want: Any) -> str:
    """A type in words; of ``X | None`` that of X, of numbers with their bounds."""
    if want in WORDS:
        return WORDS[want]
    if _fields(want):
        return "a table"
    if words := list(_choices(want)):
        return f"one of {', '.join(map(str, words))}"
    kind, *more = get_args(want)
    if _fields(kind):
        return "tables, each below its name in [[ ]]"
    if get_origin(want) is Annotated and more[0].max_length:
        return f"{WORDS[kind]} of at most {more[0].max_length} characters"
    if get_origin(want) is Annotated:
        lowest = "above zero" if more[0].ge is None else "from zero"
        return f"{WORDS[kind]} {lowest} and at most {more[0].le:g}"
    return expected(kind)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
