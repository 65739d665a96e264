"""``build``: what a compiler made of variants."""

from __future__ import annotations

from workbench.app.build import Builds
from workbench.render.document.blocks import Block
from workbench.render.document.environment import compiled


def blocks(result: Builds, _: object) -> list[Block]:
    return compiled(result.builds)
