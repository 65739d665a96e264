"""The ``workbench`` command. Verbs import what they need when they run: help stays instant."""

from __future__ import annotations

import gc
import importlib
import inspect
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from functools import cache
from keyword import iskeyword
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, get_type_hints

import typer

from workbench import __version__
from workbench.cli import options, streams
from workbench.errors import EnvironmentLacks, Interrupted, UsageError, WorkbenchError

app = typer.Typer(
    name="workbench",
    help="Profile-driven GPU kernel optimisation: every change tied to Nsight Compute evidence.",
    epilog="Begin with `workbench try FILE`, or with `workbench init`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

VERBS: dict[str, type] = {
    each.__name__.removesuffix("Options").lower(): each
    for each in vars(options).values()
    if getattr(each, "__name__", "").endswith("Options")
}


# What Typer raises for a command line that it cannot read: Click's, or that of the Click within it.
MISUSE: Any = next(k for k in typer.BadParameter.__mro__ if k.__name__ == "ClickException")


class ReaderGone(Exception):
    """Nobody reads stdout any more. Typer would make of a BrokenPipeError the exit code 1."""


def verb(name: str, kind: type) -> Callable[..., None]:
    """The function that Typer wants of a verb: its parameters are the fields of its options."""

    def run(**values: Any) -> None:
        try:
            require_here()
            module = f"{name}_" if iskeyword(name) else name
            code = importlib.import_module(f"workbench.cli.{module}").run(kind(**values))
        except BrokenPipeError as error:
            raise ReaderGone from error
        except Interrupted as error:
            streams.note(str(error))
            code = error.exit_code
        finally:
            files = sys.modules.get("workbench.study.files")  # nothing is locked without it
            for path in files.without_locks if files else ():
                text = "this file system has no locks: run one command at a time there"
                streams.note(f"{path}: {text}")
        if code:
            raise typer.Exit(code)

    kinds = get_type_hints(kind, include_extras=True)
    for option in fields(kind):
        if options.OF_TYPER in option.metadata:
            kinds[option.name] = Annotated[kinds[option.name], option.metadata[options.OF_TYPER]]
    signature = inspect.signature(kind)
    parameters = [p.replace(annotation=kinds[p.name]) for p in signature.parameters.values()]
    run.__signature__ = signature.replace(parameters=parameters, return_annotation=None)  # type: ignore[attr-defined]
    run.__annotations__ = kinds
    run.__doc__ = kind.__doc__
    return run


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


for _name, _options in VERBS.items():
    app.command(name=_name)(verb(_name, _options))


@cache
def command() -> Any:
    """Return ``app`` as a command, made once: every call of it makes all parameters again."""
    made = typer.main.get_command(app)
    for verb in made.commands.values():  # type: ignore[attr-defined]
        for parameter in verb.params:
            if parameter.param_type_name == "argument":  # help has its name, no type of Python
                parameter.display_type_rich = lambda **_: ""
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code, see ``errors``."""
    gc.set_threshold(100_000)  # a command is over before there is garbage worth looking for
    with suppress(ValueError):  # not in the main thread
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, interrupt)
    streams.prepare()
    typed = sys.argv[1:] if arguments is None else arguments
    streams.owe(typed)
    try:
        code = run(typed)
        streams.flush()
    except BrokenPipeError:  # the reader, such as head, has seen enough
        streams.abandon()
        return streams.READER_GONE
    except OSError as error:  # what was said last did not go out, as on a full disk
        with suppress(OSError):
            why = f"the output could not be written: {error.strerror or error}"
            complain(EnvironmentLacks(why))
        streams.abandon()
        return EnvironmentLacks.exit_code
    return code


_interrupted_at = -math.inf
ONE_SIGNAL_S = 0.5  # of which a process group and the process that waits pass one on to us each


def interrupt(number: int, frame: FrameType | None) -> None:
    """End as by Ctrl-C, once for a signal that comes twice."""
    global _interrupted_at
    before, _interrupted_at = _interrupted_at, time.monotonic()
    if _interrupted_at - before > ONE_SIGNAL_S:
        raise KeyboardInterrupt


def run(typed: list[str]) -> int:
    """Run the command line, as ``main``. Raises OSError where the standard streams take no more."""
    if typed[:1] == ["profile"] and streams.DASHES in typed:
        # Click takes the dashes before a program away: they are doubled.
        before = typed.index(streams.DASHES)
        typed = [*typed[:before], streams.DASHES, *typed[before:]]
    try:
        code = command()(args=typed, prog_name="workbench", standalone_mode=False)
    except ReaderGone as gone:
        raise BrokenPipeError from gone
    except SystemExit as stop:
        if (wrapped := getattr(sys.stdout, "wrapped", None)) is not None:
            sys.stdout = wrapped  # which Typer wraps where nobody reads its help any more
            raise BrokenPipeError from None
        return stop.code if isinstance(stop.code, int) else 1
    except MISUSE as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # nothing was typed, and this is the help
        else:  # Typer would print the typed text unescaped
            context = getattr(error, "ctx", None)
            name = context.command_path if context else "workbench"
            hint = f"`{name} --help` lists arguments and options"
            complain(UsageError(error.format_message(), hint=hint))
        return int(error.exit_code)
    except streams.NotWritten:
        raise
    except (WorkbenchError, ModuleNotFoundError, OSError) as error:
        shown = worded(error)
        complain(shown)
        return shown.exit_code
    return code if isinstance(code, int) else 0


def require_here() -> None:
    """Raises EnvironmentLacks where the folder that this runs in was deleted."""
    try:
        Path.cwd()
    except FileNotFoundError:
        gone = os.environ.get("PWD", "that this runs in")
        raise EnvironmentLacks(
            f"the folder {gone} was deleted", hint="go to a folder that is there: cd"
        ) from None


def complain(error: WorkbenchError) -> None:
    """On stderr, for --json on stdout too; for --brief on stdout alone."""
    if owed := streams.owed:
        with suppress(OSError):
            streams.show_failure(error)
            if owed == "--brief":
                return

    for kind, text in {"error": error.message, "  ran": error.ran, "hint": error.hint}.items():
        if text:
            streams.note(f"{kind}: {text}")


def worded(error: WorkbenchError | ModuleNotFoundError | OSError) -> WorkbenchError:
    """The error to show, also for one that nothing has worded before."""
    if isinstance(error, WorkbenchError):
        return error
    if isinstance(error, ModuleNotFoundError):
        return EnvironmentLacks(
            f"the Python package '{error.name}' is missing",
            hint="`workbench doctor` lists what is needed and how to install it",
        )
    from workbench.study.files import disk_full

    path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
    what = error.strerror or str(error) or type(error).__name__
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):  # of copytree
        what = error.args[0][0][-1]
    full = disk_full(path or Path(), error)
    return full or EnvironmentLacks(f"{path}: {what}" if path is not None else what)
