"""The options of every verb, each typed once: what it is called, what it means, its default.

A verb's fields are its arguments and options, its docstring is what ``--help`` says of it. Nothing
heavy is imported here: this is read for every ``workbench --help``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


def _completed(kind: str) -> Callable[[typer.Context, str], list[str]]:
    """What the shell may offer; see ``commands.completion``."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        from workbench.commands.completion import names

        return names(kind, context.params, incomplete)

    return complete


_variant, _study, _shape = _completed("variant"), _completed("study"), _completed("shape")

Project = Annotated[
    Path | None, typer.Option("--project", help="Top folder of the workspace.", metavar="DIR")
]
StudyName = Annotated[
    str | None,
    typer.Option("--study", help="Study; default in workbench.toml.", autocompletion=_study),
]
Shapes = Annotated[
    str | None,
    typer.Option(
        "--shape",
        help="Shape, or a range: 'S=512..4096*2', 'NAME,S=512|1024'.",
        autocompletion=_shape,
    ),
]
Arch = Annotated[str, typer.Option("--arch", help="GPU architecture to compile for.")]
ShapeName = Annotated[
    str | None, typer.Option("--shape", help="Shape; default in study.py.", autocompletion=_shape)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Wide = Annotated[bool, typer.Option("--wide", help="All columns and rows, however wide.")]
Markdown = Annotated[
    bool, typer.Option("--markdown", help="Print Markdown, as where the output is piped.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Measure again what is already on record.")]
Kernel = Annotated[
    str | None, typer.Option("--kernel", help="Of a report: kernels of this name.", metavar="NAME")
]
Launch = Annotated[
    int | None, typer.Option("--launch", help="Of a report: this launch, from 0.", metavar="N")
]
Variants = Annotated[
    list[str] | None, typer.Argument(metavar="[VARIANT]...", autocompletion=_variant)
]


@dataclass(frozen=True)
class DoctorOptions:
    """Check this machine: GPU, driver, ncu, permissions, compiler, packages, disk."""

    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True)
class InitOptions:
    """Make a workspace that runs as it is: a study, a baseline, a reference, a fix to fill in."""

    folder: Annotated[Path, typer.Argument(metavar="[DIR]")] = Path()
    template: Annotated[
        str, typer.Option("--template", help="cuda, triton or torch.", metavar="NAME")
    ] = "cuda"
    json: Json = False


@dataclass(frozen=True)
class NewOptions:
    """Copy a variant, and add it to the ladder as a step with its change and its prediction."""

    name: Annotated[str, typer.Argument(metavar="NAME")]
    parent: Annotated[
        str,
        typer.Option("--from", help="Step to copy.", metavar="VARIANT", autocompletion=_variant),
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
    project: Project = None
    study: StudyName = None
    json: Json = False


@dataclass(frozen=True)
class ListOptions:
    """Studies, variants and steps, and which have evidence that is current."""

    project: Project = None
    study: StudyName = None
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True)
class BuildOptions:
    """Compile without a GPU: registers, shared memory, stack, spills and warnings."""

    variants: Variants = None
    arch: Arch = "sm_90a"
    project: Project = None
    study: StudyName = None
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True)
class CheckOptions:
    """Compare variants with the float64 reference, for every shape."""

    variants: Variants = None
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            help="A commit to check them at, too: the last good one is named. May be repeated.",
            metavar="REV",
        ),
    ] = None
    project: Project = None
    study: StudyName = None
    shape: Shapes = None
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True)
class CalibrateOptions:
    """Measure what this GPU really reaches: ceilings for the rooflines."""

    project: Project = None
    study: StudyName = None
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True)
class ProfileOptions:
    """Build, check, time and profile variants; show where the time goes."""

    variants: Annotated[list[str], typer.Argument(metavar="VARIANT...", autocompletion=_variant)]
    project: Project = None
    study: StudyName = None
    shape: Shapes = None
    fresh: Fresh = False
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True)
class TryOptions:
    """Check, time and profile a file that you already have: no workspace, no study.

    A Python file with a function and inputs(), a KernelBench problem, a GPU MODE task folder, a
    FlashInfer-Bench definition, a function for nsight-python, or a .cu file with --launch.
    """

    source: Annotated[str, typer.Argument(metavar="FILE[:FUNCTION]")]
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", help="x=randn(4096,8192), n=1024; may be repeated.", metavar="X=.."
        ),
    ] = None
    outputs: Annotated[
        list[str] | None,
        typer.Option("--output", help="Of a .cu file: out=empty_like(x).", metavar="X=.."),
    ] = None
    launch: Annotated[
        str | None,
        typer.Option("--launch", help="Of a .cu file: 'name[grid, block](x, out, n)'."),
    ] = None
    versus: Annotated[
        str | None,
        typer.Option("--vs", help="Compare with torch.softmax, FILE:FUNCTION or compile."),
    ] = None
    solution: Annotated[
        Path | None, typer.Option("--solution", help="Of a problem: the solution.", metavar="FILE")
    ] = None
    workload: Annotated[
        Path | None,
        typer.Option("--workload", help="Of a definition: its workloads.", metavar="FILE"),
    ] = None
    shape: ShapeName = None
    keep: Annotated[
        str | None, typer.Option("--keep", help="Make it a study of the workspace.", metavar="NAME")
    ] = None
    project: Project = None
    no_profile: Annotated[bool, typer.Option("--no-profile", help="Only check and time.")] = False
    quick: Annotated[
        bool, typer.Option("--quick", help="Three timing sessions: a wider interval, sooner.")
    ] = False
    fresh: Fresh = False
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True)
class AblateOptions:
    """Measure what is missing of the ladder up to the named fixes; print the table; report."""

    fixes: Annotated[
        list[str] | None, typer.Argument(metavar="[FIX]...", autocompletion=_variant)
    ] = None
    project: Project = None
    study: StudyName = None
    shape: Shapes = None
    all_shapes: Annotated[
        bool, typer.Option("--all-shapes", help="One table a shape, and one of all shapes.")
    ] = False
    leave_one_out: Annotated[
        bool,
        typer.Option("--leave-one-out", help="Of one variant: what each switch is worth in it."),
    ] = False
    fresh: Fresh = False
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True)
class SweepOptions:
    """Time a variant at all combinations of its parameters, or variants over a range of shapes."""

    variants: Annotated[
        list[str],
        typer.Argument(metavar="VARIANT[a=1|2,b=4..16*2]...", autocompletion=_variant),
    ]
    build_only: Annotated[
        bool,
        typer.Option("--build-only", help="What the compiler makes of each, without a GPU."),
    ] = False
    arch: Arch = "sm_90a"
    project: Project = None
    study: StudyName = None
    shape: Shapes = None
    fresh: Fresh = False
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True)
class ReportOptions:
    """Write the report again from the evidence on record."""

    fixes: Annotated[
        list[str] | None, typer.Argument(metavar="[FIX]...", autocompletion=_variant)
    ] = None
    project: Project = None
    study: StudyName = None
    shape: ShapeName = None
    html: Annotated[bool, typer.Option("--html", help="Write report.html too.")] = False
    open_: Annotated[bool, typer.Option("--open", help="Write report.html and open it.")] = False


@dataclass(frozen=True)
class ShowOptions:
    """Everything known of one variant, or of the launches in anyone's .ncu-rep file."""

    name: Annotated[
        str, typer.Argument(metavar="VARIANT|REPORT", autocompletion=_completed("variant or file"))
    ]
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric", help="Any ncu metric in the capture.", autocompletion=_completed("metric")
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
    project: Project = None
    study: StudyName = None
    shape: ShapeName = None
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True)
class DiffOptions:
    """Two variants, or two .ncu-rep files: what moved, and with --source what the lines cost."""

    before: Annotated[
        str, typer.Argument(metavar="A", autocompletion=_completed("variant or file"))
    ]
    after: Annotated[str, typer.Argument(metavar="B", autocompletion=_completed("variant or file"))]
    source: Annotated[
        bool, typer.Option("--source", help="The diff with what its lines cost, costliest first.")
    ] = False
    sass: Annotated[
        bool, typer.Option("--sass", help="The mix of instructions, and the hot blocks aligned.")
    ] = False
    kernel: Kernel = None
    launch: Annotated[
        str | None,
        typer.Option("--launch", help="Of reports: this launch of A and of B.", metavar="A:B"),
    ] = None
    project: Project = None
    study: StudyName = None
    shape: ShapeName = None
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True)
class AdviseOptions:
    """What limits a variant now, and what kind of change to try next: three at most."""

    name: Annotated[str, typer.Argument(metavar="VARIANT", autocompletion=_variant)]
    project: Project = None
    study: StudyName = None
    shape: ShapeName = None
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True)
class LessonsOptions:
    """What each kind of change brought, at every step of every ladder that made it."""

    word: Annotated[
        str | None,
        typer.Argument(
            metavar="WORD",
            help="A technique, step, figure, or a word of their texts.",
            autocompletion=_completed("lesson"),
        ),
    ] = None
    project: Project = None
    study: Annotated[
        str | None,
        typer.Option("--study", help="Only this study.", autocompletion=_study),
    ] = None
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True)
class WatchOptions:
    """Build, check and time a variant on every save; without a GPU, build. Ctrl-C ends it."""

    variant: Annotated[str, typer.Argument(metavar="VARIANT", autocompletion=_variant)]
    arch: Annotated[str, typer.Option("--arch", help="To compile for where there is no GPU.")] = (
        "sm_90a"
    )
    project: Project = None
    study: StudyName = None
    shape: ShapeName = None
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a save.")] = False


@dataclass(frozen=True)
class OpenOptions:
    """Open a variant's capture, or anyone's report, in Nsight Compute's own window."""

    name: Annotated[
        str, typer.Argument(metavar="VARIANT|REPORT", autocompletion=_completed("variant or file"))
    ]
    project: Project = None
    study: StudyName = None
    shape: ShapeName = None


@dataclass(frozen=True)
class ExportOptions:
    """A table of the evidence for other programs, numbers unrounded: as CSV, JSON or Parquet."""

    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE",
            help="ladder, figures, metrics, lines, sass, rules, timings, checks or builds",
            autocompletion=_completed("table"),
        ),
    ]
    variants: Variants = None
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Default is stdout.", metavar="FILE")
    ] = None
    csv: Annotated[bool, typer.Option("--csv", help="The default on stdout.")] = False
    json: Json = False
    parquet: Annotated[bool, typer.Option("--parquet", help="Needs pyarrow.")] = False
    all_shapes: Annotated[bool, typer.Option("--all-shapes", help="Every shape with evidence.")] = (
        False
    )
    project: Project = None
    study: StudyName = None
    shape: ShapeName = None


@dataclass(frozen=True)
class AdoptOptions:
    """Take a capture made elsewhere into a study, as evidence without timing."""

    report: Annotated[Path, typer.Argument(metavar="REPORT")]
    name: Annotated[
        str,
        typer.Option("--as", help="Variant or reference of the study.", autocompletion=_variant),
    ]
    kernel: Annotated[
        list[str] | None,
        typer.Option("--kernel", help="Kernel of the variant; may be repeated."),
    ] = None
    launch: Annotated[
        list[int] | None,
        typer.Option("--launch", help="Launch of the variant, from 0; may be repeated."),
    ] = None
    project: Project = None
    study: StudyName = None
    shape: ShapeName = None
    json: Json = False


@dataclass(frozen=True)
class GateOptions:
    """Compare two commits of this repository: same, faster, slower, or cannot tell (exit 5)."""

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
        typer.Option("--study", help="Only this one; default all.", autocompletion=_study),
    ] = None
    shape: ShapeName = None
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True)
class BisectOptions:
    """Find the commit in which a variant became wrong, or slower."""

    variant: Annotated[str, typer.Argument(metavar="VARIANT", autocompletion=_variant)]
    good: Annotated[str, typer.Argument(metavar="GOOD")]
    bad: Annotated[str, typer.Argument(metavar="BAD")] = "HEAD"
    what: Annotated[
        str, typer.Option("--what", help="wrong, slow, or either: wrong first.", metavar="WHAT")
    ] = "either"
    arch: Annotated[str, typer.Option("--arch", help="GPU architecture to compile for.")] = "sm_90a"
    project: Project = None
    study: StudyName = None
    shape: ShapeName = None
    json: Json = False


@dataclass(frozen=True)
class KeepOptions:
    """Mark a variant as it is as a known good version; list tells what has departed from it."""

    variant: Annotated[str, typer.Argument(metavar="VARIANT", autocompletion=_variant)]
    note: Annotated[str, typer.Option("--note", help="Why, in a line.", metavar="TEXT")] = ""
    project: Project = None
    study: StudyName = None
    json: Json = False


@dataclass(frozen=True)
class StatusOptions:
    """What measuring has cost so far, by verb, study and GPU, and what the budget leaves."""

    project: Project = None
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False
