"""Of the verbs that tell what is on record."""

from dataclasses import dataclass
from typing import Annotated

import typer

from workbench.commands.options.shared import (
    Csv,
    GpuName,
    Json,
    Kernel,
    Launch,
    Markdown,
    Project,
    ShapeName,
    StudyName,
    Wide,
    completed,
    variant_names,
)


@dataclass(frozen=True)
class ReportOptions:
    """Write the report again from the evidence on record."""

    fixes: Annotated[
        list[str] | None, typer.Argument(metavar="[FIX]...", autocompletion=variant_names)
    ] = None
    project: Project = None
    study: StudyName = None
    shape: ShapeName = None
    gpu: GpuName = None
    html: Annotated[bool, typer.Option("--html", help="Write report.html too.")] = False
    open_: Annotated[bool, typer.Option("--open", help="Write report.html and open it.")] = False


@dataclass(frozen=True)
class ShowOptions:
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
    project: Project = None
    study: StudyName = None
    shape: ShapeName = None
    gpu: GpuName = None
    wide: Wide = False
    markdown: Markdown = False
    csv: Csv = False
    json: Json = False


@dataclass(frozen=True)
class DiffOptions:
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
    project: Project = None
    study: StudyName = None
    shape: ShapeName = None
    gpu: GpuName = None
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True)
class AdviseOptions:
    """What limits a variant, and what kind of change to try next."""

    name: Annotated[str, typer.Argument(metavar="VARIANT", autocompletion=variant_names)]
    project: Project = None
    study: StudyName = None
    shape: ShapeName = None
    gpu: GpuName = None
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False
