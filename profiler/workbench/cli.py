"""The ``workbench`` command. Verbs import what they need when they run: help stays instant."""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from workbench import __version__
from workbench.commands import options
from workbench.errors import WorkbenchError

app = typer.Typer(
    name="workbench",
    help="Profile-driven GPU kernel optimisation: every change tied to Nsight Compute evidence.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# In the order of the help; each is run by the module of its name in ``workbench.commands``.
VERBS: dict[str, type] = {
    "doctor": options.DoctorOptions,
    "list": options.ListOptions,
    "build": options.BuildOptions,
    "check": options.CheckOptions,
    "calibrate": options.CalibrateOptions,
    "profile": options.ProfileOptions,
    "ablate": options.AblateOptions,
    "report": options.ReportOptions,
    "show": options.ShowOptions,
    "diff": options.DiffOptions,
    "adopt": options.AdoptOptions,
}


def verb(name: str, given: type) -> Callable[..., None]:
    """The function that Typer wants of a verb: its parameters are the fields of its options."""

    def run(**values: Any) -> None:
        importlib.import_module(f"workbench.commands.{name}").run(given(**values))

    kinds = get_type_hints(given, include_extras=True)
    signature = inspect.signature(given)
    parameters = [p.replace(annotation=kinds[p.name]) for p in signature.parameters.values()]
    run.__signature__ = signature.replace(parameters=parameters, return_annotation=None)  # type: ignore[attr-defined]
    run.__annotations__ = kinds
    run.__doc__ = given.__doc__
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


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code, see ``errors``."""
    gc.set_threshold(100_000)  # a command is over before there is garbage worth looking for
    try:
        app(args=arguments, prog_name="workbench")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except WorkbenchError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.ran:
            print(f"  ran: {error.ran}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        from workbench.evidence.store import disk_full

        full = disk_full(Path(error.filename or "."), error)
        print(f"error: {full.message if full else error}", file=sys.stderr)
        hint = full.hint if full else "is the folder writable?"
        print(f"hint: {hint}", file=sys.stderr)
        return 3
    return 0
