"""``build``: what a compiler made of variants, without a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workbench.app.target import find_study, require_arch
from workbench.cli.options import BuildOptions
from workbench.cli.streams import executor, note, show
from workbench.errors import EnvironmentLacks, ToolFailed, UsageError, with_hint
from workbench.evidence.records import BuiltKernel
from workbench.render import doc, in_short
from workbench.render.as_json import Data, shown_fields
from workbench.run.compilation import build_only
from workbench.run.protocol import Built, Failed
from workbench.study.model import Study, base_name
from workbench.study.params import expanded, including, names_of

LACKS = {ModuleNotFoundError.__name__, EnvironmentLacks.__name__}


@dataclass(frozen=True)
class VariantBuild:
    """``error`` is why it does not compile, ``hint`` a way out."""

    variant: str
    arch: str
    kernels: tuple[BuiltKernel, ...] = ()
    defines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Builds:
    """The outcome of each variant."""

    study: str
    builds: tuple[VariantBuild, ...]

    @property
    def failed(self) -> list[VariantBuild]:
        return [each for each in self.builds if each.error]


MOST_NAMED = 4  # variants of a command


def run(options: BuildOptions) -> int:
    """All steps where no variant is named. One whose parameters have several values is built with
    each combination. The exit code is that of a missing package, where nothing else went wrong.
    """
    here = executor()
    workspace, study = find_study(here, options.project, options.study)
    if workspace.packaged:
        raise UsageError(
            "there is no workspace here to build",
            hint="`workbench init NAME` makes one; --project names one elsewhere",
        )
    require_arch(options.arch)
    names = options.variants or []
    spaces = [(base_name(n), expanded(study.folder, n, study.variants)) for n in names]
    study, wanted = including(study, [each for space in spaces for each in names_of(*space)])
    wanted = wanted or [step.variant for step in study.ladder.steps]
    with here.reporter.progress() as hear:
        limit = workspace.config.limits.seconds_per_step
        events = build_only(study, wanted, options.arch, limit, hear)
    outcomes = tuple(_variant_build(event, options.arch, study) for event in events)
    builds = Builds(study.name, outcomes)
    if options.json or options.brief or len(builds.failed) < len(builds.builds):
        show(options, builds)
    for each in builds.failed:
        note(f"error: {each.variant}: {with_hint(each.error, each.hint)}")
    if 0 < len(builds.failed) < len(builds.builds):
        note("hint: everything else was built")
    kinds = {event.error.kind for event in events if isinstance(event, Failed)}
    wrong = EnvironmentLacks if kinds <= LACKS else ToolFailed
    return wrong.exit_code if kinds else 0


def _variant_build(event: Built | Failed, arch: str, study: Study) -> VariantBuild:
    if isinstance(event, Built):
        return VariantBuild(event.variant, arch, event.kernels, event.defines, event.warnings)
    message = study.in_place(event.error.message)
    return VariantBuild(event.variant, arch, error=message, hint=event.error.hint)


def brief(result: Builds) -> Data:
    """Return the answer: what failed is built again, the rest is measured."""
    verb, named = ("build", result.failed) if result.failed else ("ablate", result.builds)
    names = [each.variant for each in named]
    return {**shown_fields(result), **in_short.command(result.study, verb, *names[:MOST_NAMED])}


Compiled = tuple[VariantBuild | Built, BuiltKernel, str]  # a variant, its kernel and its macros


def source_of(built: BuiltKernel) -> str:
    """Name a source with the compiler, where it is named."""
    return " by ".join(filter(None, (built.source, built.compiler)))


COMPILED: list[doc.Field[Compiled]] = [
    doc.Field("variant", "variant", lambda c: c[0].variant),
    doc.Field("kernel", "kernel", lambda c: c[1].kernel, rank=5),
    doc.Field("source", "source", lambda c: source_of(c[1]), rank=2),
    doc.Field("defines", "defines", lambda c: c[2], rank=2),
    doc.numeric("registers", "registers", lambda c: str(c[1].registers), rank=1),
    doc.numeric("shared", "static shared B", lambda c: str(c[1].shared_bytes), rank=2),
    doc.numeric("stack", "stack B", lambda c: str(c[1].stack_bytes), rank=4),
    doc.numeric("stores", "spill stores B", lambda c: str(c[1].spill_store_bytes), rank=2),
    doc.numeric("loads", "spill loads B", lambda c: str(c[1].spill_load_bytes), rank=2),
    doc.numeric("warnings", "warnings", lambda c: str(len(c[0].warnings)), rank=3),
]


def blocks(result: Builds, _: object) -> Iterator[doc.Block]:
    """Show those that compiled; empty where none did."""
    yield from compiled([each for each in result.builds if not each.error])


def compiled(built: Sequence[VariantBuild | Built]) -> Iterator[doc.Block]:
    """The kernels of variants, and what the compiler warned of."""
    kernels = [
        (each, kernel, defines)
        for each in built
        for kernel, defines in zip(each.kernels, each.defines, strict=True)
    ]
    warnings = [(each.variant, text) for each in built for text in each.warnings]
    if kernels:
        yield doc.table("kernels", COMPILED, kernels, key=lambda c: c[0].variant)
    if warnings:
        yield doc.bullets(doc.line(doc.code(name), f": {text}") for name, text in warnings)
    if without := [doc.code(each.variant) for each in built if not each.kernels]:
        text = ": nothing to compile here, what it calls is compiled when it runs"
        yield doc.paragraph(doc.joined(without), text)
