"""Of the verbs that look around and make things: machine, workspace, study, step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from workbench.commands.options.shared import (
    Json,
    Markdown,
    Project,
    StudyName,
    Wide,
    variant_names,
)


@dataclass(frozen=True)
class DoctorOptions:
    """What works on this machine, and what to do about the rest."""

    on: Annotated[
        str | None,
        typer.Option("--on", help="Check each worker of this place instead.", metavar="NAME"),
    ] = None
    project: Project = None
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True)
class SetupOptions:
    """Make the hosts of a place ready to measure, over SSH.

    They get an environment, the workbench as it is here, and the workspace's sources.
    """

    on: Annotated[str, typer.Option("--on", help="Place of workbench.toml.", metavar="NAME")]
    remove: Annotated[
        bool, typer.Option("--remove", help="Take away all that setup left there.")
    ] = False
    wheels: Annotated[
        Path | None,
        typer.Option("--wheels", help="Install from these alone, without an index.", metavar="DIR"),
    ] = None
    project: Project = None
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True)
class InitOptions:
    """Make a workspace that runs as it is.

    It has a study, a baseline, a reference, and a first fix to fill in.
    """

    folder: Annotated[Path, typer.Argument(metavar="[DIR]")] = Path()
    template: Annotated[
        str, typer.Option("--template", help="cuda, triton or torch.", metavar="NAME")
    ] = "cuda"
    json: Json = False


@dataclass(frozen=True)
class NewOptions:
    """Copy a variant as a new step of the ladder.

    The step has its key change and its prediction.
    """

    name: Annotated[str, typer.Argument(metavar="NAME")]
    parent: Annotated[
        str,
        typer.Option(
            "--from", help="Step to copy.", metavar="VARIANT", autocompletion=variant_names
        ),
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
    """Studies, variants and steps, and which evidence is current."""

    project: Project = None
    study: StudyName = None
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False


@dataclass(frozen=True)
class StatusOptions:
    """What measuring has cost, and what the budget leaves.

    By verb, study and GPU.
    """

    project: Project = None
    wide: Wide = False
    markdown: Markdown = False
    json: Json = False
