"""The result of a verb on stdout: a reporter of the verb's name says what stands there."""

from __future__ import annotations

from workbench.cli import streams
from workbench.cli.streams import note, printing
from workbench.errors import WorkbenchError


@printing()
def show(options: object, result: object) -> None:
    """Print a result in the format of the options. After an answer in JSON an error goes to stderr
    alone.
    """
    from workbench.reporters import formats

    verb = type(options).__name__.removesuffix("Options").lower()
    formats.print_result(verb, result, options, note)
    streams.owed = ""


@printing()
def show_failure(error: WorkbenchError) -> None:
    """The answer of a command that failed, in the form that is owed."""
    from workbench.reporters import formats

    print(formats.failed(error, short=streams.owed == "--brief"))
    streams.owed = ""
