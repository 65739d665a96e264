"""Where a verb's output goes: a terminal gets what fits it, everything else Markdown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.cli import streams
from workbench.cli.streams import note, printing
from workbench.render import markdown as markdown_writer
from workbench.render.document.blocks import Block
from workbench.render.numbers import printable, printable_lines

if TYPE_CHECKING:
    from rich.console import Console

    from workbench.cli.options import Printed
    from workbench.render.source_lines import Pieces


@dataclass(frozen=True)
class Output:
    """Stdout, as the options of a verb want it."""

    wide: bool = False
    markdown: bool = False
    csv: bool = False

    @property
    def on_terminal(self) -> bool:
        """Whether a reader sits before stdout, and did not ask for Markdown or CSV."""
        return sys.stdout.isatty() and not (self.markdown or self.csv)

    @printing()
    def show(self, *blocks: Block) -> None:
        """What is printed in several calls stays apart by a blank line, as within one."""
        if self.csv:
            from workbench.render.as_table import as_csv, callouts

            for text in callouts(blocks):  # CSV has no place for them
                note(text)
            print(as_csv(blocks))
        elif self.on_terminal:
            from workbench.render import terminal

            terminal.write(blocks, console(), wide=self.wide)
        else:
            print(printable_lines(markdown_writer.blocks(blocks)))

    @printing()
    def lines(self, lines: Callable[[int | None], Iterator[Pieces]]) -> None:
        """Source, cut to the width of a terminal unless all of it is wanted."""
        from workbench.render.source_lines import text_of

        if not self.on_terminal:
            print("\n".join(map(printable, text_of(lines(None)))))
            return
        from rich.text import Text

        out = console()
        for pieces in lines(None if self.wide else out.width):
            safe = [(printable(text), style) for text, style in pieces]
            out.print(Text.assemble(*safe), soft_wrap=True)

    @printing()
    def gap(self) -> None:
        print()


def console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


@printing()
def say(*lines: str) -> None:
    print(printable_lines("\n".join(lines)))


def output(options: Printed) -> Output:
    return Output(options.wide, options.markdown, getattr(options, "csv", False))


def tell(
    options: Printed,
    data: Callable[[], object],
    blocks: Callable[[], Iterable[Block]],
    brief: Callable[[], Mapping[str, object]] | None = None,
    limit: int | None = None,
) -> None:
    """The result of a verb: as JSON, ``brief`` or whole, or as its options want it."""
    if brief and getattr(options, "brief", False):
        show_brief(brief(), limit)
    elif options.json:
        show_json(data())
    else:
        output(options).show(*blocks())


@printing()
def show_json(data: object) -> None:
    """A record, or an object of several."""
    from workbench.render.as_json import dumps

    print(dumps(data))


@printing()
def show_brief(data: Mapping[str, object], limit: int | None = None) -> None:
    """One answer on one line: an error after it goes to stderr alone."""
    from workbench.render import brief

    print(brief.dumps(data, limit or brief.LIMIT))
    streams.answered = True
