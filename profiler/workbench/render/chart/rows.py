"""Charts with a row a version: where the rows stand, and their names."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.render.chart.lettering import fitted, text_width
from workbench.render.chart.scene import XY, Label

EDGE = 8.0
BEFORE = 8.0  # between a name and its row


def row_left(names: Sequence[str], most: float, size: float) -> float:
    """Where rows begin that have their names before them; names take at most ``most``."""
    return EDGE + min(max(text_width(name, size, bold=True) for name in names), most) + BEFORE


def name(text: str, at: XY, room: float, size: float, *, own: bool = True) -> Label:
    """Of a step (``own``) or of what is only beside it."""
    text = fitted(text, room, size, bold=own)
    return Label(at, text, size, "ink" if own else "muted", bold=own)
