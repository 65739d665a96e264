"""What this machine can do, and what a compiler made of the variants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.render.document.blocks import (
    Block,
    Bullets,
    Paragraph,
    code,
    joined,
    line,
    strong,
    words,
)
from workbench.render.document.fields import Field, field, table


@dataclass(frozen=True)
class Finding:
    """One thing that ``doctor`` looked at; ``needed_for`` is read, build or measure."""

    name: str
    result: str
    found: str
    fix: str
    needed_for: str


FINDINGS: list[Field[Finding]] = [
    field("result", "", lambda f: f"[{f.result}]"),
    field("name", "what", lambda f: f.name),
    field("found", "found", lambda f: f.found, rank=1),
]


def findings(looked_at: Sequence[Finding], conclusion: str) -> list[Block]:
    """What there is, what works with it, and how to get what is missing."""
    told: list[Block] = [
        table("findings", FINDINGS, looked_at, key=lambda f: f.name),
        Paragraph(words(conclusion)),
    ]
    fixes = tuple(line(strong(f.name), f": {f.fix}") for f in looked_at if f.fix)
    if fixes:
        told[1:1] = [Paragraph(words("What would help:")), Bullets(fixes)]
    return told


@dataclass(frozen=True)
class CompiledKernel:
    """One kernel of a variant; sizes in bytes, registers a thread."""

    variant: str
    kernel: str
    source: str
    defines: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    warnings: int


COMPILED: list[Field[CompiledKernel]] = [
    field("variant", "variant", lambda k: k.variant),
    field("kernel", "kernel", lambda k: k.kernel, rank=5),
    field("source", "source", lambda k: k.source, rank=2),
    field("defines", "defines", lambda k: k.defines, rank=2),
    field("registers", "registers", lambda k: str(k.registers), right=True, rank=1),
    field("shared", "static shared B", lambda k: str(k.shared_bytes), right=True, rank=2),
    field("stack", "stack B", lambda k: str(k.stack_bytes), right=True, rank=4),
    field("stores", "spill stores B", lambda k: str(k.spill_store_bytes), right=True, rank=2),
    field("loads", "spill loads B", lambda k: str(k.spill_load_bytes), right=True, rank=2),
    field("warnings", "warnings", lambda k: str(k.warnings), right=True, rank=3),
]


def compiled(
    kernels: Sequence[CompiledKernel], warnings: Sequence[tuple[str, str]], without: Sequence[str]
) -> list[Block]:
    """``warnings`` are a variant and the compiler's words; ``without`` have no CUDA source."""
    told: list[Block] = []
    if kernels:
        told.append(table("kernels", COMPILED, kernels, key=lambda k: k.variant))
    if warnings:
        told.append(Bullets(tuple(line(code(name), f": {text}") for name, text in warnings)))
    if without:
        text = ": nothing to compile here, what it calls is compiled when it runs"
        told.append(Paragraph(line(joined([code(name) for name in without]), text)))
    return told
