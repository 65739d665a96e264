"""Weigh the operators of a torch.profiler trace: which shapes a model launches, how often, and what
share of a step their kernels take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from workbench.derive.figures import added

GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")
STEP = "ProfilerStep#"


class _Args(msgspec.Struct, frozen=True):
    correlation: Any = None
    dims: Any = msgspec.field(default=None, name="Input Dims")


class TraceEvent(msgspec.Struct, frozen=True):
    """One event of Chrome's format, in microseconds."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Any = 0
    tid: Any = 0
    ts: float = 0.0
    dur: float = 0.0
    args: _Args = _Args()

    @property
    def end(self) -> float:
        return self.ts + self.dur


class ModelTrace(msgspec.Struct, frozen=True):
    events: tuple[TraceEvent, ...] = msgspec.field(default=(), name="traceEvents")


@dataclass(frozen=True)
class Weight:
    """The calls of an operator at some extents of its inputs. ``operator`` is the kernel's name,
    and ``extents`` is empty, for kernels that no operator with recorded shapes launched.

    ``most`` is the share of a step that a variant can save, None where it replaces something else.
    """

    operator: str
    extents: str
    calls: int
    launches: int
    microseconds: float
    share: float
    most: float | None = None


@dataclass(frozen=True)
class Weighed:
    """``step_microseconds`` are of a step of the profiler, of the whole trace if it has none."""

    steps: int
    step_microseconds: float
    weights: tuple[Weight, ...]


def weighed(trace: ModelTrace, saved: Mapping[str, float]) -> Weighed:
    """Match kernels with operators, and weigh them. ``saved`` has the part of an operator's time
    that a variant saves.

    A kernel has the correlation id of the call of the runtime that launched it. The operators
    around that call, on its thread, are nested. The outermost one with recorded extents has the
    kernel: it is what the model called.
    """
    events = [event for event in trace.events if event.ph == "X"]
    steps = [event for event in events if event.name.startswith(STEP) and event.cat not in GPU_WORK]
    steps = [event for event in steps if not event.cat.startswith("gpu")]
    calls = {event.args.correlation: event for event in events if event.cat in CALLS}
    operators = _operators(events)
    first = min((step.ts for step in steps), default=0.0)
    last = max((step.end for step in steps), default=float("inf"))
    total: dict[tuple[str, str], list[float]] = {}
    callers: dict[tuple[str, str], set[object]] = {}
    inside = []
    for kernel in events:
        call = calls.get(kernel.args.correlation)
        if kernel.cat not in GPU_WORK or not first <= (call or kernel).ts <= last:
            continue
        inside.append(kernel)
        operator = operators.get(kernel.args.correlation)
        key = (operator.name, extents(operator)) if operator else (kernel.name, "")
        total.setdefault(key, []).append(kernel.dur)
        callers.setdefault(key, set()).add(id(operator or kernel))
    begin = first if steps else min((kernel.ts for kernel in inside), default=0.0)
    end = max([kernel.end for kernel in inside] + [step.end for step in steps], default=0.0)
    span = max(end - begin, 1e-9)
    weights = []
    for (name, shape), times in total.items():
        spent = added(times)
        share = spent / span
        most = share * saved[name] if name in saved else None
        calls_made = len(callers[name, shape])
        weights.append(Weight(name, shape, calls_made, len(times), spent, share, most))
    count = max(len(steps), 1)
    return Weighed(count, span / count, tuple(sorted(weights, key=lambda w: -w.microseconds)))


def _operators(events: Sequence[TraceEvent]) -> dict[object, TraceEvent]:
    """The outermost operator with recorded extents around each call of the runtime, by its
    correlation id.
    """
    operators: dict[object, TraceEvent] = {}
    threads: dict[
        object, list[TraceEvent]
    ] = {}  # operators that have not ended, the outermost first
    relevant = (event for event in events if event.cat in ("cpu_op", *CALLS))
    for event in sorted(relevant, key=lambda event: (event.ts, -event.dur)):
        around = threads.setdefault((event.pid, event.tid), [])
        around[:] = [operator for operator in around if operator.end >= event.ts]
        if event.cat == "cpu_op":
            around.append(event)
        elif outermost := next((each for each in around if any(each.args.dims or ())), None):
            operators[event.args.correlation] = outermost
    return operators


def extents(operator: TraceEvent) -> str:
    """``[2, 8, 512, 64] x3``: the extents of an operator's tensors."""
    shapes = [str(dims) for dims in operator.args.dims or () if dims]
    counted = {shape: shapes.count(shape) for shape in dict.fromkeys(shapes)}
    return ", ".join(
        f"{shape} x{count}" if count > 1 else shape for shape, count in counted.items()
    )
