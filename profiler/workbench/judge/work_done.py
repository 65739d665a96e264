"""Whether a capture did the work that one call needs, and no faster than the card can. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.derive.figures import by_launch
from workbench.derive.roofline.ceilings import L2, TENSOR
from workbench.derive.roofline.counted import counted_flops
from workbench.derive.sums import added
from workbench.judge.case import Case, added_time, rates_of
from workbench.judge.gates import Gate
from workbench.words import ABSENT, GateState

if TYPE_CHECKING:
    from workbench.study.model import Work

WORK = "work"
PACKED_FLOPS = 64  # of a warp instruction at the most, outside of the tensor cores: two halves
LEAST_WORK = 0.90  # counters of several replay passes agree to some per cent
MARGIN = 1.05  # of a peak: clocks of two passes differ by so much in short kernels
INSTRUCTIONS = "smsp__inst_executed.sum"
# What may do the arithmetic of a study whose inputs are of a type: also faster types, since float32
# can be put together from halves.
ARITHMETIC = {
    "float64": ("fp64", "tensor fp64"),
    "float32": ("fp32", "half", "tensor tf32", "tensor fp16", "tensor bf16"),
    "float16": ("fp32", "half", "tensor fp16", "tensor bf16"),
    "bfloat16": ("fp32", "half", "tensor fp16", "tensor bf16"),
    "float8_e4m3fn": ("fp32", "half", "tensor fp16", "tensor bf16", "tensor fp8"),
    "float8_e5m2": ("fp32", "half", "tensor fp16", "tensor bf16", "tensor fp8"),
}


def work_gate(case: Case) -> Gate:
    """The capture did what one call needs, and the call was not faster than the card can be."""
    work, capture = case.work, case.evidence.capture
    if work is None or capture is None or not case.evidence.was_profiled:
        return Gate(WORK, GateState.OPEN, ABSENT)
    parts = [_operations(case, work), _bytes(case, work), _floor(case, work)]
    known = [part for part in parts if part is not None]
    failed = next((part for part in known if part.state == GateState.FAILED), None)
    if failed is not None:
        return failed
    if not known:
        return Gate(WORK, GateState.OPEN, ABSENT)
    return Gate(WORK, GateState.PASSED, ", ".join(part.why for part in known))


def _operations(case: Case, work: Work) -> Gate | None:
    """None where they cannot be counted: integers, and additions of halves outside of the tensor
    cores, which ncu counts together with conversions.
    """
    capture = case.evidence.capture
    counted = counted_flops(capture.metrics) if capture and work.flops else None
    if capture is None or counted is None or work.dtype not in ARITHMETIC:
        return None
    done = added(counted.values())
    in_halves = work.dtype not in ("float32", "float64")
    if in_halves and not any(kind.startswith(TENSOR) for kind in counted):
        launches = by_launch(capture.metrics).values()
        done += PACKED_FLOPS * added(values.get(INSTRUCTIONS, 0.0) for values in launches)
        if done >= LEAST_WORK * work.flops:
            return None
    return _at_least(done, work.flops, "operations", "FLOP")


def _bytes(case: Case, work: Work) -> Gate | None:
    """Between the SMs and L2 every operand goes at least once."""
    launched = case.launched
    if not work.bytes or not launched or any(x.l2_bytes is None for x in launched):
        return None
    return _at_least(sum(x.l2_bytes or 0.0 for x in launched), work.bytes, "bytes through L2", "B")


def _at_least(done: float, needed: float, what: str, unit: str) -> Gate:
    if done < LEAST_WORK * needed:
        why = f"{done:.3g} {unit} of {needed:.3g} that one call needs: {what} are missing"
        return Gate(WORK, GateState.FAILED, why)
    return Gate(WORK, GateState.PASSED, f"{done / needed:.2f} times the {what} that it needs")


def _floor(case: Case, work: Work) -> Gate | None:
    """No call is faster than its operations at the peak of the fastest arithmetic that could do
    them, or its bytes at twice the rate of L2, which reads and writes at once.
    """
    time, rates = added_time(case), rates_of(case)
    kinds = ARITHMETIC.get(work.dtype, ())
    peak = max((rates[kind] for kind in kinds if kind in rates), default=0.0)
    floors = {
        "operations": work.flops / peak if peak else 0.0,
        "bytes": work.bytes / (2 * rates[L2]) if rates.get(L2) else 0.0,
    }
    what = max(floors, key=lambda name: floors[name])
    floor = floors[what] / MARGIN * 1e6
    if time is None or not floor:
        return None
    if time.microseconds < floor:
        why = (
            f"{time.microseconds:.3g} µs, where the card needs {floor:.3g} µs for its {what} alone"
        )
        return Gate(WORK, GateState.FAILED, why)
    return Gate(WORK, GateState.PASSED, f"the card's floor is {floor:.3g} µs")
