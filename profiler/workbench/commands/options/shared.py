"""What several verbs have in common: where to look, and how to print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer


def completed(kind: str) -> Callable[[typer.Context, str], list[str]]:
    """What the shell may offer; see ``commands.completion``."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        from workbench.commands.completion import names

        return names(kind, context.params, incomplete)

    return complete


variant_names = completed("variant")
study_names = completed("study")
shape_names = completed("shape")

Project = Annotated[
    Path | None, typer.Option("--project", help="Top folder of the workspace.", metavar="DIR")
]
StudyName = Annotated[
    str | None,
    typer.Option("--study", help="Study; default in workbench.toml.", autocompletion=study_names),
]
Shapes = Annotated[
    str | None,
    typer.Option(
        "--shape",
        help="Shape, or a range: 'S=512..4096*2', 'NAME,S=512|1024'.",
        autocompletion=shape_names,
    ),
]
Arch = Annotated[str, typer.Option("--arch", help="GPU architecture to compile for.")]
ShapeName = Annotated[
    str | None,
    typer.Option("--shape", help="Shape; default in study.py.", autocompletion=shape_names),
]
GpuName = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        help="Evidence of this GPU, where there is of several.",
        metavar="NAME",
        autocompletion=completed("gpu"),
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print the table as CSV, numbers unrounded.")]
Wide = Annotated[bool, typer.Option("--wide", help="All columns and rows, however wide.")]
Markdown = Annotated[
    bool, typer.Option("--markdown", help="Print Markdown, as where the output is piped.")
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Measure again what is already on record.")]
On = Annotated[
    str | None,
    typer.Option("--on", help="Measure at this place of workbench.toml.", metavar="NAME"),
]
Kernel = Annotated[
    str | None, typer.Option("--kernel", help="Of a report: kernels of this name.", metavar="NAME")
]
Launch = Annotated[
    int | None, typer.Option("--launch", help="Of a report: this launch, from 0.", metavar="N")
]
Variants = Annotated[
    list[str] | None, typer.Argument(metavar="[VARIANT]...", autocompletion=variant_names)
]
