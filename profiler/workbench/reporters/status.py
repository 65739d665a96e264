"""``status``: what measuring has cost."""

from __future__ import annotations

from typing import Any

from workbench.render.document.blocks import Block
from workbench.render.document.listing import Spending, status


def blocks(result: Spending, options: Any) -> list[Block]:
    return status(result, wide=options.wide)
