"""Reads a workspace's files; TOML strictly, so that a misspelt key never passes for a setting."""

from __future__ import annotations

import errno
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import fields

from workbench.cuda.includes import source_text
from workbench.errors import UsageError, nearest

Filled = TypeVar("Filled")
MOST = 64 << 20  # bytes of a file that is read whole
MOST_TOML = 4 << 20  # characters of settings and ladders
MOST_KEYS = 32  # parts of a dotted key: the memory to read it grows with their square
_DEEP_KEY = re.compile(rf"""(?<![\w"'-])(?:[\w"'-]+[ \t]*\.[ \t]*){{{MOST_KEYS}}}""")
MOST_SOURCE = 16 << 20  # bytes of a file that a variant or a study names
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
    inside = name.isprintable() and not name.startswith(".") and not {"/", "\\"} & set(name)
    try:
        return inside and 0 < len(os.fsencode(name)) <= NAME_BYTES
    except UnicodeError:
        return False


def read_toml(path: Path) -> dict[str, object]:
    """Raises UsageError naming the file for what cannot be read, or is not TOML."""
    text = read_text(path)
    if len(text) > MOST_TOML or _DEEP_KEY.search(text):
        why = f"is larger than {MOST_TOML >> 20} MiB, or has a key of more than {MOST_KEYS} parts"
        raise UsageError(f"{path} {why}", hint="no setting and no ladder needs that")
    try:
        return tomllib.loads(text)
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
    type expected there, and of an unknown key or word the nearest one.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
    where, named = where.strip(".`"), _NAMED.fullmatch(what)
    above, _, key = where.rpartition(".")
    said = in_words(data, where)
    hint = f"leave '{said}' out for the default"
    if any(f.encode_name == key and f.required for f in fields(type_at(kind, above))):
        hint = f'write {key} = "..."'
    if named and named[1] == "Object contains unknown field":
        known = [field.encode_name for field in fields(type_at(kind, where))]
        full = f"{said}.{named[2]}" if where else named[2]
        raise UsageError(f"{path}: unknown key '{full}'", hint=nearest(named[2], known))
    if named and named[1] == "Invalid enum value":
        wanted = type_at(kind, where)
        hint = nearest(named[2], map(str, get_args(wanted) or wanted))
    elif named:
        hint = f"write {named[2]} = "
    for theirs, ours in (("`object`", "a table"), ("`array`", "a list"), (" | null`", "`")):
        what = what.replace(theirs, ours)
    raise UsageError(f"{path}: '{said}': {what[0].lower()}{what[1:]}", hint=hint)


# How msgspec names a key or a word that is wrong or lacking.
_NAMED = re.compile(
    r"(Object contains unknown field|Object missing required field|Invalid enum value)"
    r" [`'](.*)[`']",
    re.DOTALL,
)


def type_at(kind: Any, where: str) -> Any:
    """Of a key such as ``step[0].prediction[1]``; of a list that of its entries."""
    for key in re.findall(r"[a-z_]+", where):
        (kind,) = (f.type for f in fields(kind) if f.encode_name == key)
        kind = kind if get_origin(kind) is Literal else next(iter(get_args(kind)), kind)
    return kind


def in_words(data: Any, where: str) -> str:
    """A key such as ``step[1].kind`` as ``step 'fix1'.kind``; counted from 1 without a variant."""
    said = []
    for key, place in re.findall(r"(\w+)(?:\[(\d+)\])?", where):
        data = data[key]
        if place:
            data = data[int(place)]
            name = data.get("variant") if isinstance(data, dict) else None
            key += f" '{name}'" if isinstance(name, str) else f" {int(place) + 1}"
        said.append(key)
    return ".".join(said)
