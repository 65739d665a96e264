"""What a save changed: one variant as it was built, checked and timed, beside the save before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from workbench.evidence.records import BuiltKernel
from workbench.render.numbers import factor, number
from workbench.render.plain import one_line

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


def told(now: Save, before: Save | None) -> list[str]:
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
        return "no kernel of cuda.kernel, nothing to say of registers and spills"
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
    for field, name, unit in SIZES:
        value, was = getattr(now, field), getattr(before, field) if before else None
        if field == "registers" or value or was:
            yield f"{name} {_moved(was, value)}{unit}"
    spills = now.spill_store_bytes + now.spill_load_bytes
    was = before.spill_store_bytes + before.spill_load_bytes if before else None
    yield f"spills {_moved(was, spills)}" + (" bytes" if spills or was else "")


def _moved(before: float | None, now: float) -> str:
    shown = str(now) if isinstance(now, int) else number(now)
    if before is None or before == now:
        return shown
    return f"{before if isinstance(before, int) else number(before)} → {shown}"
