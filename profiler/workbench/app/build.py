"""Variants compiled for a named architecture, without a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from workbench.app.executor import Executor
from workbench.app.target import in_place, require_arch
from workbench.errors import EnvironmentLacks, ToolFailed
from workbench.evidence.records import BuiltKernel
from workbench.run.compilation import build_only
from workbench.run.protocol import Built, Failed
from workbench.study.model import Study, base_name
from workbench.study.params import expanded, names_of
from workbench.study.workspace import Workspace, including

LACKS = (ModuleNotFoundError.__name__, EnvironmentLacks.__name__)


@dataclass(frozen=True)
class VariantBuild:
    """``error`` is why it does not compile, ``hint`` a way out; ``lacks``: a package is missing."""

    variant: str
    arch: str
    kernels: tuple[BuiltKernel, ...] = ()
    defines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str = ""
    hint: str = ""
    lacks: bool = field(default=False, repr=False)


@dataclass(frozen=True)
class Builds:
    """The outcome of each variant."""

    study: str
    builds: tuple[VariantBuild, ...]

    @property
    def failed(self) -> list[VariantBuild]:
        return [each for each in self.builds if each.error]

    @property
    def exit_code(self) -> int:
        """Return the exit code: that of a missing package, where nothing else went wrong."""
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
    spaces = [(base_name(n), expanded(study.folder, n, study.variants)) for n in names]
    study, wanted = including(study, [each for space in spaces for each in names_of(*space)])
    wanted = wanted or [step.variant for step in study.ladder.steps]
    with executor.reporter.progress() as hear:
        limit = workspace.config.limits.seconds_per_step
        events = build_only(study, wanted, arch, limit, hear)
    return Builds(study.name, tuple(_variant_build(event, arch, study) for event in events))


def _variant_build(event: Built | Failed, arch: str, study: Study) -> VariantBuild:
    if isinstance(event, Built):
        return VariantBuild(event.variant, arch, event.kernels, event.defines, event.warnings)
    error, lacks = event.error, event.error.kind in LACKS
    message = in_place(error.message, study)
    return VariantBuild(event.variant, arch, error=message, hint=error.hint, lacks=lacks)
