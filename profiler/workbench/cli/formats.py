"""The answer of a verb, in the format that its options ask for.

The module of a verb has ``blocks`` or ``lines`` for people, and ``frame`` for ``--csv``. ``data``
is for ``--json`` where that is not the result itself, and ``brief`` for ``--brief`` where that is
not the same in short. ``print_result`` picks one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from workbench.errors import WorkbenchError
from workbench.render import doc
from workbench.render.doc import printable_lines

if TYPE_CHECKING:
    from rich.console import Console


def print_result(verb: str, result: Any, options: Any, note: Callable[[str], None]) -> None:
    """Print a result on stdout. ``note`` takes what CSV has no place for."""
    module = f"{verb}_" if iskeyword(verb) else verb
    reporter = import_module(f"workbench.cli.{module}")
    if getattr(options, "brief", False):
        from workbench.render import in_short

        limit = in_short.MORE if verb == "show" else in_short.LIMIT
        named = hasattr(reporter, "brief")
        short = reporter.brief(result) if named else data(reporter, result, options)
        print(in_short.dumps(short, limit))
    elif getattr(options, "json", False):
        from workbench.render import as_json, in_short

        whole = data(reporter, result, options)
        is_cut = getattr(options, "full", True) is False
        print(in_short.dumps(whole, in_short.MOST) if is_cut else as_json.dumps(whole))
    elif getattr(options, "csv", False):
        from workbench.render.as_table import as_csv

        print(as_csv(reporter.frame(result, note)))
    elif hasattr(reporter, "lines"):
        print(printable_lines("\n".join(reporter.lines(result))))
    else:
        write(reporter.blocks(result, options), options)


def data(reporter: Any, result: object, options: Any) -> object:
    """Return what ``--json`` prints of a result, where it is long all of it with ``--full``."""
    if not hasattr(reporter, "data"):
        return result
    how = {"full": options.full} if hasattr(options, "full") else {}
    return reporter.data(result, **how)


def write(blocks: Iterable[doc.Block], options: Any) -> None:
    """Print blocks as they fit a terminal, or as Markdown, each as soon as it is made."""
    if on_terminal(options):
        from workbench.render import terminal

        terminal.write(blocks, console())
    else:
        from workbench.render import markdown

        texts = (text for block in blocks if (text := markdown.blocks([block])))
        for index, text in enumerate(texts):
            print("\n" * bool(index) + printable_lines(text))


def on_terminal(options: Any) -> bool:
    """Whether a reader sits before stdout, and did not ask for Markdown."""
    return sys.stdout.isatty() and not options.markdown


def console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def failed(error: WorkbenchError, *, short: bool = True) -> str:
    """The answer of a command that failed."""
    from workbench.render import as_json, in_short

    return in_short.dumps(in_short.error(error)) if short else as_json.dumps(in_short.error(error))
