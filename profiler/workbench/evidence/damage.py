"""What is wrong with a file that is not the record it should be, in words."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, get_type_hints

import msgspec

from workbench.evidence.records import Record

KINDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}
_ERROR = re.compile(r"(?P<what>.*?)(?: - at `\$(?P<place>.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.+)`")
_MISTYPED = re.compile(r"Expected `(.+)`, got `(.+)`")
_NO_CHOICE = re.compile(r"Invalid enum value (.+)")
_PART = re.compile(r"\.(?P<field>\w+)|\[(?P<index>\d+)\]|(?P<key>\[\.\.\.\])")


def told(error: msgspec.ValidationError, data: bytes, kind: type[Record]) -> str:
    """Which field is wrong, and what was expected there."""
    match = _ERROR.fullmatch(str(error))
    assert match is not None
    try:
        place = _named(match["place"] or "", msgspec.json.decode(data), kind)
    except (msgspec.DecodeError, ValueError, RecursionError):  # behind the field it is no JSON
        return str(error)
    what = match["what"]
    it = f"'{place}'" if place else "it"
    if missing := _MISSING.fullmatch(what):
        return f"{it} has no '{missing[1]}'"
    if mistyped := _MISTYPED.fullmatch(what):
        wanted, given = (
            " or ".join(KINDS.get(name, name) for name in names.split(" | "))
            for names in mistyped.groups()
        )
        return f"{it} must be {wanted}, not {given}"
    if value := _NO_CHOICE.fullmatch(what):
        choices = _choices().get(place.rpartition(".")[2], ())
        return f"{it} must be one of {', '.join(choices)}, not {value[1]}"
    return f"{it} {what}"


def _named(place: str, content: Any, kind: type[Record]) -> str:
    """A place as msgspec gives it, ``.shapes[...].status``, with the keys that it leaves out."""
    node, names = content, ""
    for part in _PART.finditer(place):
        if part["index"]:
            node = node[int(part["index"])]
            names += part[0]
        else:
            key = part["field"] or _wrong_key(node, content, kind)
            node = node[key]
            names += f".{key}"
    return names.removeprefix(".")


def _wrong_key(node: dict[str, Any], content: Any, kind: type[Record]) -> str:
    """The key of ``node``, a part of ``content``, under which it is not of its kind."""
    items = dict(node)
    for key, value in items.items():
        node.clear()
        node[key] = value
        try:
            msgspec.convert(content, kind)
        except msgspec.ValidationError:
            return key
    raise AssertionError("no key is wrong")


def _choices() -> dict[str, type[StrEnum]]:
    """Fields of records that have one of a few values."""
    return {
        name: hint
        for kind in Record.__subclasses__()
        for name, hint in get_type_hints(kind).items()
        if isinstance(hint, type) and issubclass(hint, StrEnum)
    }
