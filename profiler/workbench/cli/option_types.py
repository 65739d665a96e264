"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

if TYPE_CHECKING:
    from workbench.app.target import Target

Project = Annotated[
    Path | None,
    Option("--project", help="Workspace folder; default: here or a folder above.", metavar="DIR"),
]
StudyName = Annotated[str | None, Option("--study", help="Study; default: from workbench.toml.")]
Shapes = Annotated[
    str | None, Option("--shape", help="Shape or range: 'S=512..4096*2', 'NAME,S=512|1024'.")
]
Arch = Annotated[str, Option("--arch", help="GPU architecture to compile for.")]
ShapeName = Annotated[str | None, Option("--shape", help="Shape; default: from study.py.")]
GpuName = Annotated[
    str | None,
    Option(
        "--gpu", help="GPU of the evidence; default: this machine's, or newest.", metavar="NAME"
    ),
]
Json = Annotated[bool, Option("--json", help="Print one JSON object.")]
Brief = Annotated[bool, Option("--brief", help="Print JSON of at most 4 KB, for programs.")]
Csv = Annotated[bool, Option("--csv", help="Print the table as CSV with unrounded numbers.")]
Wide = Annotated[bool, Option("--wide", help="Print all columns and rows.")]
Markdown = Annotated[bool, Option("--markdown", help="Print Markdown, as when piped.")]
NoProfile = Annotated[bool, Option("--no-profile", help="Check and time only; do not run ncu.")]
Fresh = Annotated[bool, Option("--fresh", help="Measure again even if the evidence is current.")]
On = Annotated[
    str | None, Option("--on", help="Measure on this SSH host or Dask cluster.", metavar="TARGET")
]
Kernel = Annotated[
    str | None, Option("--kernel", help="For .ncu-rep files: kernels of this name.", metavar="NAME")
]
Launch = Annotated[
    int | None, Option("--launch", help="For .ncu-rep files: launch number, from 0.", metavar="N")
]
Variant = Annotated[str, Argument(metavar="VARIANT", help="Variant of the study.")]
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


def argument(metavar: str, help: str, *, default: Any = MISSING) -> Any:
    return field(default=default, metadata={OF_TYPER: Argument(metavar=metavar, help=help)})


@dataclass(frozen=True, kw_only=True)
class Printed:
    """Options for the printed result."""

    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True, kw_only=True)
class Briefed(Printed):
    """Options of the verbs that a coding agent uses."""

    brief: Brief = False


@dataclass(frozen=True, kw_only=True)
class OfStudy:
    project: Project = None
    study: StudyName = None


@dataclass(frozen=True, kw_only=True)
class MeasuredOptions(OfStudy):
    """Options of verbs that measure, locally or remotely."""

    on: On = None


@dataclass(frozen=True, kw_only=True)
class Recorded(OfStudy):
    """Options of verbs that read evidence of one shape on one GPU."""

    shape: ShapeName = None
    gpu: GpuName = None

    def target(self, names: Sequence[str] = ()) -> Target:
        """Raises as ``find_recorded``."""
        from workbench.app.target import find_recorded
        from workbench.cli.streams import executor

        given = (self.project, self.study, self.shape)
        return find_recorded(executor(""), *given, gpu=self.gpu, names=names)
