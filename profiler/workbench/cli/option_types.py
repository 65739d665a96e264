"""What several verbs have in common: where to look, and how to print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

if TYPE_CHECKING:
    from workbench.app.target import Target

Project = Annotated[
    Path | None, Option("--project", help="Top folder of the workspace.", metavar="DIR")
]
StudyName = Annotated[str | None, Option("--study", help="Study; default in workbench.toml.")]
Shapes = Annotated[
    str | None,
    Option("--shape", help="Shape, or a range: 'S=512..4096*2', 'NAME,S=512|1024'."),
]
Arch = Annotated[str, Option("--arch", help="GPU architecture to compile for.")]
ShapeName = Annotated[str | None, Option("--shape", help="Shape; default in study.py.")]
GpuName = Annotated[
    str | None,
    Option("--gpu", help="Evidence of this GPU, where there is of several.", metavar="NAME"),
]
Json = Annotated[bool, Option("--json", help="Print one JSON object.")]
Csv = Annotated[bool, Option("--csv", help="Print the table as CSV, numbers unrounded.")]
Wide = Annotated[bool, Option("--wide", help="All columns and rows, however wide.")]
Markdown = Annotated[
    bool, Option("--markdown", help="Print Markdown, as where the output is piped.")
]
NoProfile = Annotated[bool, Option("--no-profile", help="Check and time only; ncu is left out.")]
Fresh = Annotated[bool, Option("--fresh", help="Measure again what is already on record.")]
On = Annotated[
    str | None, Option("--on", help="Measure on this SSH host or Dask cluster.", metavar="TARGET")
]
Kernel = Annotated[
    str | None, Option("--kernel", help="Of a report: kernels of this name.", metavar="NAME")
]
Launch = Annotated[
    int | None, Option("--launch", help="Of a report: this launch, from 0.", metavar="N")
]
Variant = Annotated[str, Argument(metavar="VARIANT")]
Fixes = Annotated[list[str] | None, Argument(metavar="[FIX]...")]
Variants = Annotated[list[str] | None, Argument(metavar="[VARIANT]...")]


@dataclass(frozen=True, kw_only=True)
class Printed:
    """How the result is printed."""

    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class OfStudy:
    project: Project = None
    study: StudyName = None


@dataclass(frozen=True, kw_only=True)
class MeasuredOptions(OfStudy):
    """Of verbs that measure, here or on a remote target."""

    on: On = None


@dataclass(frozen=True, kw_only=True)
class Recorded(OfStudy):
    """Of verbs that read evidence of one shape on one GPU."""

    shape: ShapeName = None
    gpu: GpuName = None

    def target(self, names: Sequence[str] = ()) -> Target:
        """Raises as ``find_recorded``."""
        from workbench.app.target import find_recorded
        from workbench.cli.streams import executor

        given = (self.project, self.study, self.shape)
        return find_recorded(executor(""), *given, gpu=self.gpu, names=names)
