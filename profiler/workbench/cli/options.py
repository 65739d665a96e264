"""The options of every verb: name, type, default and help.

A class ``NameOptions`` makes the verb ``name``, in the order of the help, run by the module of
that name in ``workbench.cli``. Its fields are the arguments and options, and its docstring is the
``--help``. Import nothing heavy here: every ``workbench --help`` reads this module.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from workbench.cli.option_types import (
    Arch,
    Briefed,
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
class DoctorOptions(Briefed):
    """Check what works on this machine, and how to fix the rest."""

    on: On = None


@dataclass(frozen=True)
class TryOptions(Briefed):
    """Check, time and profile a file that you already have.

    It needs no workspace. FILE is a Python file with a function, a KernelBench problem, a GPU MODE
    task folder, a FlashInfer-Bench definition, a function for nsight-python, or a .cu file with
    --launch.
    """

    source: Annotated[str, Argument(metavar="FILE[:FUNCTION]", help="File, and its function.")]
    inputs: Annotated[
        list[str] | None,
        Option("--input", help="Argument: x=randn(4096,8192), n=8; repeatable.", metavar="X=.."),
    ] = None
    outputs: Annotated[
        list[str] | None,
        Option("--output", help="For a .cu file: out=empty_like(x); repeatable.", metavar="X=.."),
    ] = None
    launch: Annotated[
        str | None, Option("--launch", help="For a .cu file: 'name[grid, block](x, out, n)'.")
    ] = None
    versus: Annotated[
        str | None, Option("--vs", help="Compare with torch.softmax, FILE:FUNCTION or compile.")
    ] = None
    solution: Annotated[
        Path | None, Option("--solution", help="Solution file of a problem.", metavar="FILE")
    ] = None
    workload: Annotated[
        Path | None, Option("--workload", help="Workload file of a definition.", metavar="FILE")
    ] = None
    range: Annotated[
        str | None, Option("--range", help="For nsight-python: the range to try.", metavar="NAME")
    ] = None
    shape: ShapeName = None
    keep: Annotated[
        str | None, Option("--keep", help="Add it to your workspace as a study.", metavar="NAME")
    ] = None
    project: Project = None
    no_profile: NoProfile = False
    quick: Annotated[
        bool, Option("--quick", help="Three timing sessions: faster, with a wider interval.")
    ] = False
    fresh: Fresh = False
    on: On = None


@dataclass(frozen=True)
class InitOptions:
    """Create a workspace that runs unchanged.

    It contains a study, a baseline, a reference and a first fix to edit.
    """

    folder: Annotated[Path, Argument(metavar="DIR", help="Folder of the workspace.")] = Path()
    template: Annotated[
        str, Option("--template", help="Template: cuda, triton or torch.", metavar="NAME")
    ] = "cuda"
    agents: Annotated[
        bool, Option("--agents", help="Add AGENTS.md and a skill; also to a workspace that exists.")
    ] = False
    json: Json = False


@dataclass(frozen=True)
class NewOptions(OfStudy):
    """Copy a variant as a new step of the ladder.

    Write its key change and its prediction before you measure.
    """

    name: Annotated[str, Argument(metavar="NAME", help="Name of the new step.")]
    parent: Annotated[str, Option("--from", help="Step to copy.", metavar="VARIANT")]
    change: Annotated[
        str | None, Option("--change", help="The one change, in one line.", metavar="TEXT")
    ] = None
    predict: Annotated[
        list[str] | None,
        Option(
            "--predict",
            help="FIGURE=LOW..HIGH, as a factor of the parent; repeatable.",
            metavar="PREDICTION",
        ),
    ] = None
    json: Json = False


@dataclass(frozen=True)
class ListOptions(Printed, OfStudy):
    """List studies and variants, and which evidence is current."""


@dataclass(frozen=True)
class BuildOptions(Printed, OfStudy):
    """Compile without a GPU: registers, shared memory, spills."""

    variants: Variants = None
    arch: Arch = "sm_90a"


@dataclass(frozen=True)
class CheckOptions(Briefed, MeasuredOptions):
    """Compare variants with the float64 reference."""

    variants: Variants = None
    shape: Shapes = None
    all_shapes: Annotated[
        bool, Option("--all-shapes", help="Check at every shape of the study.")
    ] = False


@dataclass(frozen=True)
class WatchOptions(MeasuredOptions):
    """Build, check and time a variant on every save.

    Without a GPU it only builds. Press Ctrl-C to stop.
    """

    variant: Variant
    arch: Arch = "sm_90a"
    shape: ShapeName = None
    json: Annotated[bool, Option("--json", help="Print one JSON object per save.")] = False


@dataclass(frozen=True)
class ProfileOptions(Briefed, MeasuredOptions):
    """Build, check, time and profile: where does the time go?"""

    variants: Annotated[list[str], Argument(metavar="VARIANT", help="Variants to profile.")]
    shape: ShapeName = None
    fresh: Fresh = False
    csv: Csv = False


@dataclass(frozen=True)
class AblateOptions(Briefed, MeasuredOptions):
    """Measure, judge and report the ladder up to the named fixes.

    Current evidence is not profiled again.
    """

    fixes: Fixes = None
    shape: Shapes = None
    all_shapes: Annotated[
        bool, Option("--all-shapes", help="Print a table for each shape and one for all shapes.")
    ] = False
    leave_one_out: Annotated[
        bool, Option("--leave-one-out", help="Measure what each parameter contributes.")
    ] = False
    no_profile: NoProfile = False
    quick: Annotated[
        bool, Option("--quick", help="With --brief: stop at the first verdict, of 3 sessions.")
    ] = False
    fresh: Fresh = False
    all_: Annotated[bool, Option("--all", help="Print all steps and warnings.")] = False
    csv: Csv = False


@dataclass(frozen=True)
class SweepOptions(Printed, MeasuredOptions):
    """Time all values of parameters, or a range of shapes.

    Times every combination of parameters, or variants and references over the size.
    """

    variants: Annotated[
        list[str], Argument(metavar="VARIANT[a=1|2,b=4..16*2]", help="Variants, with values.")
    ]
    shape: Shapes = None
    fresh: Fresh = False
    csv: Csv = False


@dataclass(frozen=True)
class CalibrateOptions(Printed, MeasuredOptions):
    """Measure the ceilings that this GPU reaches, for rooflines."""


@dataclass(frozen=True)
class ReportOptions(Recorded):
    """Rebuild the report from recorded evidence."""

    fixes: Fixes = None
    html: Annotated[bool, Option("--html", help="Also write report.html.")] = False
    open_: Annotated[
        bool, Option("--open", help="Write report.html and open it in the browser.")
    ] = False


@dataclass(frozen=True)
class ShowOptions(Briefed, Recorded):
    """Print the profile of a variant or of any .ncu-rep file."""

    name: Annotated[
        str, Argument(metavar="VARIANT|REPORT|ID", help="Variant, .ncu-rep file or evidence id.")
    ]
    metric: Annotated[
        str | None, Option("--metric", help="Print any ncu metric of the capture.")
    ] = None
    source: Annotated[
        bool, Option("--source", help="Print the source with the stalls of each line.")
    ] = False
    top: Annotated[
        int | None,
        Option("--top", help="With --source: only the N hottest lines.", metavar="N", min=1),
    ] = None
    sass: Annotated[bool, Option("--sass", help="With --source: also the SASS of each line.")] = (
        False
    )
    kernel: Kernel = None
    launch: Launch = None
    csv: Csv = False


@dataclass(frozen=True)
class DiffOptions(Briefed, Recorded):
    """Explain the time difference of two variants or captures.

    With --source, print the cost of each line.
    """

    before: Annotated[str, Argument(metavar="A", help="Variant or .ncu-rep file before.")]
    after: Annotated[str, Argument(metavar="B", help="Variant or .ncu-rep file after.")]
    source: Annotated[
        bool, Option("--source", help="Print the source diff with the cost of each line.")
    ] = False
    kernel: Kernel = None
    launch: Annotated[
        str | None,
        Option("--launch", help="For .ncu-rep files: the launch in A and in B.", metavar="A:B"),
    ] = None


@dataclass(frozen=True)
class AdviseOptions(Briefed, Recorded):
    """Print what limits a variant and what to change next."""

    name: Variant


@dataclass(frozen=True)
class GateOptions(Printed):
    """Compare two commits: same, faster, slower, or cannot tell.

    Exit codes: 0 same or faster, 1 slower or wrong, 5 cannot tell.
    """

    base: Annotated[str, Argument(metavar="BASE", help="Commit to compare with.")]
    head: Annotated[str, Argument(metavar="HEAD", help="Commit to test.")] = "HEAD"
    tier: Annotated[
        int | None,
        Option("--tier", help="Highest tier: 0 compiled code, 1 counters, 2 times.", min=0, max=2),
    ] = None
    arch: Arch = "sm_90a"
    cache: Annotated[
        Path | None,
        Option(
            "--cache", help="Keep compiled kernels in this folder for the next run.", metavar="DIR"
        ),
    ] = None
    junit: Annotated[
        Path | None, Option("--junit", help="Also write JUnit XML.", metavar="FILE")
    ] = None
    project: Project = None
    study: Annotated[str | None, Option("--study", help="Only this study; default: all.")] = None
    shape: ShapeName = None
    on: On = None


@dataclass(frozen=True)
class BisectOptions(MeasuredOptions):
    """Find the commit in which a variant became wrong or slower."""

    variant: Variant
    good: Annotated[
        str, Argument(metavar="GOOD", help="Default: commit of the last correct evidence.")
    ] = ""
    bad: Annotated[str, Argument(metavar="BAD", help="A commit in which it is wrong or slow.")] = (
        "HEAD"
    )
    what: Annotated[
        str, Option("--what", help="wrong, slow, or either (wrong first).", metavar="WHAT")
    ] = "either"
    arch: Arch = "sm_90a"
    shape: ShapeName = None
    json: Json = False


@dataclass(frozen=True)
class ShipOptions(OfStudy):
    """Write a kept variant as an installable package."""

    variant: Annotated[str, Argument(metavar="VARIANT", help="A kept step.")]
    name: Annotated[str, Option("--as", help="Name of the package.", metavar="NAME")]
    to: Annotated[
        Path | None,
        Option("--to", help="Folder to write the package to; default: ./NAME.", metavar="DIR"),
    ] = None
    arch: Annotated[
        list[str] | None, Option("--arch", help="GPU architecture of the cubins; repeatable.")
    ] = None
    gpu: GpuName = None
    json: Json = False


@dataclass(frozen=True)
class StatusOptions(Printed):
    """Show GPU time and cost so far, and what the budget leaves.

    By verb, study and GPU.
    """

    project: Project = None


@dataclass(frozen=True)
class McpOptions:
    """Serve six tools for coding agents over stdio (MCP).

    They are try, new, step, diff, advise and show, with the answers of --brief.
    """
