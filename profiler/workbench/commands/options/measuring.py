"""Of the verbs that build, check, time and profile."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from workbench.commands.options.shared import (
    Arch,
    Csv,
    Fresh,
    Measured,
    OfStudy,
    On,
    Printed,
    Project,
    ShapeName,
    Shapes,
    Variants,
    variant_names,
)


@dataclass(frozen=True)
class BuildOptions(Printed, OfStudy):
    """Compile without a GPU: registers, shared memory, spills."""

    variants: Variants = None
    arch: Arch = "sm_90a"


@dataclass(frozen=True)
class CheckOptions(Printed, Measured):
    """Compare variants with the float64 reference."""

    variants: Variants = None
    shape: Shapes = None
    all_shapes: Annotated[
        bool,
        typer.Option("--all-shapes", help="At every shape of the study, and not the usual ones."),
    ] = False


@dataclass(frozen=True)
class CalibrateOptions(Printed, Measured):
    """Measure the ceilings that this GPU really reaches."""


@dataclass(frozen=True)
class ProfileOptions(Printed, Measured):
    """Build, check, time and profile: where does the time go?"""

    variants: Annotated[
        list[str], typer.Argument(metavar="VARIANT...", autocompletion=variant_names)
    ]
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
    on: On = None


@dataclass(frozen=True)
class AblateOptions(Printed, Measured):
    """Measure, judge and report the ladder up to the named fixes.

    What is on record and current is not profiled again.
    """

    fixes: Annotated[
        list[str] | None, typer.Argument(metavar="[FIX]...", autocompletion=variant_names)
    ] = None
    shape: Shapes = None
    all_shapes: Annotated[
        bool, typer.Option("--all-shapes", help="One table a shape, and one of all shapes.")
    ] = False
    leave_one_out: Annotated[
        bool,
        typer.Option("--leave-one-out", help="Of one variant: what each switch is worth in it."),
    ] = False
    fresh: Fresh = False
    csv: Csv = False


@dataclass(frozen=True)
class SweepOptions(Printed, Measured):
    """Time all values of parameters, or a range of shapes.

    A variant at all combinations of its parameters, or variants and references over the size.
    """

    variants: Annotated[
        list[str],
        typer.Argument(metavar="VARIANT[a=1|2,b=4..16*2]...", autocompletion=variant_names),
    ]
    build_only: Annotated[
        bool,
        typer.Option("--build-only", help="What the compiler makes of each, without a GPU."),
    ] = False
    arch: Arch = "sm_90a"
    shape: Shapes = None
    fresh: Fresh = False
    csv: Csv = False


@dataclass(frozen=True)
class WatchOptions(Measured):
    """Build, check and time a variant on every save.

    Without a GPU it is only built. Ctrl-C ends it.
    """

    variant: Annotated[str, typer.Argument(metavar="VARIANT", autocompletion=variant_names)]
    arch: Annotated[str, typer.Option("--arch", help="To compile for where there is no GPU.")] = (
        "sm_90a"
    )
    shape: ShapeName = None
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a save.")] = False
