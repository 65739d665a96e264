"""``build``: what a compiler made of variants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workbench.app.build import Builds, build
from workbench.app.target import find_study
from workbench.cli.options import BuildOptions
from workbench.cli.streams import executor, note, show
from workbench.errors import UsageError, with_hint
from workbench.evidence.records import BuiltKernel
from workbench.render import doc, in_short
from workbench.render.as_json import Data, shown_fields
from workbench.render.numbers import one_line


def run(options: BuildOptions) -> int:
    here = executor()
    workspace, study = find_study(here, options.project, options.study)
    if workspace.packaged:
        raise UsageError(
            "there is no workspace here to build",
            hint="`workbench init NAME` makes one; --project names one elsewhere",
        )
    builds = build(here, workspace, study, options.variants or [], options.arch)
    if options.json or options.brief or len(builds.failed) < len(builds.builds):
        show(options, builds)
    for each in builds.failed:
        note(f"error: {each.variant}: {with_hint(each.error, each.hint)}")
    if 0 < len(builds.failed) < len(builds.builds):
        note("hint: everything else was built")
    return builds.exit_code


MOST_NAMED = 4  # variants of a command


def brief(result: Builds) -> Data:
    """Return the answer: what failed is built again, the rest is measured."""
    verb, named = ("build", result.failed) if result.failed else ("ablate", result.builds)
    names = [each.variant for each in named]
    return {**shown_fields(result), **in_short.command(result.study, verb, *names[:MOST_NAMED])}


@dataclass(frozen=True)
class CompiledKernel:
    """One kernel of a variant, and how many warnings the variant has."""

    variant: str
    built: BuiltKernel
    defines: str
    warnings: int


def source_of(built: BuiltKernel) -> str:
    """Name a source with the compiler, where it is named."""
    return " by ".join(filter(None, (built.source, built.compiler)))


COMPILED: list[doc.Field[CompiledKernel]] = [
    doc.Field("variant", "variant", lambda k: k.variant),
    doc.Field("kernel", "kernel", lambda k: k.built.kernel, rank=5),
    doc.Field("source", "source", lambda k: source_of(k.built), rank=2),
    doc.Field("defines", "defines", lambda k: k.defines, rank=2),
    doc.numeric("registers", "registers", lambda k: str(k.built.registers), rank=1),
    doc.numeric("shared", "static shared B", lambda k: str(k.built.shared_bytes), rank=2),
    doc.numeric("stack", "stack B", lambda k: str(k.built.stack_bytes), rank=4),
    doc.numeric("stores", "spill stores B", lambda k: str(k.built.spill_store_bytes), rank=2),
    doc.numeric("loads", "spill loads B", lambda k: str(k.built.spill_load_bytes), rank=2),
    doc.numeric("warnings", "warnings", lambda k: str(k.warnings), rank=3),
]


def blocks(result: Builds, _: object) -> list[doc.Block]:
    """Show those that compiled; empty where none did."""
    built = [each for each in result.builds if not each.error]
    kernels = [
        CompiledKernel(each.variant, kernel, defines, len(each.warnings))
        for each in built
        for kernel, defines in zip(each.kernels, each.defines, strict=True)
    ]
    warnings = [(each.variant, text) for each in built for text in each.warnings]
    without = [each.variant for each in built if not each.kernels]
    shown: list[doc.Block] = []
    if kernels:
        shown.append(doc.table("kernels", COMPILED, kernels, key=lambda k: k.variant))
    if warnings:
        shown.append(doc.bullets(doc.line(doc.code(name), f": {text}") for name, text in warnings))
    if without:
        text = ": nothing to compile here, what it calls is compiled when it runs"
        shown.append(doc.paragraph(doc.joined([doc.code(name) for name in without]), text))
    return shown


SIZES = (
    ("registers", "registers", ""),
    ("shared_bytes", "shared memory", " bytes"),
    ("stack_bytes", "stack", " bytes"),
)


def compiled_line(arch: str, kernels: Sequence[BuiltKernel], warnings: Sequence[str]) -> str:
    """A line says how a variant was compiled, with its warnings."""
    alone = len(kernels) == 1
    parts = [
        ("" if alone else f"{kernel.kernel} ") + ", ".join(_sizes(kernel)) for kernel in kernels
    ]
    built = "; ".join(parts) or "no kernel of cuda.kernel, no report of registers and spills"
    return "; ".join([f"built for {arch}: {built}", *(f"warning: {one_line(w)}" for w in warnings)])


def _sizes(kernel: BuiltKernel) -> Iterator[str]:
    """Registers and spills always, the rest where it is not zero."""
    for key, name, unit in SIZES:
        value = getattr(kernel, key)
        if key == "registers" or value:
            yield f"{name} {value}{unit}"
    spills = kernel.spill_store_bytes + kernel.spill_load_bytes
    yield f"spills {spills}" + (" bytes" if spills else "")
    if kernel.compiler:
        yield f"by {kernel.compiler}"
