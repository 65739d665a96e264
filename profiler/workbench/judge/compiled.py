"""The compiler gate of kernels that the workbench did not compile, and why they have no source
lines. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.judge.gates import COMPILER, Gate, compiler_gate
from workbench.ncu.capture import has_lines
from workbench.study.config import Gates
from workbench.study.front_ends import LIBRARY, front_end
from workbench.words import ABSENT, GENERATED_ROOT, VIRTUAL_ROOT, GateState

if TYPE_CHECKING:
    from workbench.derive.figures import Figure
    from workbench.evidence.records import CapturedKernel
    from workbench.judge.inputs import VariantEvidence
    from workbench.ncu.capture import Capture

OWN = "compiled by torch's makers"


def gate_of(evidence: VariantEvidence, gates: Gates) -> Gate:
    """By the compiler's report of what was compiled here, and by the capture for all else."""
    own = compiler_gate(evidence.build, gates)
    build = evidence.build
    if own.state != GateState.PASSED or build is None:
        return own
    if build.kernels and not set(evidence.front_ends) - {LIBRARY}:
        return own
    index = evidence.index
    told = captured_gate(
        index.resources if index else None, evidence.figures, evidence.front_ends, gates
    )
    if not build.kernels or told.state == GateState.FAILED:
        return told
    return Gate(COMPILER, own.state, f"{own.why}; of the others: {told.why}")


def captured_gate(
    kernels: Sequence[CapturedKernel] | None,
    figures: Mapping[str, Figure],
    front_ends: Sequence[str],
    gates: Gates,
) -> Gate:
    """Spilled registers fail it, but in kernels of torch's own library, which nobody here can
    compile otherwise. Without a capture it is open, and decides nothing.
    """
    by = compiled_by(front_ends)
    if not kernels and "registers" not in figures:
        return Gate(COMPILER, GateState.OPEN, f"{ABSENT}: {by}, and not captured", binding=False)
    if not kernels:
        registers = f"{figures['registers'].value:.0f} registers in the capture"
        return Gate(COMPILER, GateState.PASSED, f"{registers}, spills {ABSENT}; {by}")
    counted = [k.spill_instructions for k in kernels if k.spill_instructions is not None]
    spilled = sum(counted)
    spills = f"{spilled} instructions that spill" if spilled else "no spills"
    spills = spills if len(counted) == len(kernels) or spilled else f"spills {ABSENT}"
    told = f"{', '.join([*_amounts(kernels), spills])} in the capture; {by}"
    failed = spilled and not gates.allow_spills and tuple(front_ends) != (LIBRARY,)
    return Gate(COMPILER, GateState.FAILED if failed else GateState.PASSED, told)


def _amounts(kernels: Sequence[CapturedKernel]) -> list[str]:
    """Registers a thread, and shared memory a block where there is any, over all kernels."""
    registers = [k.registers for k in kernels if k.registers is not None]
    shared = max((k.shared_bytes or 0 for k in kernels), default=0)
    told = [f"{_range(registers)} registers"] if registers else []
    return [*told, *([f"{shared} bytes of shared memory"] if shared else [])]


def _range(values: Sequence[int]) -> str:
    least, most = min(values), max(values)
    return str(most) if least == most else f"{least} to {most}"


def compiled_by(front_ends: Sequence[str]) -> str:
    """In words."""
    if tuple(front_ends) == (LIBRARY,):
        return OWN
    return f"compiled by {' and '.join(front_ends)}" if front_ends else "compiled elsewhere"


def lines_missing(capture: Capture, front_ends: Sequence[str]) -> str:
    """That a capture has no source lines, or none of the user's own files; "" where it has."""
    if not has_lines(capture):
        return f"no source lines: {why_no_lines(front_ends)}"
    files = [str(file) for file in set(capture.lines["file"]) if file]
    generated = [file.startswith(GENERATED_ROOT) for file in files]
    own = [file.startswith(VIRTUAL_ROOT) for file in files]
    if any(generated) and not any(own):
        by = compiled_by(front_ends).replace("compiled", "generated", 1)
        return f"no source lines of its own files: those shown are of code {by}"
    return ""


def why_no_lines(front_ends: Sequence[str]) -> str:
    """Why a capture has none, with what gives them where that is known."""
    known = [found for name in front_ends if (found := front_end(name))]
    if not known:
        return "its kernels were built without line information"
    first = known[0]
    return f"{first.no_lines}{f': {first.lines} gives it' if first.lines else ''}"
