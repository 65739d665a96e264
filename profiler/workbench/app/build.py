"""Variants compiled for a named architecture, without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.app.executor import Executor
from workbench.app.target import in_place, require_arch
from workbench.errors import EnvironmentLacks, ToolFailed
from workbench.render.document.environment import VariantBuild
from workbench.run.compilation import build_only
from workbench.run.protocol import Built, Failed
from workbench.study.model import Study
from workbench.study.params import base_name, expanded, is_space, names_of
from workbench.study.workspace import Workspace, including

LACKS = (ModuleNotFoundError.__name__, EnvironmentLacks.__name__)


@dataclass(frozen=True)
class Builds:
    """What became of each variant."""

    builds: tuple[VariantBuild, ...]

    @property
    def failed(self) -> list[VariantBuild]:
        return [each for each in self.builds if each.error]

    @property
    def exit_code(self) -> int:
        """That of a missing package, where nothing else went wrong."""
        lacks = all(each.lacks for each in self.failed)
        wrong = EnvironmentLacks if lacks else ToolFailed
        return wrong.exit_code if self.failed else 0


def build(
    executor: Executor, workspace: Workspace, study: Study, names: Sequence[str], arch: str
) -> Builds:
    """All steps where no variant is named. One whose parameters have several values is built with
    each combination. Raises UsageError for unknown names, and as ``build_only``.
    """
    require_arch(arch)
    every = [each for name in names for each in _combinations(study, name)]
    study, found = including(study, every)
    found = found or [step.variant for step in study.ladder.steps]
    with executor.reporter.progress() as hear:
        limit = workspace.config.limits.seconds_per_step
        events = build_only(study, found, arch, limit, hear)
    return Builds(tuple(_variant_build(event, arch, study) for event in events))


def _combinations(study: Study, name: str) -> list[str]:
    if not is_space(name):
        return [name]
    return names_of(base_name(name), expanded(study.folder, name, study.variants))


def _variant_build(event: Built | Failed, arch: str, study: Study) -> VariantBuild:
    if isinstance(event, Built):
        return VariantBuild(event.variant, arch, event.kernels, event.defines, event.warnings)
    error = event.error
    message = in_place(error.message, study)
    lacks = error.kind in LACKS
    return VariantBuild(event.variant, arch, error=message, hint=error.hint, lacks=lacks)
