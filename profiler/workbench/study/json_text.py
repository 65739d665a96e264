"""JSON within bounds, whoever wrote it: no key twice, not too deep, not too large for memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
MOST = 512 << 20  # bytes of memory that what is read may take
ENTRY, OBJECT = 60, 240  # bytes that an entry of a list, and an object, takes at the most


def as_type(data: bytes, kind: Any, *, besides: int = 0) -> Any:
    """A value of ``kind``, which has so many keys ``besides``. Raises msgspec.ValidationError with
    the field, ValueError for all else.
    """
    _require_room(data)
    try:
        found = msgspec.json.decode(data, type=kind)
        # As many colons as it has itself: then no key is unknown, and none stands there twice.
        if data.count(b":") != msgspec.json.encode(found).count(b":") + besides:
            json.loads(data, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return found


def as_data(data: bytes | str, *, finite: bool = True) -> Any:
    """Dictionaries, lists, strings and numbers; ``finite``: no NaN and no infinity among them.
    Raises ValueError.
    """
    _require_room(data.encode(errors="replace") if isinstance(data, str) else data)
    try:
        constant = _refuse if finite else None
        return json.loads(data, object_pairs_hook=_once, parse_constant=constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _require_room(data: bytes) -> None:
    if len(data) * (1 + OBJECT) <= MOST:  # counting takes as long as decoding
        return
    entries = data.count(b",") + data.count(b"[")
    if len(data) + ENTRY * entries + OBJECT * data.count(b"{") > MOST:
        raise ValueError(f"it would take more than {MOST >> 20} MiB of memory")


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"has '{twice[:80]}' twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"has {constant}, which is no number")
