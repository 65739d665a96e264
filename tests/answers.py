"""One run of the command line in this process, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.cli.main import main

Capture = pytest.CaptureFixture[str]


def _run(arguments: tuple[object, ...], project: Path | None, code: int) -> None:
    where = [] if project is None else ["--project", str(project)]
    assert main([*map(str, arguments), *where]) == code


def text_of(capsys: Capture, *arguments: object, project: Path | None = None, code: int = 0) -> str:
    _run(arguments, project, code)
    return capsys.readouterr().out


def json_of(capsys: Capture, *arguments: object, project: Path | None = None, code: int = 0) -> Any:
    """Of ``--json``, which the arguments need not have, or of ``--brief``."""
    own = () if "--brief" in arguments or "--json" in arguments else ("--json",)
    return json.loads(text_of(capsys, *arguments, *own, project=project, code=code))


def error_of(
    capsys: Capture, *arguments: object, project: Path | None = None, code: int = 2
) -> str:
    _run(arguments, project, code)
    return capsys.readouterr().err
