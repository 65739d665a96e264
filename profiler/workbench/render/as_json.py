"""Records as JSON: what the verbs print under ``--json``.

A record shows the fields that its ``repr`` has, and the properties marked ``shown``, by their
names. docs/json.md and docs/reference.md say what the names mean.
"""

from __future__ import annotations

import json
import math
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import PurePath
from typing import Any

import msgspec

Data = dict[str, object]
VERSION = 4  # of the answers of --json and --brief, MCP's among them
FLAT = ("columns", "of_row", "of_report")  # fields whose keys stand beside the others


@cache
def shown_names(record: Any) -> tuple[str, ...]:
    """Return what a record shows: fields with a ``repr``, then properties marked ``shown``."""
    if issubclass(record, msgspec.Struct):
        return tuple(each.name for each in msgspec.structs.fields(record))
    every = {name: each for base in reversed(record.__mro__) for name, each in vars(base).items()}
    marked = [n for n, p in every.items() if hasattr(getattr(p, "fget", None), "is_shown")]
    return (*(each.name for each in fields(record) if each.repr), *marked)


def plain_data(value: Any) -> Any:
    """Records as objects, sequences as lists; what is no number is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, msgspec.Struct):
        flat = [plain_data(getattr(value, name, {})) for name in FLAT]
        return dict(ChainMap(shown_fields(value, *FLAT), *flat))
    if is_dataclass(value):
        return shown_fields(value)
    if isinstance(value, Mapping):
        return {key: plain_data(each) for key, each in value.items()}
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain_data(each) for each in value]
    return value


def shown_fields(record: Any, *but: str) -> Data:
    """All that a record shows ``but`` some of it."""
    kind: Any = type(record)
    values = {n: getattr(record, n) for n in shown_names(kind) if n not in but}
    return {n: plain_data(value) for n, value in values.items() if value is not msgspec.UNSET}


def dumps(data: object, indent: int | None = 1) -> str:
    """A record, or an object of several, with its ``schema_version``; never NaN."""
    whole = {"schema_version": VERSION, **plain_data(data)}
    return json.dumps(whole, indent=indent, allow_nan=False)
