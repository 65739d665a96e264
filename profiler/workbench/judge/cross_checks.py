"""The gates by counters and clocks: cross-checks of a time. Pure.

ncu runs a variant in another process and reads hardware: which kernels ran, for how long, and how
many operations and bytes they did. A timing that its own capture contradicts is a wrong timing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import geometric_mean, median

from workbench.derive.figures import DURATION, added, by_launch
from workbench.derive.roofline.ceilings import DRAM, L2, TENSOR, counted_flops, peaks
from workbench.derive.speedup import TwoClocks
from workbench.evidence.timing import GraphNode, Series, Timing
from workbench.judge.findings import NOT_COLLECTED, Finding, finding, joined, number_of
from workbench.judge.gates import DURATION as DURATION_GATE
from workbench.judge.gates import KERNELS, UNCHECKED, WORK, Gate
from workbench.judge.times import clocks_finding
from workbench.load import VariantEvidence
from workbench.ncu.capture import Launched
from workbench.study.model import Work
from workbench.words import ABSENT, GateState, NodeKind, Regime

OUTPUTS, COMPARED = "timed outputs", "compared with"


def cross_check_gates(case: Case) -> tuple[Gate, ...]:
    """All cross-checks of a variant."""
    return (
        kernels_gate(case),
        *clocks_gate(case),
        duration_gate(case),
        work_gate(case),
        outputs_gate(case),
    )


def compared_gates(compared: Iterable[Case]) -> tuple[Gate, ...]:
    """Failed, of each whose time is contradicted, since a ratio over a wrong time is wrong; none
    of the others.
    """
    return tuple(
        Gate(COMPARED, GateState.FAILED, _wrong_time(case.variant, gate.why))
        for case in compared
        if (gate := duration_gate(case)).state == GateState.FAILED
    )


def _wrong_time(variant: str, why: Finding) -> Finding:
    message = f"{variant} has a wrong time: {why.message}"
    return finding("compared", message, variant=variant, why=why)


def kernels_gate(case: Case) -> Gate:
    """The kernels of the timed graph are those that the capture saw: names, grids, blocks."""
    nodes, launched = case.nodes, case.launched
    if unchecked := next((series for series in case.series if series.unchecked), None):
        line = unchecked.refused_at
        waits = f", which waits for the GPU at {line}" if line else ""
        message = f"no CUDA graph can capture a call{waits}: its time, in a stream, is unchecked"
        return Gate(KERNELS, GateState.OPEN, finding(UNCHECKED, message, line=line))
    if nodes is None or launched is None:
        return Gate(KERNELS, GateState.OPEN, NOT_COLLECTED)
    if not nodes:
        why = finding("kernels.empty_graph", "the timed graph is empty: it launched nothing")
        return Gate(KERNELS, GateState.FAILED, why)
    ways = case.timing.ways.get(case.variant, ()) if case.timing else ()
    every = [Counter(_node(n) for n in way if n.kind == NodeKind.KERNEL) for way in (nodes, *ways)]
    timed, seen = every[0], Counter(_launch(launch) for launch in launched)
    if seen not in every:
        not_captured, not_timed = _listed(timed - seen), _listed(seen - timed)
        parts = [
            f"timed and not captured: {joined(not_captured)}" if not_captured else "",
            f"captured and not timed: {joined(not_timed)}" if not_timed else "",
        ]
        why = finding(
            "kernels.differ",
            "; ".join(filter(None, parts)),
            not_captured=not_captured,
            not_timed=not_timed,
        )
        return Gate(KERNELS, GateState.FAILED, why)
    others = Counter(node.kind for node in nodes if node.kind != NodeKind.KERNEL)
    count = len(every) if ways else None
    message = f"{number_of(timed.total(), 'kernel')} timed as captured" + "".join(
        f", and {number_of(others[kind], kind)}"
        for kind in (NodeKind.MEMCPY, NodeKind.MEMSET, NodeKind.OTHER)
        if others[kind]
    )
    message += f", one of {count} ways that instances chose" if count else ""
    why = finding(
        "kernels.as_captured",
        message,
        kernels=timed.total(),
        ways=count,
        **{f"{kind}s": number for kind, number in others.items()},
    )
    return Gate(KERNELS, GateState.PASSED, why)


Signature = tuple[str, tuple[int, ...], tuple[int, ...]]


def _node(node: GraphNode) -> Signature:
    return node.kernel, node.grid, node.block


def _launch(launch: Launched) -> Signature:
    return launch.mangled, launch.grid or (), launch.block or ()


def _listed(found: Counter[Signature]) -> tuple[Finding, ...]:
    return tuple(
        _kernel(kernel, grid, block, times)
        for (kernel, grid, block), times in sorted(found.items())
    )


def _kernel(kernel: str, grid: tuple[int, ...], block: tuple[int, ...], times: int) -> Finding:
    blocks, threads = (" x ".join(map(str, extents)) or ABSENT for extents in (grid, block))
    message = f"{kernel or ABSENT} ({blocks} blocks of {threads} threads)"
    several = times if times > 1 else None
    message = f"{times} times {message}" if several else message
    return finding("kernel", message, kernel=kernel, grid=grid, block=block, times=several)


def outputs_gate(case: Case) -> Gate:
    """The outputs of timed calls were right."""
    audits = case.timing.audits.get(case.variant) if case.timing else None
    if not audits:
        return Gate(OUTPUTS, GateState.OPEN, NOT_COLLECTED)
    wrong = next((audit.why for audit in audits if audit.why), "")
    if wrong:
        return Gate(
            OUTPUTS,
            GateState.FAILED,
            finding("outputs.wrong", f"wrong while it was timed: {wrong}", text=wrong),
        )
    number = int(added(audit.outputs for audit in audits))
    message = f"{number_of(number, 'output')} of timed calls were right"
    return Gate(OUTPUTS, GateState.PASSED, finding("outputs.right", message, outputs=number))


@dataclass(frozen=True, eq=False)
class Case:
    """A timed variant, and what its time is checked by: capture, timing, work of one call.

    ``ceilings`` are measured, in FLOP/s and bytes/s by id.
    """

    evidence: VariantEvidence
    timing: Timing | None
    work: Work | None = None
    ceilings: Mapping[str, float] = field(default_factory=dict)
    clocks: TwoClocks | None = None

    @property
    def variant(self) -> str:
        return self.evidence.variant

    @property
    def launched(self) -> Sequence[Launched] | None:
        """Of a capture made here; None where there is none, or it is not known."""
        capture = self.evidence.capture
        return capture.launched if capture and self.evidence.was_profiled else None

    @property
    def series(self) -> Sequence[Series]:
        return self.timing.by_variant.get(self.variant, ()) if self.timing else ()

    @property
    def nodes(self) -> tuple[GraphNode, ...] | None:
        """Of the graph of one call; None where they were not recorded."""
        return self.timing.nodes.get(self.variant) if self.timing else None


@dataclass(frozen=True)
class Added:
    """What a call adds in the chained graph: µs, and the SM clock in GHz (None: not collected)."""

    microseconds: float
    ghz: float | None


def added_time(case: Case) -> Added | None:
    """Over the instances of all sessions: the median, or the geometric mean that is claimed, if a
    few fast instances make that smaller.
    """
    own = [series for series in case.series if series.regime == Regime.CHAINED]
    if not own:
        return None
    clocks = [mhz for series in own for mhz in series.mhz]
    every = [median(series.added) for series in own]
    added = median(every)
    if min(every) > 0:
        added = min(added, geometric_mean(every))
    return Added(added, median(clocks) / 1e3 if clocks else None)


def rates_of(case: Case) -> Mapping[str, float]:
    """Theoretical peaks at the clock of the timing where the capture has them, else measured."""
    capture = case.evidence.capture
    found = peaks(capture.metrics) if capture else None
    if found is None:
        return case.ceilings
    time = added_time(case)
    faster = max(1.0, time.ghz * 1e9 / found.sm_clock) if time and time.ghz else 1.0
    scaled = {name: rate * (1.0 if name == DRAM else faster) for name, rate in found.rates.items()}
    return {**case.ceilings, **scaled}


CLOCKS = "clocks"


def clocks_gate(case: Case) -> tuple[Gate, ...]:
    """Stamps and events agree on the time of a call; none of a method with one clock."""
    if case.timing is None or case.timing.method == 1:
        return ()
    if case.clocks is None:
        return (Gate(CLOCKS, GateState.OPEN, NOT_COLLECTED),)
    state = GateState.OPEN if case.clocks.disagree else GateState.PASSED
    return (Gate(CLOCKS, state, clocks_finding(case.clocks)),)


# A call cannot take half as long as its longest launch does in another process, under ncu. No
# closer: ncu runs it at another clock, and with less in L2. Honest kernels take 1.15 times this
# or more (docs/trust.md).
LEAST_SHARE, UNDER_NCU_US = 0.5, 0.6
CLOCK = "gpc__cycles_elapsed.avg.per_second"
DRAM_READ = ("dram__bytes_read.sum", "dram__bytes_op_read.sum")


@dataclass(frozen=True)
class Profiled:
    """µs that launches took under ncu: of the ``longest`` at the clock of the timing or its own,
    whichever is shorter, and of all, whichever is longer. ``from_caches`` is the longest without
    what its reads from DRAM take, if ncu emptied the caches first.
    """

    longest: float
    from_caches: float
    total: float


def profiled(case: Case, ghz: float | None) -> Profiled | None:
    """A kernel bound by the SMs takes the same cycles at any clock, one bound by DRAM the same
    time: a launch has both. None without a capture made here.
    """
    capture = case.evidence.capture
    if capture is None or not case.evidence.was_profiled:
        return None
    shortest, longest, from_caches = [], [], []
    index, rate = case.evidence.index, rates_of(case).get(DRAM)
    emptied = index is None or index.was_flushed
    for values in by_launch(capture.metrics).values():
        if DURATION not in values:
            return None
        own = values[DURATION] * 1e-3
        clock = values.get(CLOCK, 0.0) * 1e-9
        scaled = own * clock / ghz if ghz and clock else own
        read = next((values[name] for name in DRAM_READ if name in values), 0.0)
        shortest.append(min(own, scaled))
        longest.append(max(own, scaled))
        from_caches.append(shortest[-1] - (read * 1e6 / rate if rate and emptied else 0.0))
    if not longest:
        return None
    return Profiled(longest=max(shortest), from_caches=max(from_caches), total=sum(longest))


def duration_gate(case: Case) -> Gate:
    """The time that a call adds is no wonder beside what its launches took under ncu."""
    time = added_time(case)
    under_ncu = profiled(case, time.ghz if time else None)
    if time is None or under_ncu is None:
        return Gate(DURATION_GATE, GateState.OPEN, NOT_COLLECTED)
    took = time.microseconds
    least = LEAST_SHARE * under_ncu.from_caches - UNDER_NCU_US
    if took < least:
        why = finding(
            "duration.below",
            f"{_a_call(took, under_ncu.longest)}: at least {least:.2f} µs it must be",
            microseconds=took,
            ncu_us=under_ncu.longest,
            least_us=least,
        )
        return Gate(DURATION_GATE, GateState.FAILED, why)
    message = _a_call(took, under_ncu.total)
    why = finding("duration.accounted", message, microseconds=took, ncu_us=under_ncu.total)
    return Gate(DURATION_GATE, GateState.PASSED, why)


def _a_call(microseconds: float, under_ncu: float) -> str:
    return f"a call takes {microseconds:.2f} µs, and its launches {under_ncu:.2f} µs under ncu"


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
    """The capture did what one call needs, and the call was not faster than the GPU can be."""
    work, capture = case.work, case.evidence.capture
    if work is None or capture is None or not case.evidence.was_profiled:
        return Gate(WORK, GateState.OPEN, NOT_COLLECTED)
    parts = [_operations(case, work), _bytes(case, work), _reads(case, work), _floor(case, work)]
    known = [part for part in parts if part is not None]
    for state in (GateState.FAILED, GateState.OPEN):
        if first := next((part for part in known if part.state == state), None):
            return first
    if not known:
        return Gate(WORK, GateState.OPEN, NOT_COLLECTED)
    whys = tuple(part.why for part in known)
    return Gate(WORK, GateState.PASSED, finding("work.done", joined(whys), findings=whys))


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
    return _at_least(done, work.flops, "operations")


def _bytes(case: Case, work: Work) -> Gate | None:
    """Between the SMs and L2 every operand goes at least once, unless copies and memsets do it."""
    launched = case.launched
    if not work.bytes or not launched or any(x.l2_bytes is None for x in launched):
        return None
    found = _at_least(sum(x.l2_bytes or 0.0 for x in launched), work.bytes, "bytes")
    if found.state == GateState.FAILED and _has_others(case):
        message = (
            f"{found.why.values['ratio']:.2f} times the bytes through L2 that it needs; copies or "
            "memsets may do the others, and ncu does not see them"
        )
        why = finding("work.bytes_unseen", message, **found.why.values)
        return replace(found, state=GateState.OPEN, why=why)
    return found


def _reads(case: Case, work: Work) -> Gate | None:
    """What L2 cannot have held comes from DRAM: it may hold as much for every launch, unless ncu
    emptied it. What a call wrote is no input: by L2, or by DRAM and as much as L2 may keep. None
    beside copies and memsets, of which ncu sees nothing.
    """
    figures, index, nodes = case.evidence.figures, case.evidence.index, case.nodes
    l2 = index.provenance.l2_bytes if index else None
    launches = len(case.launched or ())
    if index is None or not l2 or not launches or not nodes:
        return None
    if _has_others(case):
        return None
    if not {"dram_read", "dram_write", "l1_to_l2"} <= figures.keys():
        return None
    read, to_dram, to_l2 = (
        figures[name].value * 1e6 for name in ("dram_read", "dram_write", "l1_to_l2")
    )
    inputs = work.bytes - min(to_l2, to_dram + launches * l2)
    needed = inputs - (0 if index.was_flushed else launches * l2)
    if needed <= 0:
        return None
    is_missing = read < LEAST_WORK * needed
    code, message = "work.reads", f"{read / inputs:.2f} times its inputs from DRAM"
    if is_missing:
        code = "work.reads_missing"
        message = (
            f"{read:.3g} B from DRAM, of {inputs:.3g} of inputs of which L2 can hold all but "
            f"{needed:.3g}: reads are missing"
        )
    why = finding(code, message, done=read, needed=needed, inputs=inputs, ratio=read / inputs)
    return Gate(WORK, GateState.FAILED if is_missing else GateState.PASSED, why)


def _has_others(case: Case) -> bool:
    """Whether a call has copies or memsets, of which ncu sees nothing."""
    return any(node.kind != NodeKind.KERNEL for node in case.nodes or ())


def _at_least(done: float, needed: float, what: str) -> Gate:
    is_missing = done < LEAST_WORK * needed
    counted, unit = ("operations", "FLOP") if what == "operations" else ("bytes through L2", "B")
    code, message = f"work.{what}", f"{done / needed:.2f} times the {counted} that it needs"
    if is_missing:
        code = f"work.{what}_missing"
        message = f"{done:.3g} {unit} of {needed:.3g} that one call needs: {counted} are missing"
    why = finding(code, message, done=done, needed=needed, ratio=done / needed)
    return Gate(WORK, GateState.FAILED if is_missing else GateState.PASSED, why)


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
    took = time.microseconds
    if took < floor:
        message = f"{took:.3g} µs, where the GPU needs {floor:.3g} µs for its {what} alone"
        why = finding("work.too_fast", message, microseconds=took, least_us=floor, unit=what)
        return Gate(WORK, GateState.FAILED, why)
    why = finding("work.floor", f"the GPU's floor is {floor:.3g} µs", least_us=floor)
    return Gate(WORK, GateState.PASSED, why)
