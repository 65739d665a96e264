"""Of what evidence came: when, by which command, and in which environment."""

from __future__ import annotations

import datetime
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

from msgspec import to_builtins

import workbench
from workbench.evidence.records import Environment, Provenance

_elsewhere: list[str] = []


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def stamp(date: str) -> str:
    """A date as file names have it."""
    return date.replace(":", "").replace("-", "")


def provenance(
    environment: Environment,
    *,
    command: Iterable[str] | None = None,
    ncu_command: str | None = None,
) -> Provenance:
    """``command`` is the one that evidence came of, in words; ``typed`` where it is not given."""
    words = typed() if command is None else command
    return Provenance(
        **to_builtins(environment),
        workbench=workbench.__version__,
        date=now(),
        command=shlex.join(map(without_folders, words)),
        ncu_command=ncu_command,
    )


def act_for(command: Iterable[str]) -> None:
    """From here on this process measures for a command that was typed elsewhere."""
    _elsewhere[:] = command


def typed() -> list[str]:
    """The command in words: that of this process, or the one that it acts for."""
    return list(_elsewhere) or [*_program(), *sys.argv[1:]]


def _program() -> list[str]:
    """What this process was started as: `workbench`, or a program that has it as a library."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.origin == sys.argv[0]:
        name = spec.name.removesuffix(".__main__")
        return ["workbench"] if name.startswith("workbench") else ["python", "-m", name]
    name = Path(sys.argv[0]).name
    return ["python", name] if name == "-c" or name.endswith(".py") else [name or "python"]


def without_folders(word: str) -> str:
    """A path of this machine by its last part: evidence travels."""
    option, separator, value = word.rpartition("=")
    return f"{option}{separator}{Path(value).name}" if Path(value).is_absolute() else word
