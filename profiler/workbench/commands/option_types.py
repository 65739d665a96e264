"""What several verbs have in common: where to look, and how to print."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Option


def completed(kind: str) -> Callable[[Context, str], list[str]]:
    """What the shell may offer; see ``names``."""

    def complete(context: Context, incomplete: str) -> list[str]:
        return names(kind, context.params, incomplete)

    return complete


variant_names = completed("variant")
study_names = completed("study")
shape_names = completed("shape")

Project = Annotated[
    Path | None, Option("--project", help="Top folder of the workspace.", metavar="DIR")
]
StudyName = Annotated[
    str | None,
    Option("--study", help="Study; default in workbench.toml.", autocompletion=study_names),
]
Shapes = Annotated[
    str | None,
    Option(
        "--shape",
        help="Shape, or a range: 'S=512..4096*2', 'NAME,S=512|1024'.",
        autocompletion=shape_names,
    ),
]
Arch = Annotated[str, Option("--arch", help="GPU architecture to compile for.")]
ShapeName = Annotated[
    str | None, Option("--shape", help="Shape; default in study.py.", autocompletion=shape_names)
]
GpuName = Annotated[
    str | None,
    Option(
        "--gpu",
        help="Evidence of this GPU, where there is of several.",
        metavar="NAME",
        autocompletion=completed("gpu"),
    ),
]
Json = Annotated[bool, Option("--json", help="Print one JSON object.")]
Csv = Annotated[bool, Option("--csv", help="Print the table as CSV, numbers unrounded.")]
Wide = Annotated[bool, Option("--wide", help="All columns and rows, however wide.")]
Markdown = Annotated[
    bool, Option("--markdown", help="Print Markdown, as where the output is piped.")
]
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
Variant = Annotated[str, Argument(metavar="VARIANT", autocompletion=variant_names)]
Fixes = Annotated[list[str] | None, Argument(metavar="[FIX]...", autocompletion=variant_names)]
Variants = Annotated[
    list[str] | None, Argument(metavar="[VARIANT]...", autocompletion=variant_names)
]


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
class Measured(OfStudy):
    """Of verbs that measure, here or on a remote target."""

    on: On = None


@dataclass(frozen=True, kw_only=True)
class Recorded(OfStudy):
    """Of verbs that read evidence of one shape on one GPU."""

    shape: ShapeName = None
    gpu: GpuName = None


Parameters = Mapping[str, Any]


def names(kind: str, parameters: Parameters, incomplete: str) -> list[str]:
    """Those of a kind that begin with what is typed; none where they cannot be told."""
    with contextlib.suppress(Exception):
        return [name for name in KINDS[kind](parameters, incomplete) if name.startswith(incomplete)]
    return []


def _studies(parameters: Parameters, _: str) -> list[str]:
    from workbench.study.workspace import find_workspace

    return find_workspace(parameters.get("project")).studies()


def _variants(parameters: Parameters, _: str) -> list[str]:
    """From ``ablation.toml`` alone: the study's Python is not run."""
    from workbench.study.ladder import read_ladder
    from workbench.study.workspace import find_workspace

    workspace = find_workspace(parameters.get("project"))
    only = [*workspace.studies(), ""] if not workspace.config.study else [""]
    study = parameters.get("study") or workspace.config.study or only[0]
    folder = workspace.ablations / study
    return read_ladder(folder / "ablation.toml", study, workspace.kernels / study).names


def _shapes(parameters: Parameters, _: str) -> Iterable[str]:
    from workbench.study.workspace import find_workspace

    study = find_workspace(parameters.get("project")).study(parameters.get("study"))
    return (name for name, shape in study.shapes.items() if shape.profiled)


def _gpus(parameters: Parameters, _: str) -> Iterable[str]:
    from workbench.evidence.layout import evidence_folders
    from workbench.study.workspace import find_workspace

    workspace = find_workspace(parameters.get("project"))
    study = workspace.study(parameters.get("study"))
    return (folder.gpu for folder in evidence_folders(workspace.ablations, study.name))


def _metrics(_: Parameters, __: str) -> Iterable[str]:
    """The ncu metrics behind the figures: those that most are after, of thousands."""
    from workbench.ncu.catalog import catalog

    return dict.fromkeys(name for spec in catalog().values() for name in spec.names)


def _variants_or_files(parameters: Parameters, incomplete: str) -> list[str]:
    folder = Path(incomplete).parent if "/" in incomplete else Path()
    reports = [str(path) for path in folder.glob("*.ncu-rep*")]
    with contextlib.suppress(Exception):
        return [*_variants(parameters, incomplete), *sorted(reports)]
    return sorted(reports)


KINDS: Mapping[str, Callable[[Parameters, str], Iterable[str]]] = {
    "study": _studies,
    "variant": _variants,
    "variant or file": _variants_or_files,
    "shape": _shapes,
    "gpu": _gpus,
    "metric": _metrics,
}
