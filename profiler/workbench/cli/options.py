"""The options of every verb: name, type, default and help.

A class ``NameOptions`` makes the verb ``name``, in the order of the help, run by the module of
that name in ``workbench.cli``. Its fields are the arguments and options, and its docstring is the
``--help``. Import nothing heavy here: every ``workbench --help`` reads this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from typer import Argument, Option

from workbench.errors import UsageError

if TYPE_CHECKING:
    from workbench.app.target import Target

Project = Annotated[
    Path | None,
    Option("--project", help="Workspace folder; default: here or a folder above.", metavar="DIR"),
]
Arch = Annotated[str, Option("--arch", help="GPU architecture to compile for.", metavar="ARCH")]
ShapeName = Annotated[
    str | None, Option("--shape", help="Shape; default: from study.py.", metavar="SHAPE")
]
GpuName = Annotated[
    str | None,
    Option("--gpu", help="GPU of the evidence; default: this one, or workspace's.", metavar="NAME"),
]
Json = Annotated[bool, Option("--json", help="Print one JSON object.")]
Csv = Annotated[bool, Option("--csv", help="Print the table as CSV with unrounded numbers.")]
NoProfile = Annotated[bool, Option("--no-profile", help="Check and time only; do not run ncu.")]
Fresh = Annotated[bool, Option("--fresh", help="Measure again even if the evidence is current.")]
On = Annotated[
    str | None, Option("--on", help="Measure on this SSH host or Dask cluster.", metavar="TARGET")
]
Kernel = Annotated[
    str | None, Option("--kernel", help="For .ncu-rep files: kernels of this name.", metavar="NAME")
]
Fixes = Annotated[list[str] | None, Argument(metavar="FIX", help="Last steps; default: all.")]
Variants = Annotated[list[str] | None, Argument(metavar="VARIANT", help="Default: all.")]


OF_TYPER = "typer"  # the key of a field's metadata


def option(
    name: str, help: str, metavar: str | None = None, *, default: Any = None, **limits: Any
) -> Any:
    """A field that is an option of one verb; ``default=MISSING`` for one that it needs."""
    shown = Option(name, help=help, metavar=metavar, **limits)
    return field(default=default, metadata={OF_TYPER: shown})


def flag(name: str, help: str) -> Any:
    return option(name, help, default=False)


def argument(metavar: str, help: str, *, default: Any = MISSING, **more: Any) -> Any:
    return field(default=default, metadata={OF_TYPER: Argument(metavar=metavar, help=help, **more)})


@dataclass(frozen=True, kw_only=True)
class Printed:
    """Options for the printed result."""

    markdown: bool = flag("--markdown", "Print Markdown with all columns, as when piped.")
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Answered:
    """Options for a result that programs read."""

    json: Json = False
    brief: bool = flag("--brief", "Print JSON of at most 4 KB, for programs.")


@dataclass(frozen=True, kw_only=True)
class Briefed(Answered, Printed):
    """Options of the verbs that a coding agent uses."""


@dataclass(frozen=True, kw_only=True)
class Long(Briefed):
    """Options of verbs whose JSON is long."""

    full: bool = flag("--full", "With --json: all of it, not 100 KB at most.")


@dataclass(frozen=True, kw_only=True)
class OfStudy:
    project: Project = None
    study: str | None = option("--study", "Study; default: from workbench.toml.", "STUDY")


@dataclass(frozen=True, kw_only=True)
class Measured(OfStudy):
    """Options of verbs that measure, locally or remotely."""

    on: On = None


@dataclass(frozen=True, kw_only=True)
class Recorded(OfStudy):
    """Options of verbs that read evidence of one shape on one GPU."""

    shape: ShapeName = None
    gpu: GpuName = None

    def target(self, names: Sequence[str] = ()) -> Target:
        """Raises as ``find_recorded``, and UsageError for what chooses a launch of a report."""
        for name in ("kernel", "launch"):
            if getattr(self, name, None) is not None:
                hint = "a variant's kernels are taken together"
                raise UsageError(f"--{name} is for reports", hint=hint)
        from workbench.app.target import find_recorded
        from workbench.cli.streams import executor

        place = (self.project, self.study, self.shape)
        return find_recorded(executor(), *place, gpu=self.gpu, names=names)

    def identified(self, *fields: str) -> Self:
        """Take evidence ids, STUDY/SHAPE/VARIANT@DATE, for what they stand for."""
        ids = {
            name: getattr(self, name).split("/")
            for name in fields
            if getattr(self, name).count("/") == 2 and not Path(getattr(self, name)).exists()
        }
        places = {(study, shape) for study, shape, _ in ids.values()}
        if len(places) > 1:
            raise UsageError(
                "the evidence ids are of different studies or shapes",
                hint="name two of one study and shape",
            )
        names = {name: parts[2].partition("@")[0] for name, parts in ids.items()}
        for study, shape in places:
            return replace(self, study=study, shape=shape, **names)
        return self


@dataclass(frozen=True)
class DoctorOptions(Briefed):
    """Check what works on this machine, and how to fix the rest.

    Example: workbench doctor
    """


@dataclass(frozen=True)
class TryOptions(Briefed):
    """Check, time and profile a file that you already have.

    It needs no workspace. FILE is a Python file with a function, a KernelBench problem, a GPU MODE
    task folder, a FlashInfer-Bench definition, a function for nsight-python, or a .cu file with
    --launch.

    Example: workbench try tests/problems/examples/row_softmax.py --vs torch.softmax
    """

    source: str = argument("FILE[:FUNCTION]", "File, and its function, or a cell's number.")
    arguments: list[str] | None = argument(
        "[-- ARGUMENTS]", "What a script reads of sys.argv while it is imported.", default=None
    )
    inputs: list[str] | None = option(
        "--input", "Argument: x=randn(4096,8192), n=8; repeatable.", "X=.."
    )
    outputs: list[str] | None = option(
        "--output", "For a .cu file: out=empty_like(x); repeatable.", "X=.."
    )
    launch: str | None = option(
        "--launch", "For a .cu file: 'name[grid, block](x, out, n)'.", "CALL"
    )
    versus: str | None = option(
        "--vs", "Compare with torch.softmax, FILE:FUNCTION or compile.", "CALL"
    )
    solution: Path | None = option("--solution", "Solution file of a problem.", "FILE")
    workload: Path | None = option("--workload", "Workload file of a definition.", "FILE")
    range: str | None = option("--range", "For nsight-python: the range to try.", "NAME")
    shape: ShapeName = None
    keep: str | None = option("--keep", "Add it to your workspace as a study.", "NAME")
    project: Project = None
    no_profile: NoProfile = False
    quick: bool = flag("--quick", "Three timing sessions: faster, with a wider interval.")
    fresh: Fresh = False
    on: On = None


@dataclass(frozen=True)
class InitOptions(Answered):
    """Create a workspace that runs unchanged.

    It contains a study, a baseline, a reference and a first fix to edit.

    Example: workbench init rows --template cuda
    """

    folder: Path = argument("DIR", "Folder of the workspace.", default=Path())
    template: str = option("--template", "Template: cuda, triton or torch.", "NAME", default="cuda")
    agents: bool = flag("--agents", "Add AGENTS.md and a skill; also to a workspace that exists.")


@dataclass(frozen=True)
class NewOptions(Answered, OfStudy):
    """Copy a variant as a new step of the ladder.

    Write its key change and its prediction before you measure.

    Example: workbench new fix2 --from fix1 --change 'wider loads'
    """

    name: str = argument("NAME", "Name of the new step.")
    parent: str = option("--from", "Step to copy.", "VARIANT", default=MISSING)
    change: str | None = option("--change", "The one change, in one line.", "TEXT")
    predict: list[str] | None = option(
        "--predict", "FIGURE=LOW..HIGH, as a factor of the parent; repeatable.", "PREDICTION"
    )


@dataclass(frozen=True)
class ListOptions(Long, OfStudy):
    """List studies and variants, and which evidence is current.

    Example: workbench list --study attention
    """


@dataclass(frozen=True)
class BuildOptions(Briefed, OfStudy):
    """Compile without a GPU: registers, shared memory, spills.

    Example: workbench build fix1 fix2
    """

    variants: Variants = None
    arch: Arch = "sm_90a"


@dataclass(frozen=True)
class CheckOptions(Briefed, Measured):
    """Compare variants with the float64 reference.

    Example: workbench check fix30
    """

    variants: Variants = None
    shape: str | None = option(
        "--shape", "Shape or range: 'S=512..4096*2', 'NAME,S=512|1024'.", "SHAPE"
    )
    all_shapes: bool = flag("--all-shapes", "Check at every shape of the study.")


@dataclass(frozen=True)
class ProfileOptions(Briefed, Measured):
    """Profile variants, or any program: where does the time go?

    A program stands after --. It runs twice: first its kernels are listed by time, then those with
    the most time are profiled with all counters. The report is kept as PROGRAM.ncu-rep.

    Example: workbench profile -- python train.py --steps 3
    """

    variants: list[str] = argument("VARIANT | -- PROGRAM", "Variants, or a program.")
    shape: ShapeName = None
    fresh: Fresh = False
    timeline: bool = flag("--timeline", "Record when the warps ran, in a run of its own.")
    csv: Csv = False
    kernel: str | None = option("--kernel", "Of a program: only kernels of this name.", "NAME")
    launch: int | None = option("--launch", "Of a program: only this launch, from 0.", "N", min=0)
    skip: int = option("--skip", "Of a program: leave out the first N launches.", "N", default=0)
    to: Path | None = option("--to", "Of a program: write the report here.", "FILE.ncu-rep")
    keep: str | None = option("--keep", "Time a program too: a variant of this study.", "NAME")
    build: str | None = option("--build", "With --keep: the variant is this command.", "COMMAND")
    check: str | None = option("--check", "With --keep: fails for wrong results.", "COMMAND")


@dataclass(frozen=True)
class AblateOptions(Long, Measured):
    """Measure, judge and report the ladder up to the named fixes.

    Current evidence is not profiled again, nor checked again at other shapes.

    Example: workbench ablate fix1 fix2
    """

    fixes: Fixes = None
    shape: ShapeName = None
    all_shapes: bool = flag("--all-shapes", "Print a table for each shape.")
    no_profile: NoProfile = False
    quick: bool = flag("--quick", "With --brief: stop at the first verdict, of 3 sessions.")
    fresh: Fresh = False
    all_: bool = flag("--all", "Print all steps and warnings.")
    csv: Csv = False


@dataclass(frozen=True)
class SweepOptions(Briefed, Measured):
    """Time all combinations of the values of parameters.

    Example: workbench sweep 'fix2[warps=4|12]'
    """

    variants: list[str] = argument("VARIANT[a=1|2,b=4..16*2]", "Variants, with values.")
    shape: ShapeName = None
    fresh: Fresh = False
    csv: Csv = False


@dataclass(frozen=True)
class ReportOptions(Recorded):
    """Rebuild the report from recorded evidence.

    Example: workbench report --html
    """

    fixes: Fixes = None
    html: bool = flag("--html", "Also write report.html.")


@dataclass(frozen=True)
class ShowOptions(Briefed, Recorded):
    """Print the profile of a variant or of any .ncu-rep file.

    Example: workbench show fix7 --source --top 5
    """

    name: str = argument("VARIANT|REPORT|ID", "Variant, .ncu-rep file or evidence id.")
    metric: str | None = option("--metric", "Print any ncu metric of the capture.", "METRIC")
    source: bool = flag("--source", "Print the source with the stalls of each line.")
    top: int | None = option("--top", "With --source: only the N hottest lines.", "N", min=1)
    sass: bool = flag("--sass", "With --source: also the SASS of each line.")
    kernel: Kernel = None
    launch: int | None = option("--launch", "For .ncu-rep files: launch number, from 0.", "N")
    csv: Csv = False


@dataclass(frozen=True)
class DiffOptions(Briefed, Recorded):
    """Explain the time difference of two variants or captures.

    With --source, print the cost of each line; with --sass, what became of the machine code.

    Example: workbench diff fix6 fix7 --source
    """

    before: str = argument("A", "Variant, evidence id, .ncu-rep or .cubin file before.")
    after: str = argument("B", "Variant, evidence id, .ncu-rep or .cubin file after.")
    source: bool = flag("--source", "Print the source diff with the cost of each line.")
    sass: bool = flag("--sass", "Print the machine code diff with stalls.")
    kernel: Kernel = None
    launch: str | None = option("--launch", "For .ncu-rep files: the launch in A and in B.", "A:B")


@dataclass(frozen=True)
class AdviseOptions(Briefed, Recorded):
    """Print what limits a variant or kernel, and what to try.

    Example: workbench advise fix7
    """

    name: str = argument("VARIANT|REPORT|ID", "Variant, .ncu-rep file or evidence id.")
    kernel: Kernel = None


@dataclass(frozen=True)
class GateOptions(Briefed):
    """Compare two commits or environments: same, faster or slower?

    Exit codes: 0 same or faster, 1 slower or wrong, 5 cannot tell.

    Example: workbench gate HEAD~1 --tier 0
    """

    base: str | None = argument("BASE", "Commit to compare with.", default=None)
    head: str = argument("HEAD", "Commit to test.", default="HEAD")
    env: list[str] | None = option(
        "--env", "In place of commits: old=PYTHON, and again new=PYTHON.", "NAME=PYTHON"
    )
    tier: int | None = option(
        "--tier", "Highest tier: 0 compiled code, 1 counters, 2 times.", "TIER", min=0, max=2
    )
    arch: Arch = "sm_90a"
    cache: Path | None = option(
        "--cache", "Keep compiled kernels in this folder for the next run.", "DIR"
    )
    project: Project = None
    study: str | None = option("--study", "Only this study; default: all.", "STUDY")
    variant: str | None = option("--variant", "Only this variant of the study.", "VARIANT")
    shape: ShapeName = None
    on: On = None


@dataclass(frozen=True)
class BisectOptions(OfStudy):
    """Find the commit that broke or slowed a variant (git bisect).

    Example: workbench bisect fix2 HEAD~1
    """

    variant: str = argument("VARIANT", "Variant of the study.")
    good: str = argument("GOOD", "A commit to compare with.")
    bad: str = argument("BAD", "A commit in which it is slower or broken.", default="HEAD")
    on: On = None


@dataclass(frozen=True)
class ShipOptions(OfStudy):
    """Write a kept variant as a project of the `kernels` package.

    Example: workbench ship chosen --study softmax --as my-softmax
    """

    variant: str = argument("VARIANT", "A kept step.")
    name: str = option("--as", "Name of the package.", "NAME", default=MISSING)
    to: Path | None = option("--to", "Folder to write the package to; default: ./NAME.", "DIR")
    definition: str | None = option(
        "--definition", "Write solution.json for FlashInfer-Bench, too.", "NAME"
    )
    gpu: GpuName = None
    json: Json = False


@dataclass(frozen=True)
class WeighOptions(Printed, Recorded):
    """Show the operators of a step in a model's trace.

    With a variant, also the most that it can save of a step.

    Example: workbench weigh trace.json.gz fused --study softmax --operator aten::softmax
    """

    trace: Path = argument("TRACE", "Chrome trace: .json or .json.gz.")
    variant: str | None = argument("VARIANT", "A variant with recorded times.", default=None)
    operator: list[str] | None = option(
        "--operator", "Operator that the variant replaces; repeatable.", "NAME"
    )


@dataclass(frozen=True)
class SchemaOptions:
    """Print the JSON Schema of a verb's answer.

    Example: workbench schema ablate
    """

    verb: str = argument("VERB", "Verb that has --brief.")
    of_json: bool = flag("--json", "The schema of --json.")


@dataclass(frozen=True)
class McpOptions:
    """Serve tools for coding agents over stdio (MCP).

    They are the verbs of the loop, with the answers of --brief.

    Example: workbench mcp
    """
