"""Of the verbs that read evidence, look around, compare commits and make things."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from workbench.commands.options.shared import (
    Csv,
    GpuName,
    Json,
    Kernel,
    Launch,
    Measured,
    OfStudy,
    On,
    Printed,
    Project,
    Recorded,
    ShapeName,
    completed,
    study_names,
    variant_names,
)


@dataclass(frozen=True)
class DoctorOptions(Printed):
    """What works on this machine, and what to do about the rest."""

    on: On = None


@dataclass(frozen=True)
class InitOptions:
    """Make a workspace that runs as it is.

    It has a study, a baseline, a reference, and a first fix to fill in.
    """

    folder: Annotated[Path, typer.Argument(metavar="[DIR]")] = Path()
    template: Annotated[
        str, typer.Option("--template", help="cuda, triton or torch.", metavar="NAME")
    ] = "cuda"
    json: Json = False


@dataclass(frozen=True)
class NewOptions(OfStudy):
    """Copy a variant as a new step of the ladder.

    The step has its key change and its prediction.
    """

    name: Annotated[str, typer.Argument(metavar="NAME")]
    parent: Annotated[
        str,
        typer.Option(
            "--from", help="Step to copy.", metavar="VARIANT", autocompletion=variant_names
        ),
    ]
    change: Annotated[
        str | None, typer.Option("--change", help="The one change, in a line.", metavar="TEXT")
    ] = None
    predict: Annotated[
        list[str] | None,
        typer.Option(
            "--predict",
            help="FIGURE=LOW..HIGH, a factor of the parent's value; may be repeated.",
            metavar="PREDICTION",
        ),
    ] = None
    json: Json = False


@dataclass(frozen=True)
class ListOptions(Printed, OfStudy):
    """Studies, variants and steps, and which evidence is current."""


@dataclass(frozen=True)
class StatusOptions(Printed):
    """What measuring has cost, and what the budget leaves.

    By verb, study and GPU.
    """

    project: Project = None


@dataclass(frozen=True)
class GateOptions(Printed):
    """Compare two commits: same, faster, slower, or cannot tell.

    Exit codes: 0, 1 where something is slower or wrong, 5 where it cannot be told.
    """

    base: Annotated[str, typer.Argument(metavar="BASE")]
    head: Annotated[str, typer.Argument(metavar="HEAD")] = "HEAD"
    tier: Annotated[
        int | None,
        typer.Option(
            "--tier",
            help="At most: 0 what the compiler makes, 1 counters too, 2 times too.",
            min=0,
            max=2,
        ),
    ] = None
    arch: Annotated[str, typer.Option("--arch", help="GPU architecture to compile for.")] = "sm_90a"
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache", help="Keep compiled kernels here for the next time.", metavar="DIR"
        ),
    ] = None
    junit: Annotated[
        Path | None, typer.Option("--junit", help="Write JUnit XML too.", metavar="FILE")
    ] = None
    sarif: Annotated[
        Path | None, typer.Option("--sarif", help="Write SARIF too.", metavar="FILE")
    ] = None
    project: Project = None
    study: Annotated[
        str | None,
        typer.Option("--study", help="Only this one; default all.", autocompletion=study_names),
    ] = None
    shape: ShapeName = None
    on: On = None


@dataclass(frozen=True)
class BisectOptions(Measured):
    """Find the commit in which a variant became wrong, or slower."""

    variant: Annotated[str, typer.Argument(metavar="VARIANT", autocompletion=variant_names)]
    good: Annotated[
        str,
        typer.Argument(
            metavar="[GOOD]", help="Default: the commit of the variant's last correct evidence."
        ),
    ] = ""
    bad: Annotated[str, typer.Argument(metavar="BAD")] = "HEAD"
    what: Annotated[
        str, typer.Option("--what", help="wrong, slow, or either: wrong first.", metavar="WHAT")
    ] = "either"
    arch: Annotated[str, typer.Option("--arch", help="GPU architecture to compile for.")] = "sm_90a"
    shape: ShapeName = None
    json: Json = False


@dataclass(frozen=True)
class ShipOptions(OfStudy):
    """Write a kept variant as an installable package.

    --check tests one and times it again.
    """

    variant: Annotated[
        str | None, typer.Argument(metavar="[VARIANT]", autocompletion=variant_names)
    ] = None
    name: Annotated[
        str | None, typer.Option("--as", help="What the package is called.", metavar="NAME")
    ] = None
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Where it is written; default ./NAME.", metavar="DIR"),
    ] = None
    arch: Annotated[
        list[str] | None,
        typer.Option(
            "--arch",
            help="Architecture to build cubins for; may be repeated; default the evidence's.",
        ),
    ] = None
    check: Annotated[
        Path | None,
        typer.Option("--check", help="A package: run its tests, time it again.", metavar="DIR"),
    ] = None
    shape: Annotated[
        str | None, typer.Option("--shape", help="With --check: where it is timed.")
    ] = None
    gpu: GpuName = None
    json: Json = False


@dataclass(frozen=True)
class ReportOptions(Recorded):
    """Write the report again from the evidence on record."""

    fixes: Annotated[
        list[str] | None, typer.Argument(metavar="[FIX]...", autocompletion=variant_names)
    ] = None
    html: Annotated[bool, typer.Option("--html", help="Write report.html too.")] = False
    open_: Annotated[bool, typer.Option("--open", help="Write report.html and open it.")] = False


@dataclass(frozen=True)
class ShowOptions(Printed, Recorded):
    """Everything known of one variant, or of any .ncu-rep file."""

    name: Annotated[
        str, typer.Argument(metavar="VARIANT|REPORT", autocompletion=completed("variant or file"))
    ]
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric", help="Any ncu metric in the capture.", autocompletion=completed("metric")
        ),
    ] = None
    source: Annotated[bool, typer.Option("--source", help="Source with stalls by line.")] = False
    top: Annotated[
        int | None,
        typer.Option("--top", help="With --source: only the hottest lines.", metavar="N", min=1),
    ] = None
    sass: Annotated[
        bool, typer.Option("--sass", help="With --source: the SASS and PTX of each line.")
    ] = False
    kernel: Kernel = None
    launch: Launch = None
    csv: Csv = False


@dataclass(frozen=True)
class DiffOptions(Printed, Recorded):
    """Why one variant, or .ncu-rep file, is faster than another.

    With --source, what the lines cost.
    """

    before: Annotated[str, typer.Argument(metavar="A", autocompletion=completed("variant or file"))]
    after: Annotated[str, typer.Argument(metavar="B", autocompletion=completed("variant or file"))]
    source: Annotated[
        bool, typer.Option("--source", help="The diff with what its lines cost, costliest first.")
    ] = False
    kernel: Kernel = None
    launch: Annotated[
        str | None,
        typer.Option("--launch", help="Of reports: this launch of A and of B.", metavar="A:B"),
    ] = None


@dataclass(frozen=True)
class AdviseOptions(Printed, Recorded):
    """What limits a variant, and what kind of change to try next."""

    name: Annotated[str, typer.Argument(metavar="VARIANT", autocompletion=variant_names)]
