"""What this machine can do, and what a compiler made of the variants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING

from workbench.render.document.blocks import (
    Block,
    Bullets,
    Field,
    code,
    field,
    joined,
    line,
    numeric,
    paragraph,
    strong,
    table,
)
from workbench.render.numbers import one_line

if TYPE_CHECKING:  # doctor works without msgspec
    from workbench.evidence.records import BuiltKernel


@dataclass(frozen=True)
class DoctorRow:
    """One thing that ``doctor`` looked at; ``needed_for`` is read, build or measure."""

    name: str
    result: str
    found: str
    fix: str
    needed_for: str


FINDINGS: list[Field[DoctorRow]] = [
    field("result", "", lambda f: f"[{f.result}]"),
    field("name", "what", lambda f: f.name),
    field("found", "found", lambda f: f.found, rank=1),
]


def findings(looked_at: Sequence[DoctorRow], conclusion: str) -> list[Block]:
    """What there is, what works with it, and how to get what is missing."""
    blocks: list[Block] = [
        table("findings", FINDINGS, looked_at, key=lambda f: f.name),
        paragraph(conclusion),
    ]
    fixes = tuple(line(strong(f.name), f": {f.fix}") for f in looked_at if f.fix)
    if fixes:
        blocks[1:1] = [paragraph("What would help:"), Bullets(fixes)]
    return blocks


@dataclass(frozen=True)
class CompiledKernel:
    """One kernel of a variant, and how many warnings the variant has."""

    variant: str
    built: BuiltKernel
    defines: str
    warnings: int


def source_of(built: BuiltKernel) -> str:
    """With the compiler, where it is named."""
    return " by ".join(filter(None, (built.source, built.compiler)))


COMPILED: list[Field[CompiledKernel]] = [
    field("variant", "variant", lambda k: k.variant),
    field("kernel", "kernel", lambda k: k.built.kernel, rank=5),
    field("source", "source", lambda k: source_of(k.built), rank=2),
    field("defines", "defines", lambda k: k.defines, rank=2),
    numeric("registers", "registers", lambda k: str(k.built.registers), rank=1),
    numeric("shared", "static shared B", lambda k: str(k.built.shared_bytes), rank=2),
    numeric("stack", "stack B", lambda k: str(k.built.stack_bytes), rank=4),
    numeric("stores", "spill stores B", lambda k: str(k.built.spill_store_bytes), rank=2),
    numeric("loads", "spill loads B", lambda k: str(k.built.spill_load_bytes), rank=2),
    numeric("warnings", "warnings", lambda k: str(k.warnings), rank=3),
]


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
    lacks: bool = dataclass_field(default=False, repr=False)


def compiled(builds: Sequence[VariantBuild]) -> list[Block]:
    """Of those that compiled; empty where none did."""
    built = [each for each in builds if not each.error]
    kernels = [
        CompiledKernel(each.variant, kernel, defines, len(each.warnings))
        for each in built
        for kernel, defines in zip(each.kernels, each.defines, strict=True)
    ]
    warnings = [(each.variant, text) for each in built for text in each.warnings]
    without = [each.variant for each in built if not each.kernels]
    blocks: list[Block] = []
    if kernels:
        blocks.append(table("kernels", COMPILED, kernels, key=lambda k: k.variant))
    if warnings:
        blocks.append(Bullets(tuple(line(code(name), f": {text}") for name, text in warnings)))
    if without:
        text = ": nothing to compile here, what it calls is compiled when it runs"
        blocks.append(paragraph(joined([code(name) for name in without]), text))
    return blocks


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
