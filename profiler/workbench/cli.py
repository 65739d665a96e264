"""The ``workbench`` command. Verbs import what they need when they run: help stays instant."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from workbench import __version__
from workbench.errors import WorkbenchError

app = typer.Typer(
    name="workbench",
    help="Profile-driven GPU kernel optimisation: every change tied to Nsight Compute evidence.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Project = Annotated[
    Path | None, typer.Option("--project", help="Top folder of the workspace.", metavar="DIR")
]
StudyName = Annotated[str | None, typer.Option("--study", help="Study; default in workbench.toml.")]
ShapeName = Annotated[str | None, typer.Option("--shape", help="Shape; default in study.py.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Measure again what is already on record.")]
Kernel = Annotated[
    str | None, typer.Option(help="Of a report: only kernels of this name.", metavar="NAME")
]
Variants = Annotated[list[str] | None, typer.Argument(metavar="[VARIANT]...")]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command()
def doctor(json: Json = False) -> None:
    """Check this machine: GPU, driver, ncu, permissions, compiler, packages, disk."""
    from workbench.commands.doctor import run

    run(json)


@app.command(name="list")
def list_(project: Project = None, study: StudyName = None, json: Json = False) -> None:
    """Studies, variants and steps, and which have evidence that is current."""
    from workbench.commands.list import run

    run(project, study, json)


@app.command()
def build(
    variants: Variants = None,
    arch: Annotated[str, typer.Option(help="GPU architecture to compile for.")] = "sm_90a",
    project: Project = None,
    study: StudyName = None,
    json: Json = False,
) -> None:
    """Compile without a GPU: registers, shared memory, stack, spills and warnings."""
    from workbench.commands.build import run

    run(project, study, variants or [], arch, json)


@app.command()
def check(
    variants: Variants = None,
    project: Project = None,
    study: StudyName = None,
    shape: ShapeName = None,
    json: Json = False,
) -> None:
    """Compare variants with the float64 reference, for every shape."""
    from workbench.commands.check import run

    run(project, study, shape, variants or [], json)


@app.command()
def calibrate(
    project: Project = None,
    study: StudyName = None,
    json: Json = False,
) -> None:
    """Measure what this GPU really reaches: ceilings for the rooflines."""
    from workbench.commands.calibrate import run

    run(project, study, json)


@app.command()
def profile(
    variants: Annotated[list[str], typer.Argument(metavar="VARIANT...")],
    project: Project = None,
    study: StudyName = None,
    shape: ShapeName = None,
    fresh: Fresh = False,
    json: Json = False,
) -> None:
    """Build, check, time and profile variants; show where the time goes."""
    from workbench.commands.profile import run

    run(project, study, shape, variants, fresh, json)


@app.command()
def ablate(
    fixes: Annotated[list[str] | None, typer.Argument(metavar="[FIX]...")] = None,
    project: Project = None,
    study: StudyName = None,
    shape: ShapeName = None,
    all_shapes: Annotated[
        bool, typer.Option("--all-shapes", help="One table a shape, and one of all shapes.")
    ] = False,
    fresh: Fresh = False,
    json: Json = False,
) -> None:
    """Measure what is missing of the ladder up to the named fixes; print the table; report."""
    from workbench.commands.ablate import run, run_all

    if all_shapes:
        run_all(project, study, shape, fixes or [], fresh, json)
    else:
        run(project, study, shape, fixes or [], fresh, json)


@app.command()
def report(
    fixes: Annotated[list[str] | None, typer.Argument(metavar="[FIX]...")] = None,
    project: Project = None,
    study: StudyName = None,
    shape: ShapeName = None,
    html: Annotated[bool, typer.Option("--html", help="Write report.html too.")] = False,
    open_: Annotated[bool, typer.Option("--open", help="Write report.html and open it.")] = False,
) -> None:
    """Write the report again from the evidence on record."""
    from workbench.commands.report import run

    run(project, study, shape, fixes or [], html, open_)


@app.command()
def show(
    variant: Annotated[str, typer.Argument(metavar="VARIANT|REPORT")],
    metric: Annotated[str | None, typer.Option(help="Any ncu metric in the capture.")] = None,
    source: Annotated[bool, typer.Option("--source", help="Source with stalls by line.")] = False,
    kernel: Kernel = None,
    launch: Annotated[int | None, typer.Option(help="Of a report: this launch, from 0.")] = None,
    project: Project = None,
    study: StudyName = None,
    shape: ShapeName = None,
    json: Json = False,
) -> None:
    """Everything known of one variant, or of the launches in anyone's .ncu-rep file."""
    from workbench.ncu.report import is_report

    if is_report(variant):
        from workbench.commands import foreign

        foreign.show(Path(variant), kernel, launch, metric, source, json)
        return
    from workbench.commands.show import run

    run(project, study, shape, variant, metric, source, json)


@app.command()
def diff(
    before: Annotated[str, typer.Argument(metavar="A")],
    after: Annotated[str, typer.Argument(metavar="B")],
    kernel: Kernel = None,
    project: Project = None,
    study: StudyName = None,
    shape: ShapeName = None,
    json: Json = False,
) -> None:
    """Two variants, or two .ncu-rep files: metrics, and the diff with what its lines cost."""
    from workbench.commands.diff import run

    run(project, study, shape, before, after, kernel, json)


@app.command()
def adopt(
    report: Annotated[Path, typer.Argument(metavar="REPORT")],
    name: Annotated[str, typer.Option("--as", help="Variant or reference of the study.")],
    kernel: Annotated[
        list[str] | None, typer.Option(help="Kernel of the variant; may be repeated.")
    ] = None,
    launch: Annotated[
        list[int] | None, typer.Option(help="Launch of the variant, from 0; may be repeated.")
    ] = None,
    project: Project = None,
    study: StudyName = None,
    shape: ShapeName = None,
    json: Json = False,
) -> None:
    """Take a capture made elsewhere into a study, as evidence without timing."""
    from workbench.commands.adopt import run

    run(report, name, project, study, shape, kernel or [], launch or [], json)


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
