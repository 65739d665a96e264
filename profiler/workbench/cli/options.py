"""The options of every verb, each typed once: what it is called, what it means, its default.

A verb's fields are its arguments and options, its docstring is what ``--help`` says of it. Nothing
heavy is imported here: this is read for every ``workbench --help``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from workbench.cli.option_types import (
    Arch,
    Csv,
    Fixes,
    Fresh,
    GpuName,
    Json,
    Kernel,
    Launch,
    MeasuredOptions,
    NoProfile,
    OfStudy,
    On,
    Printed,
    Project,
    Recorded,
    ShapeName,
    Shapes,
    Variant,
    Variants,
)


@dataclass(frozen=True)
class BuildOptions(Printed, OfStudy):
    """Compile without a GPU: registers, shared memory, spills."""

    variants: Variants = None
    arch: Arch = "sm_90a"


@dataclass(frozen=True)
class CheckOptions(Printed, MeasuredOptions):
    """Compare variants with the float64 reference."""

    variants: Variants = None
    shape: Shapes = None
    all_shapes: Annotated[
        bool, Option("--all-shapes", help="At every shape of the study, and not the usual ones.")
    ] = False


@dataclass(frozen=True)
class CalibrateOptions(Printed, MeasuredOptions):
    """Measure the ceilings that this GPU really reaches."""


@dataclass(frozen=True)
class ProfileOptions(Printed, MeasuredOptions):
    """Build, check, time and profile: where does the time go?"""

    variants: Annotated[list[str], Argument(metavar="VARIANT...")]
    shape: Shapes = None
    fresh: Fresh = False
    csv: Csv = False


@dataclass(frozen=True)
class TryOptions(Printed):
    """Check, time and profile a file that you already have.

    No workspace, no study. A Python file with a function and inputs(), a KernelBench problem, a GPU
    MODE task folder, a FlashInfer-Bench definition, a function for nsight-python, or a .cu file
    with --launch.
    """

    source: Annotated[str, Argument(metavar="FILE[:FUNCTION]")]
    inputs: Annotated[
        list[str] | None,
        Option("--input", help="x=randn(4096,8192), n=1024; may be repeated.", metavar="X=.."),
    ] = None
    outputs: Annotated[
        list[str] | None,
        Option("--output", help="Of a .cu file: out=empty_like(x).", metavar="X=.."),
    ] = None
    launch: Annotated[
        str | None, Option("--launch", help="Of a .cu file: 'name[grid, block](x, out, n)'.")
    ] = None
    versus: Annotated[
        str | None, Option("--vs", help="Compare with torch.softmax, FILE:FUNCTION or compile.")
    ] = None
    solution: Annotated[
        Path | None, Option("--solution", help="Of a problem: the solution.", metavar="FILE")
    ] = None
    workload: Annotated[
        Path | None, Option("--workload", help="Of a definition: its workloads.", metavar="FILE")
    ] = None
    range: Annotated[
        str | None, Option("--range", help="Of nsight-python: the range to try.", metavar="NAME")
    ] = None
    shape: ShapeName = None
    keep: Annotated[
        str | None, Option("--keep", help="Make it a study of the workspace.", metavar="NAME")
    ] = None
    project: Project = None
    no_profile: NoProfile = False
    quick: Annotated[
        bool, Option("--quick", help="Three timing sessions: a wider interval, sooner.")
    ] = False
    fresh: Fresh = False
    on: On = None


@dataclass(frozen=True)
class AblateOptions(Printed, MeasuredOptions):
    """Measure, judge and report the ladder up to the named fixes.

    What is on record and current is not profiled again.
    """

    fixes: Fixes = None
    shape: Shapes = None
    all_shapes: Annotated[
        bool, Option("--all-shapes", help="One table a shape, and one of all shapes.")
    ] = False
    leave_one_out: Annotated[
        bool, Option("--leave-one-out", help="Of one variant: what each switch is worth in it.")
    ] = False
    no_profile: NoProfile = False
    fresh: Fresh = False
    csv: Csv = False


@dataclass(frozen=True)
class SweepOptions(Printed, MeasuredOptions):
    """Time all values of parameters, or a range of shapes.

    A variant at all combinations of its parameters, or variants and references over the size.
    """

    variants: Annotated[list[str], Argument(metavar="VARIANT[a=1|2,b=4..16*2]...")]
    shape: Shapes = None
    fresh: Fresh = False
    csv: Csv = False


@dataclass(frozen=True)
class WatchOptions(MeasuredOptions):
    """Build, check and time a variant on every save.

    Without a GPU it is only built. Ctrl-C ends it.
    """

    variant: Variant
    arch: Annotated[str, Option("--arch", help="To compile for where there is no GPU.")] = "sm_90a"
    shape: ShapeName = None
    json: Annotated[bool, Option("--json", help="Print one JSON object a save.")] = False


@dataclass(frozen=True)
class DoctorOptions(Printed):
    """What works on this machine, and what to do about the rest."""

    on: On = None


@dataclass(frozen=True)
class InitOptions:
    """Make a workspace that runs as it is.

    It has a study, a baseline, a reference, and a first fix to fill in.
    """

    folder: Annotated[Path, Argument(metavar="[DIR]")] = Path()
    template: Annotated[
        str, Option("--template", help="cuda, triton or torch.", metavar="NAME")
    ] = "cuda"
    json: Json = False


@dataclass(frozen=True)
class NewOptions(OfStudy):
    """Copy a variant as a new step of the ladder.

    The step has its key change and its prediction.
    """

    name: Annotated[str, Argument(metavar="NAME")]
    parent: Annotated[str, Option("--from", help="Step to copy.", metavar="VARIANT")]
    change: Annotated[
        str | None, Option("--change", help="The one change, in a line.", metavar="TEXT")
    ] = None
    predict: Annotated[
        list[str] | None,
        Option(
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

    base: Annotated[str, Argument(metavar="BASE")]
    head: Annotated[str, Argument(metavar="HEAD")] = "HEAD"
    tier: Annotated[
        int | None,
        Option(
            "--tier",
            help="At most: 0 what the compiler makes, 1 counters too, 2 times too.",
            min=0,
            max=2,
        ),
    ] = None
    arch: Arch = "sm_90a"
    cache: Annotated[
        Path | None,
        Option("--cache", help="Keep compiled kernels here for the next time.", metavar="DIR"),
    ] = None
    junit: Annotated[
        Path | None, Option("--junit", help="Write JUnit XML too.", metavar="FILE")
    ] = None
    sarif: Annotated[Path | None, Option("--sarif", help="Write SARIF too.", metavar="FILE")] = None
    project: Project = None
    study: Annotated[str | None, Option("--study", help="Only this one; default all.")] = None
    shape: ShapeName = None
    on: On = None


@dataclass(frozen=True)
class BisectOptions(MeasuredOptions):
    """Find the commit in which a variant became wrong, or slower."""

    variant: Variant
    good: Annotated[
        str,
        Argument(
            metavar="[GOOD]", help="Default: the commit of the variant's last correct evidence."
        ),
    ] = ""
    bad: Annotated[str, Argument(metavar="BAD")] = "HEAD"
    what: Annotated[
        str, Option("--what", help="wrong, slow, or either: wrong first.", metavar="WHAT")
    ] = "either"
    arch: Arch = "sm_90a"
    shape: ShapeName = None
    json: Json = False


@dataclass(frozen=True)
class ShipOptions(OfStudy):
    """Write a kept variant as an installable package.

    --check tests one and times it again.
    """

    variant: Annotated[str | None, Argument(metavar="[VARIANT]")] = None
    name: Annotated[
        str | None, Option("--as", help="What the package is called.", metavar="NAME")
    ] = None
    to: Annotated[
        Path | None, Option("--to", help="Where it is written; default ./NAME.", metavar="DIR")
    ] = None
    arch: Annotated[
        list[str] | None,
        Option(
            "--arch",
            help="Architecture to build cubins for; may be repeated; default the evidence's.",
        ),
    ] = None
    check: Annotated[
        Path | None,
        Option("--check", help="A package: run its tests, time it again.", metavar="DIR"),
    ] = None
    shape: Annotated[str | None, Option("--shape", help="With --check: where it is timed.")] = None
    gpu: GpuName = None
    json: Json = False


@dataclass(frozen=True)
class ReportOptions(Recorded):
    """Write the report again from the evidence on record."""

    fixes: Fixes = None
    html: Annotated[bool, Option("--html", help="Write report.html too.")] = False
    open_: Annotated[bool, Option("--open", help="Write report.html and open it.")] = False


@dataclass(frozen=True)
class ShowOptions(Printed, Recorded):
    """Everything known of one variant, or of any .ncu-rep file."""

    name: Annotated[str, Argument(metavar="VARIANT|REPORT")]
    metric: Annotated[str | None, Option("--metric", help="Any ncu metric in the capture.")] = None
    source: Annotated[bool, Option("--source", help="Source with stalls by line.")] = False
    top: Annotated[
        int | None,
        Option("--top", help="With --source: only the hottest lines.", metavar="N", min=1),
    ] = None
    sass: Annotated[
        bool, Option("--sass", help="With --source: the SASS and PTX of each line.")
    ] = False
    kernel: Kernel = None
    launch: Launch = None
    csv: Csv = False


@dataclass(frozen=True)
class DiffOptions(Printed, Recorded):
    """Why one variant, or .ncu-rep file, is faster than another.

    With --source, what the lines cost.
    """

    before: Annotated[str, Argument(metavar="A")]
    after: Annotated[str, Argument(metavar="B")]
    source: Annotated[
        bool, Option("--source", help="The diff with what its lines cost, costliest first.")
    ] = False
    kernel: Kernel = None
    launch: Annotated[
        str | None, Option("--launch", help="Of reports: this launch of A and of B.", metavar="A:B")
    ] = None


@dataclass(frozen=True)
class AdviseOptions(Printed, Recorded):
    """What limits a variant, and what kind of change to try next."""

    name: Variant
