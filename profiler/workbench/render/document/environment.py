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
from workbench.render.numbers import factor, number, one_line

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


@dataclass(frozen=True)
class Save:
    """``error`` says why it does not compile. ``check`` is how it stood against the reference, with
    the reason, "" where it was not checked. ``microseconds`` are chained, of one session, and
    ``ratio`` is over ``against``, timed beside it; None is not collected.
    """

    variant: str
    arch: str
    kernels: tuple[BuiltKernel, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str = ""
    seconds: float = 0.0
    check: str = ""
    max_abs: float | None = None
    microseconds: float | None = None
    against: str = ""
    ratio: float | None = None


def saved_lines(now: Save, before: Save | None) -> list[str]:
    """A line each for build, warnings, check and time; what did not change is said once."""
    if now.error:
        return [f"does not compile ({number(now.seconds)} s)"]
    lines = [f"built for {now.arch}: {_built(now, before)}"]
    new = [text for text in now.warnings if before is None or text not in before.warnings]
    lines += [f"warning: {one_line(text)}" for text in new]
    if gone := len(before.warnings if before else ()) - len(now.warnings) + len(new):
        lines.append(f"{gone} warning{'s' * (gone != 1)} gone")
    if now.check:
        error = "" if now.max_abs is None else f", max error {now.max_abs:.2g}"
        lines.append(f"check: {now.check}{error}")
    if now.microseconds is not None:
        was = before.microseconds if before else None
        over = f", {factor(now.ratio)} of {now.against}" if now.ratio is not None else ""
        lines.append(f"time, one session: {_moved(was, now.microseconds)} µs{over}")
    return lines


def _built(now: Save, before: Save | None) -> str:
    if not now.kernels:
        return "no kernel of cuda.kernel, no report of registers and spills"
    known = list(before.kernels) if before and not before.error else []
    alone = len(now.kernels) == 1
    parts = [
        (("" if alone else f"{kernel.kernel} ") + ", ".join(_kernel(kernel, _same(kernel, known))))
        for kernel in now.kernels
    ]
    return "; ".join(parts)


def _same(kernel: BuiltKernel, known: list[BuiltKernel]) -> BuiltKernel | None:
    """Of the save before, each taken once: one name may be built several times."""
    found = next((one for one in known if one.kernel == kernel.kernel), None)
    if found is not None:
        known.remove(found)
    return found


def _kernel(now: BuiltKernel, before: BuiltKernel | None) -> Iterator[str]:
    """Registers and spills always, the rest where it is or was not zero."""
    for key, name, unit in SIZES:
        value, was = getattr(now, key), getattr(before, key) if before else None
        if key == "registers" or value or was:
            yield f"{name} {_moved(was, value)}{unit}"
    spills = now.spill_store_bytes + now.spill_load_bytes
    was = before.spill_store_bytes + before.spill_load_bytes if before else None
    yield f"spills {_moved(was, spills)}" + (" bytes" if spills or was else "")
    if now.compiler and now.compiler != (before.compiler if before else ""):
        yield f"by {now.compiler}"


def _moved(before: float | None, now: float) -> str:
    shown = str(now) if isinstance(now, int) else number(now)
    if before is None or before == now:
        return shown
    return f"{before if isinstance(before, int) else number(before)} → {shown}"
