"""The result of a verb on stdout: a reporter of the verb's name says what stands there."""

from __future__ import annotations

from workbench.cli import streams
from workbench.cli.streams import note, printing


@printing()
def show(options: object, result: object) -> None:
    """In the format of the options. After a brief answer an error goes to stderr alone."""
    from workbench.reporters import formats

    verb = type(options).__name__.removesuffix("Options").lower()
    formats.print_result(verb, result, options, note)
    if getattr(options, "brief", False):
        streams.answered = True


@printing()
def show_failure(code: str, message: str, hint: str) -> None:
    """The brief answer of a command that failed."""
    from workbench.reporters import formats

    print(formats.failed(code, message, hint))
    streams.answered = True
