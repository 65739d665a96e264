"""``workbench build``."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.app.target import find_study, in_place, require_arch
from workbench.cli.options import BuildOptions
from workbench.cli.printing import tell
from workbench.cli.progress import Progress
from workbench.cli.streams import executor, note
from workbench.errors import EnvironmentLacks, ToolFailed, with_hint
from workbench.render.document.blocks import Block
from workbench.render.document.environment import CompiledKernel, VariantBuild, compiled
from workbench.run.compilation import build_only
from workbench.run.protocol import Built, Failed
from workbench.study.model import Study
from workbench.study.params import base_name, expanded, is_space, names_of
from workbench.study.workspace import including

LACKS = (ModuleNotFoundError.__name__, EnvironmentLacks.__name__)


def variant_build(event: Built | Failed, arch: str) -> VariantBuild:
    if isinstance(event, Failed):
        error = event.error
        return VariantBuild(event.variant, arch, error=error.message, hint=error.hint)
    return VariantBuild(event.variant, arch, event.kernels, event.defines, event.warnings)


def blocks(events: Sequence[Built | Failed]) -> list[Block]:
    built = [event for event in events if isinstance(event, Built)]
    kernels = [
        CompiledKernel(each.variant, kernel, defines, len(each.warnings))
        for each in built
        for kernel, defines in zip(each.kernels, each.defines, strict=True)
    ]
    warnings = [(each.variant, text) for each in built for text in each.warnings]
    return compiled(kernels, warnings, [each.variant for each in built if not each.kernels])


def combinations(study: Study, name: str) -> list[str]:
    """Those of a variant whose parameters have several values, else itself."""
    if not is_space(name):
        return [name]
    axes = expanded(study.folder, name, study.variants)
    return list(names_of(base_name(name), axes))


def run(options: BuildOptions) -> int:
    names, arch = options.variants or [], options.arch
    workspace, found = find_study(executor("build"), options.project, options.study)
    require_arch(arch)
    found, names = including(found, [each for name in names for each in combinations(found, name)])
    names = names or [s.variant for s in found.ladder.steps]
    with Progress() as progress:
        events = build_only(found, names, arch, workspace.config.limits.seconds_per_step, progress)
    if options.json or blocks(events):
        data = [variant_build(event, arch) for event in events]
        tell(options, lambda: {"builds": data}, lambda: blocks(events))
    failed = [event for event in events if isinstance(event, Failed)]
    for event in failed:
        told = with_hint(event.error.message, event.error.hint)
        note(f"error: {event.variant}: {in_place(told, found)}")
    if failed:
        if len(failed) < len(events):
            note("hint: everything else was built")
        return exit_code(failed)
    return 0


def exit_code(failed: Sequence[Failed]) -> int:
    """That of a missing package, where nothing else went wrong."""
    lacks = all(event.error.kind in LACKS for event in failed)
    return EnvironmentLacks.exit_code if lacks else ToolFailed.exit_code
