"""``list``: studies and the state of their evidence."""

from __future__ import annotations

from typing import Any

from workbench.render.document.blocks import Block
from workbench.render.document.listing import ListedStudies, listing


def blocks(result: ListedStudies, options: Any) -> list[Block]:
    return [listing(each, wide=options.wide) for each in result.studies]
