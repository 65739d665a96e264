"""Where a verb's output goes: a terminal gets what fits it, everything else Markdown."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.render import markdown as markdown_writer
from workbench.render.document.blocks import Block
from workbench.render.plain import printable


def on_terminal(*, markdown: bool = False) -> bool:
    """Whether a reader sits before stdout, and did not ask for Markdown."""
    return sys.stdout.isatty() and not markdown


def show(blocks: Sequence[Block], *, wide: bool = False, markdown: bool = False) -> None:
    if on_terminal(markdown=markdown):
        from rich.console import Console

        from workbench.render import terminal

        terminal.write(blocks, Console(highlight=False), wide=wide)
        return
    text = markdown_writer.blocks(blocks)
    print("\n".join(map(printable, text.split("\n"))))


def show_json(data: Mapping[str, Any]) -> None:
    from workbench.render.as_json import dumps

    print(dumps(data))
