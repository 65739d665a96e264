"""``gate``: what a change did to the variants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.app.gate import Gated
from workbench.judge.commits import VariantChange
from workbench.render.document import checks
from workbench.render.document.blocks import Block
from workbench.render.junit import junit
from workbench.words import Move


def blocks(result: Gated, options: Any) -> list[Block]:
    counts = {move: sum(change.verdict == move for change in result.changes) for move in Move}
    text = ", ".join(f"{count} {move}" for move, count in counts.items() if count)
    title = f"{result.older.short} → {result.newer.short}: {text or 'no variant'}"
    return checks.gate(title, _changes(result), wide=options.wide)


def junit_of(result: Gated) -> str:
    """The changes as JUnit XML."""
    return junit(_changes(result))


def _changes(result: Gated) -> dict[str, Sequence[VariantChange]]:
    return {each.study: each.changes for each in result.studies}
