"""How many operations a capture counted, and what it used of each bandwidth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.derive.figures import DURATION, by_launch
from workbench.derive.roofline.ceilings import LEVELS, TENSOR, VECTOR, Values, bandwidth, traffic
from workbench.derive.sums import added
from workbench.ncu.catalog import TENSOR_OPS

if TYPE_CHECKING:
    from workbench.ncu.capture import Table


PER_CYCLE = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed"
CLOCK = "smsp__cycles_elapsed.avg.per_second"
CYCLES = "gpc__cycles_elapsed.max"


def counted_flops(metrics: Table) -> Mapping[str, float] | None:
    """FLOPs by kind of arithmetic (``fp32``, ``fp64``, ``half``, ``tensor <type>``), of all
    launches; None where some launch has no counters for them.

    Additions, multiplications and FMAs (two FLOPs each) of threads, and operations of the tensor
    cores: see ``point``. Per-cycle counts are of one replay pass and cycles of another, so that of
    two ways to multiply them the larger is taken: it errs for the variant.
    """
    launches = list(by_launch(metrics).values())
    if not launches:
        return None
    found: dict[str, float] = {}
    for values in launches:
        own = _of(values)
        if own is None:
            return None
        for kind, flops in own.items():
            found[kind] = found.get(kind, 0.0) + flops
    return found


def _of(values: Values) -> Mapping[str, float] | None:
    cycles = _cycles(values)
    vector = {
        kind: added(values[PER_CYCLE.format(op)] * weight for op, weight in ops.items()) * cycles
        for kind, (ops, *_) in VECTOR.items()
        if all(PER_CYCLE.format(op) in values for op in ops)
    }
    tensor: dict[str, float] = {}
    for op in TENSOR_OPS:
        kind = f"{TENSOR} {op.type}"
        tensor[kind] = tensor.get(kind, 0.0) + values.get(op.work, 0.0)
    if not vector or not cycles or not any(op.work in values for op in TENSOR_OPS):
        return None
    return {kind: flops for kind, flops in {**vector, **tensor}.items() if flops}


def _cycles(values: Values) -> float:
    by_clock = values.get(CLOCK, 0.0) * values.get(DURATION, 0.0) * 1e-9
    return max(by_clock, values.get(CYCLES, 0.0))


@dataclass(frozen=True)
class Used:
    """One level of memory: its bytes over all launches, and the ``share`` of the duration that they
    need at its bandwidth: the one the card was ``measured`` to reach, else the theoretical one.
    """

    bytes: float
    share: float
    measured: bool


def used(metrics: Table, ceilings: Mapping[str, float]) -> dict[str, Used]:
    """Level to what was used of it; without those that some launch has no counters of.

    ``ceilings`` are the measured ones by id, in bytes/s. A share of a measured ceiling that passes
    one, as at a higher clock, is of the theoretical one instead.
    """
    launches = list(by_launch(metrics).values())
    if not launches or not all(values.get(DURATION) for values in launches):
        return {}
    seconds = added(values[DURATION] for values in launches) * 1e-9
    found: dict[str, Used] = {}
    for level in LEVELS:
        amounts = [traffic(values, level) for values in launches]
        known = [amount for amount in amounts if amount is not None]
        if len(known) < len(launches):
            continue
        rates = [bandwidth(values, level) for values in launches]
        least = added(a / r for a, r in zip(known, rates, strict=True) if r)
        theory = least / seconds if all(rates) else math.nan
        ceiling = ceilings.get(level)
        share = added(known) / ceiling / seconds if ceiling else math.nan
        by_measured = math.isfinite(share) and share <= 1
        if by_measured or math.isfinite(theory):
            found[level] = Used(added(known), share if by_measured else theory, by_measured)
    return found
