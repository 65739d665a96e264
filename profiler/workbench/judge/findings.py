"""A finding: a code with its numbers and ids; ``render/document/sentences.py`` has sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Value = bool | int | float | str | tuple[int, ...] | tuple[str, ...]


@dataclass(frozen=True)
class Finding:
    """``code`` is dotted and stays. A value that was not collected is not among ``values``."""

    code: str
    values: Mapping[str, Value | Finding | tuple[Finding, ...]] = field(default_factory=dict)


def finding(code: str, **values: Value | Finding | tuple[Finding, ...] | None) -> Finding:
    """Without the values that are None or empty."""
    return Finding(code, {k: v for k, v in values.items() if v is not None and v not in ("", ())})


NOT_COLLECTED = Finding("not_collected")
