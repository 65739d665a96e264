"""``check``: variants beside the float64 reference."""

from __future__ import annotations

from typing import Any

from workbench.render import brief as in_short
from workbench.render.document import checks
from workbench.render.document.blocks import Block, paragraph
from workbench.render.document.checks import CheckedStudy, CheckRow, reasons

__all__ = ["CheckRow", "blocks", "brief", "reasons"]


def brief(result: CheckedStudy) -> dict[str, object]:
    return in_short.checked(result)


def blocks(result: CheckedStudy, options: Any) -> list[Block]:
    head = [paragraph(result.origin)] if result.origin else []
    return [*head, checks.checks(result.checks, wide=options.wide)]
