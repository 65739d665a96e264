"""``workbench build``."""

from __future__ import annotations

import json as json_module
import re
from dataclasses import dataclass

import typer
from msgspec import to_builtins

from workbench.commands.options import BuildOptions
from workbench.commands.progress import Progress
from workbench.commands.target import find_study, refuse_captured
from workbench.errors import UsageError
from workbench.evidence.records import BuiltKernel
from workbench.render.tables import markdown_table
from workbench.run.build import build_only
from workbench.run.protocol import Built, Failed
from workbench.study.workspace import including
from workbench.words import SCHEMA_VERSION

COLUMNS = {
    "registers": "registers",
    "shared_bytes": "shared B",
    "stack_bytes": "stack B",
    "spill_store_bytes": "spill stores B",
    "spill_load_bytes": "spill loads B",
}


@dataclass(frozen=True)
class Result:
    """A variant compiled for ``arch``; ``error`` is why it does not compile."""

    variant: str
    arch: str
    kernels: tuple[BuiltKernel, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str = ""


def result_of(event: Built | Failed, arch: str) -> Result:
    match event:
        case Built():
            return Result(event.variant, arch, event.kernels, event.warnings)
        case Failed():
            return Result(event.variant, arch, error=event.error.message)


def table(results: list[Result]) -> str:
    rows = [
        [
            result.variant,
            kernel.kernel,
            *(str(getattr(kernel, column)) for column in COLUMNS),
            str(len(result.warnings)),
        ]
        for result in results
        for kernel in result.kernels
    ]
    return markdown_table(["variant", "kernel", *COLUMNS.values(), "warnings"], rows, "llrrrrrr")


def show(results: list[Result]) -> None:
    print(table(results))
    for result in results:
        for warning in result.warnings:
            print(f"\n{result.variant}: {warning}")
        if not result.kernels and not result.error:
            print(f"\n{result.variant}: no CUDA source of its own")


def run(options: BuildOptions) -> None:
    names, arch, json = options.variants or [], options.arch, options.json
    workspace, found = find_study(options.project, options.study)
    if re.fullmatch(r"sm_\d+[af]?", arch) is None:
        raise UsageError(f"--arch '{arch}' is no architecture", hint="such as sm_90a or sm_80")
    found, names = including(found, names)
    for name in names:
        refuse_captured(found, name)
    names = names or [s.variant for s in found.ladder.steps]
    with Progress() as progress:
        events = build_only(found, names, arch, workspace.config.limits.seconds_per_step, progress)
    results = [result_of(event, arch) for event in events]
    if json:
        data = {"schema_version": SCHEMA_VERSION, "builds": to_builtins(results)}
        print(json_module.dumps(data, indent=1))
    else:
        show(results)
    errors = [result for result in results if result.error]
    for result in errors:
        typer.echo(f"error: {result.variant}: {result.error}", err=True)
    if errors:
        typer.echo("hint: the compiler's message names the file and line", err=True)
        raise typer.Exit(4)
