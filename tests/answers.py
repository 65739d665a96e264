"""One run of the command line in this process, and what it prints; and names for many tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import jsonschema
import pytest
from _pytest.capture import CaptureResult

from workbench.cli.main import main
from workbench.cli.schema import of_json, schema

Capsys = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
Told = Callable[..., dict[str, Any]]
T = TypeVar("T")


def not_none(value: T | None) -> T:
    assert value is not None
    return value


def both_of(
    capsys: Capsys, *arguments: object, project: Path | None = None, code: int = 0
) -> CaptureResult[str]:
    """Output and errors."""
    where = [] if project is None else ["--project", str(project)]
    assert main([*map(str, arguments), *where]) == code
    return capsys.readouterr()


def text_of(capsys: Capsys, *arguments: object, project: Path | None = None, code: int = 0) -> str:
    return both_of(capsys, *arguments, project=project, code=code).out


def json_of(capsys: Capsys, *arguments: object, project: Path | None = None, code: int = 0) -> Any:
    """Of ``--json``, which the arguments need not have, or of ``--brief``; as its schema has it."""
    own = [] if "--brief" in arguments or "--json" in arguments else ["--json"]
    own += ["--full"] if arguments[0] in ("ablate", "list") and "--brief" not in arguments else []
    text = text_of(capsys, *arguments, *own, project=project, code=code)
    answer = json.loads(text)
    if len(text) < LONG:
        published(str(arguments[0]), short="--brief" in arguments).validate(answer)
    return answer


def ran(
    *command: object, cwd: Path | None = None, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """A program that has ended, with more in its environment than this process has."""
    return subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={**os.environ, **environment},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def python(*words: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """This Python with these words."""
    return ran(sys.executable, *words, **more)


LONG = 100_000  # bytes: a second of validation, done by tests/cli/test_json.py


@cache
def published(verb: str, *, short: bool) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema(verb) if short else of_json(verb))


def error_of(capsys: Capsys, *arguments: object, project: Path | None = None, code: int = 2) -> str:
    return both_of(capsys, *arguments, project=project, code=code).err


def refused(
    capsys: Capsys, *arguments: object, words: Iterable[str] = (), project: Path | None = None
) -> str:
    """What a verb says that ends in an error with a hint and in no output but the error as JSON."""
    capsys.readouterr()
    out, err = both_of(capsys, *arguments, project=project, code=2)
    assert out == "" or json.loads(out)["error"]["message"] in err
    for word in ("error: ", "\nhint: ", *words):
        assert word in err, err
    return err
