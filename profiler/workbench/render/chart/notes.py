"""What every chart says in the same words: of what it is, and what it has not."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.judge.rows import Ablation, Row
from workbench.render.chart.lettering import wrapped
from workbench.render.chart.scene import Anchor, Item, Label
from workbench.render.document.phrases import reason
from workbench.words import ABSENT

SMALL, LINE, EDGE = 11.0, 15.0, 8.0
EMPTY = 120.0
NO_ARITHMETIC = "no floating-point arithmetic: the tables have the shares of bandwidth"


def where(ablation: Ablation) -> str:
    return f"{ablation.study}, {ablation.shape}, {ablation.gpu}"


def empty(words: str, width: float) -> tuple[list[Item], float]:
    """In place of a chart: what was not collected."""
    return [Label((width / 2, EMPTY / 2), words, 14, "muted", Anchor.MIDDLE)], EMPTY


def not_drawn(rows: Sequence[Row], width: float, top: float) -> tuple[list[Item], float]:
    """At the foot, the variants that are missing and why; and where the picture ends."""
    if not rows:
        return [], top + 6
    text = f"{ABSENT}: " + ", ".join(f"{row.variant} ({reason(row)})" for row in rows)
    lines = wrapped(text, width - 2 * EDGE, SMALL)
    items: list[Item] = [
        Label((EDGE, top + LINE * (n + 1)), line, SMALL, "muted") for n, line in enumerate(lines)
    ]
    return items, top + LINE * len(lines) + 8
