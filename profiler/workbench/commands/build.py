"""``workbench build``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import typer

from workbench.commands.options import BuildOptions
from workbench.commands.printing import tell
from workbench.commands.progress import Progress, with_hint
from workbench.commands.streams import note
from workbench.commands.target import find_study, in_place, require_arch
from workbench.errors import EnvironmentLacks, ToolFailed
from workbench.evidence.records import BuiltKernel
from workbench.render.document.blocks import Block
from workbench.render.document.machine import CompiledKernel, compiled
from workbench.run.build import build_only
from workbench.run.protocol import Built, Failed
from workbench.study.model import Study
from workbench.study.params import base_name, expanded, is_space, names_of
from workbench.study.workspace import including

LACKS = (ModuleNotFoundError.__name__, EnvironmentLacks.__name__)


@dataclass(frozen=True)
class Result:
    """A variant compiled for ``arch``; ``error`` is why it does not compile, ``hint`` a way out."""

    variant: str
    arch: str
    kernels: tuple[BuiltKernel, ...] = ()
    defines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str = ""
    hint: str = ""


def result_of(event: Built | Failed, arch: str) -> Result:
    if isinstance(event, Failed):
        error = event.error
        return Result(event.variant, arch, error=error.message, hint=error.hint)
    return Result(event.variant, arch, event.kernels, event.defines, event.warnings)


def blocks(results: list[Result]) -> list[Block]:
    kernels = [
        CompiledKernel(result.variant, kernel, defines, len(result.warnings))
        for result in results
        for kernel, defines in zip(result.kernels, result.defines, strict=True)
    ]
    warnings = [(result.variant, text) for result in results for text in result.warnings]
    without = [result.variant for result in results if not (result.kernels or result.error)]
    return compiled(kernels, warnings, without)


def combinations(study: Study, name: str) -> list[str]:
    """Those of a variant whose parameters have several values, else itself."""
    if not is_space(name):
        return [name]
    axes = expanded(study.folder, name, study.variants)
    return list(names_of(base_name(name), axes))


def run(options: BuildOptions) -> None:
    names, arch = options.variants or [], options.arch
    workspace, found = find_study(options.project, options.study)
    require_arch(arch)
    found, names = including(found, [each for name in names for each in combinations(found, name)])
    names = names or [s.variant for s in found.ladder.steps]
    with Progress() as progress:
        events = build_only(found, names, arch, workspace.config.limits.seconds_per_step, progress)
    results = [result_of(event, arch) for event in events]
    if options.json or blocks(results):
        tell(options, lambda: {"builds": results}, lambda: blocks(results))
    errors = [result for result in results if result.error]
    for result in errors:
        told = with_hint(result.error, result.hint)
        note(f"error: {result.variant}: {in_place(told, found)}")
    if errors:
        if len(errors) < len(results):
            note("hint: everything else was built")
        raise typer.Exit(exit_code(events))


def exit_code(events: Sequence[Built | Failed]) -> int:
    """That of a missing package, where nothing else went wrong."""
    failed = [event.error.kind for event in events if isinstance(event, Failed)]
    lacks = all(kind in LACKS for kind in failed)
    return EnvironmentLacks.exit_code if lacks else ToolFailed.exit_code
