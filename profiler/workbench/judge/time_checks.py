"""Cross-checks of a time by counters, by clocks and by the referee. Pure.

ncu runs a variant in another process and reads hardware: which kernels ran, for how long, and how
many operations and bytes they did. A timing that its own capture contradicts is a wrong timing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import geometric_mean, median

from workbench.derive.factors import INSTRUCTIONS
from workbench.derive.figures import DURATION, added
from workbench.derive.rooflines import TENSOR, Peaks, counted_flops
from workbench.evidence.records import GraphNode, Series, Timing, Witness, are_apart, measured_in
from workbench.judge.findings import NOT_COLLECTED, Finding, Gate, Value, finding, gate, number_of
from workbench.judge.session_checks import interference_of
from workbench.load import TimedTogether, VariantEvidence
from workbench.ncu.capture import Launched
from workbench.ncu.catalog import DRAM, GPC_CLOCK, L2, catalog
from workbench.study.config import Gates
from workbench.study.model import Step
from workbench.study.values import Work
from workbench.words import ABSENT, GateState, NodeKind, Regime

KERNELS, DURATION_GATE, WORK = "kernels", "duration", "work"
OUTPUTS, REFEREE = "timed outputs", "referee"
UNCHECKED = "kernels.unchecked"


def cross_check_gates(case: Case) -> tuple[Gate, ...]:
    return (kernels_gate(case), duration_gate(case), work_gate(case), outputs_gate(case))


def compared_gates(compared: Iterable[Case]) -> Iterator[Gate]:
    """Give a failed gate for each case whose time is contradicted: a ratio over it is wrong."""
    for case in compared:
        if why := duration_gate(case).failure or slowed(case):
            message = f"{case.variant} has a wrong time: {why.message}"
            yield gate("compared with", False, "compared", message, variant=case.variant, why=why)


def kernels_gate(case: Case) -> Gate:
    """The kernels of the timed graph are those that the capture saw: names, grids, blocks."""
    nodes, launched = case.nodes, case.launched
    if unchecked := next((series for series in case.series if series.unchecked), None):
        line = unchecked.refused_at
        waits = f", which waits for the GPU at {line}" if line else ""
        message = f"no CUDA graph can capture a call{waits}: its time, in a stream, is unchecked"
        return gate(KERNELS, None, UNCHECKED, message, line=line)
    if nodes is None or launched is None:
        return Gate(KERNELS)
    if not nodes:
        message = "the timed graph is empty: it launched nothing"
        return gate(KERNELS, False, "kernels.empty_graph", message)
    ways = case.timing.ways.get(case.variant, ()) if case.timing else ()
    every: list[Counter[Signature]] = [
        Counter((n.kernel, n.grid, n.block) for n in way if n.kind == NodeKind.KERNEL)
        for way in (nodes, *ways)
    ]
    timed = every[0]
    seen = Counter[Signature]((x.mangled, x.grid or (), x.block or ()) for x in launched)
    if seen not in every:
        not_captured, not_timed = _listed(timed - seen), _listed(seen - timed)
        parts = [
            f"timed and not captured: {', '.join(map(str, not_captured))}" if not_captured else "",
            f"captured and not timed: {', '.join(map(str, not_timed))}" if not_timed else "",
        ]
        differing = {"not_captured": not_captured, "not_timed": not_timed}
        message = "; ".join(filter(None, parts))
        return gate(KERNELS, False, "kernels.differ", message, **differing)
    others = Counter(node.kind for node in nodes if node.kind != NodeKind.KERNEL)
    count = len(every) if ways else None
    message = f"{number_of(timed.total(), 'kernel')} timed as captured" + "".join(
        f", and {number_of(others[kind], kind)}"
        for kind in (NodeKind.MEMCPY, NodeKind.MEMSET, NodeKind.OTHER)
        if others[kind]
    )
    message += f", one of {count} ways that instances chose" if count else ""
    numbers = {"kernels": timed.total(), "ways": count}
    numbers |= {f"{kind}s": number for kind, number in others.items()}
    return gate(KERNELS, True, "kernels.as_captured", message, **numbers)


Signature = tuple[str, tuple[int, ...], tuple[int, ...]]


def _listed(signatures: Counter[Signature]) -> tuple[Finding, ...]:
    return tuple(_kernel(*signature, times) for signature, times in sorted(signatures.items()))


def _kernel(kernel: str, grid: tuple[int, ...], block: tuple[int, ...], times: int) -> Finding:
    blocks, threads = (" x ".join(map(str, extents)) or ABSENT for extents in (grid, block))
    message = f"{kernel or ABSENT} ({blocks} blocks of {threads} threads)"
    several = times if times > 1 else None
    message = f"{times} times {message}" if several else message
    return finding("kernel", message, kernel=kernel, grid=grid, block=block, times=several)


def outputs_gate(case: Case) -> Gate:
    """The outputs of timed calls were right."""
    timing = case.audited or case.timing
    audits = timing.audits.get(case.variant) if timing else None
    if not audits:
        witnesses = timing.witnesses if timing else ()
        impossible = any(not witness.anchor for witness in witnesses)
        return Gate(OUTPUTS, binding=not impossible)
    wrong = next((audit.why for audit in audits if audit.why), "")
    if wrong:
        return gate(
            OUTPUTS, False, "outputs.wrong", f"wrong while it was timed: {wrong}", text=wrong
        )
    number = int(added(audit.outputs for audit in audits))
    message = f"{number_of(number, 'output')} of timed calls were right"
    return gate(OUTPUTS, True, "outputs.right", message, outputs=number)


@dataclass(frozen=True, eq=False)
class Case:
    """A timed variant, and what its time is checked by: capture, timing, work of one call.

    ``theory`` has the peaks by its capture, ``ceilings`` are measured, in FLOP/s and bytes/s by
    id. ``audited`` is another timing, if the referee's audits are of one.
    """

    evidence: VariantEvidence
    timing: Timing | None
    work: Work | None = None
    theory: Peaks | None = None
    ceilings: Mapping[str, float] = field(default_factory=dict)
    audited: Timing | None = None

    @property
    def variant(self) -> str:
        return self.evidence.variant

    @property
    def launched(self) -> Sequence[Launched] | None:
        """The launches of a capture made here; None where they are not recorded."""
        capture = self.evidence.capture
        return capture.launched if capture and self.evidence.was_profiled else None

    @property
    def series(self) -> Sequence[Series]:
        return self.timing.by_variant.get(self.variant, ()) if self.timing else ()

    @property
    def nodes(self) -> tuple[GraphNode, ...] | None:
        """The nodes of the graph of one call; None where they were not recorded."""
        return self.timing.nodes.get(self.variant) if self.timing else None

    @cached_property
    def microseconds(self) -> float | None:
        """The time that a call adds to the chained graph: the median over the instances of all
        sessions, or the geometric mean that is claimed, if a few fast instances make that smaller.
        """
        every = [median(series.added) for series in self._chained]
        if not every or min(every) <= 0:
            return median(every) if every else None
        return min(median(every), geometric_mean(every))

    @cached_property
    def ghz(self) -> float | None:
        """The SM clock of these instances, if collected."""
        clocks = [mhz for series in self._chained for mhz in series.mhz]
        return median(clocks) / 1e3 if clocks else None

    @property
    def _chained(self) -> list[Series]:
        return [series for series in self.series if series.regime == Regime.CHAINED]


def rates_of(case: Case) -> Mapping[str, float]:
    """Theoretical peaks at the clock of the timing where the capture has them, else measured."""
    theory = case.theory
    if theory is None:
        return case.ceilings
    faster = max(1.0, case.ghz * 1e9 / theory.sm_clock) if case.ghz else 1.0
    scaled = {name: rate * (1.0 if name == DRAM else faster) for name, rate in theory.rates.items()}
    return {**case.ceilings, **scaled}


# A call cannot take half as long as its longest launch does in another process, under ncu. No
# closer: ncu runs it at another clock, and with less in L2. Honest kernels take 1.1 times this
# or more (docs/trust.md).
LEAST_SHARE, UNDER_NCU_US = 0.5, 0.6


@dataclass(frozen=True)
class Profiled:
    """µs that launches took under ncu: of the ``longest`` at the clock of the timing or its own,
    whichever is shorter, and of all, whichever is longer. ``from_caches`` is the longest without
    what its reads from DRAM take, if ncu emptied the caches first.
    """

    longest: float
    from_caches: float
    total: float


def profiled(case: Case) -> Profiled | None:
    """A kernel bound by the SMs takes the same cycles at any clock, one bound by DRAM the same
    time: a launch has both. None without a capture made here.
    """
    capture, ghz = case.evidence.capture, case.ghz
    if capture is None or not case.evidence.was_profiled:
        return None
    shortest, longest, from_caches = [], [], []
    index, rate = case.evidence.index, rates_of(case).get(DRAM)
    reads = catalog()["dram_read"].names
    emptied = index is None or index.was_flushed
    for values in capture.metrics.by_launch.values():
        if DURATION not in values:
            return None
        duration = values[DURATION] * 1e-3
        clock = values.get(GPC_CLOCK, 0.0) * 1e-9
        scaled = duration * clock / ghz if ghz and clock else duration
        read = next((values[name] for name in reads if name in values), 0.0)
        shortest.append(min(duration, scaled))
        longest.append(max(duration, scaled))
        from_caches.append(shortest[-1] - (read * 1e6 / rate if rate and emptied else 0.0))
    if not longest:
        return None
    return Profiled(longest=max(shortest), from_caches=max(from_caches), total=sum(longest))


def duration_gate(case: Case) -> Gate:
    """The time that a call adds is no wonder beside what its launches took under ncu."""
    took, under_ncu = case.microseconds, profiled(case)
    if took is None or under_ncu is None:
        return Gate(DURATION_GATE)
    ncu = under_ncu.longest
    least = LEAST_SHARE * under_ncu.from_caches - UNDER_NCU_US
    code, message = "duration.below", f"{_a_call(took, ncu)}: at least {least:.2f} µs it must be"
    if took < least:
        values = {"microseconds": took, "ncu_us": ncu, "least_us": least}
        return gate(DURATION_GATE, False, code, message, **values)
    values = {"microseconds": took, "ncu_us": under_ncu.total}
    message = _a_call(took, under_ncu.total)
    return gate(DURATION_GATE, True, "duration.accounted", message, **values)


# Recorded calls take 1.12 times what all launches take under ncu at most, and 15 % less than this
# bound or better (docs/trust.md): 1 µs is for each launch, and for a call.
MOST_SHARE, LAUNCH_US = 1.25, 1.0


def slowed(case: Case) -> Finding | None:
    """Why its time is too long beside its capture: something slowed it while it was timed. None for
    a call with copies or memsets, which ncu does not see, or with other kernels than captured.
    """
    took, under_ncu, nodes = case.microseconds, profiled(case), case.nodes
    if took is None or under_ncu is None or not nodes:
        return None
    most = MOST_SHARE * under_ncu.total + LAUNCH_US * (1 + len(nodes))
    seen = all(node.kind == NodeKind.KERNEL for node in nodes)
    if took <= most or not seen or kernels_gate(case).state != GateState.PASSED:
        return None
    message = f"{_a_call(took, under_ncu.total)}: at most {most:.2f} µs it may be"
    values = {"microseconds": took, "ncu_us": under_ncu.total, "most_us": most}
    return finding("duration.above", message, **values)


def _a_call(microseconds: float, under_ncu: float) -> str:
    return f"a call takes {microseconds:.2f} µs, and its launches {under_ncu:.2f} µs under ncu"


PACKED_FLOPS = 64  # of a warp instruction at the most, outside of the tensor cores: two halves

LEAST_WORK = 0.90  # counters of several replay passes agree to some per cent

MARGIN = 1.05  # of a peak: clocks of two passes differ by so much in short kernels

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
        return Gate(WORK)
    results = [_operations(case, work), _bytes(case, work), _reads(case, work), _floor(case, work)]
    checked = [result for result in results if result is not None]
    for state in (GateState.FAILED, GateState.OPEN):
        if first := next((result for result in checked if result.state == state), None):
            return first
    if not checked:
        return Gate(WORK)
    whys = tuple(result.why for result in checked)
    return gate(WORK, True, "work.done", ", ".join(map(str, whys)), findings=whys)


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
        launches = capture.metrics.by_launch.values()
        done += PACKED_FLOPS * added(values.get(INSTRUCTIONS, 0.0) for values in launches)
        if done >= LEAST_WORK * work.flops:
            return None
    return _at_least(done, work.flops, "operations")


def _bytes(case: Case, work: Work) -> Gate | None:
    """Between the SMs and L2 every operand goes at least once, unless copies and memsets do it."""
    launched = case.launched
    if not work.bytes or not launched or any(x.l2_bytes is None for x in launched):
        return None
    moved = _at_least(sum(x.l2_bytes or 0.0 for x in launched), work.bytes, "bytes")
    if moved.failure and _has_others(case):
        message = (
            f"{moved.why.values['ratio']:.2f} times the bytes through L2 that it needs; copies or "
            "memsets may do the others, and ncu does not see them"
        )
        return gate(WORK, None, "work.bytes_unseen", message, **moved.why.values)
    return moved


def _reads(case: Case, work: Work) -> Gate | None:
    """Check reads from DRAM: L2 can hold only so much of the inputs, once for every launch unless
    ncu emptied it.

    What a call wrote is no input: by L2, or by DRAM and as much as L2 may keep. None beside copies
        and memsets, of which ncu sees nothing.
    """
    figures, index, nodes = case.evidence.figures, case.evidence.index, case.nodes
    l2 = index.provenance.l2_bytes if index else None
    launches = len(case.launched or ())
    if index is None or not l2 or not launches or not nodes or _has_others(case):
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
    values = {"done": read, "needed": needed, "inputs": inputs, "ratio": read / inputs}
    return gate(WORK, not is_missing, code, message, **values)


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
    values = {"done": done, "needed": needed, "ratio": done / needed}
    return gate(WORK, not is_missing, code, message, **values)


def _floor(case: Case, work: Work) -> Gate | None:
    """No call is faster than its operations at the peak of the fastest arithmetic that could do
    them, or its bytes at twice the rate of L2, which reads and writes at once.
    """
    took, rates = case.microseconds, rates_of(case)
    kinds = ARITHMETIC.get(work.dtype, ())
    peak = max((rates[kind] for kind in kinds if kind in rates), default=0.0)
    floors = {
        "operations": work.flops / peak if peak else 0.0,
        "bytes": work.bytes / (2 * rates[L2]) if rates.get(L2) else 0.0,
    }
    what = max(floors, key=lambda name: floors[name])
    floor = floors[what] / MARGIN * 1e6
    if took is None or not floor:
        return None
    if took < floor:
        message = f"{took:.3g} µs, where the GPU needs {floor:.3g} µs for its {what} alone"
        values: dict[str, Value] = {"microseconds": took, "least_us": floor, "unit": what}
        return gate(WORK, False, "work.too_fast", message, **values)
    message = f"the GPU's floor is {floor:.3g} µs"
    return gate(WORK, True, "work.floor", message, least_us=floor)


def referee_gate(
    timing: Timing, step: Step, stamps: float | None, limits: Gates, *, is_faster: bool
) -> tuple[Gate, ...]:
    """The referee, in whose process no variant runs, saw the work of timed calls done, in the time
    that the session's ``stamps`` say, and half of the gain that a faster step must have; none for
    what was timed without a referee, and for the one beside which it times all others. Where no
    variant can be timed so, for lack of memory for instance, the other gates decide.
    """
    witnesses = {witness.variant: witness for witness in timing.witnesses}
    if not witnesses or any(each.anchor == step.variant for each in witnesses.values()):
        return ()
    witness = witnesses.get(step.variant)
    if witness is None or witness.unmeasured or stamps is None:
        why = NOT_COLLECTED
        if witness and witness.unmeasured:
            message = f"not collected: {witness.unmeasured}"
            why = finding("referee.unmeasured", message, text=witness.unmeasured)
        return (Gate(REFEREE, GateState.OPEN, why, binding=not (witness and not witness.anchor)),)
    if witness.microseconds is None:
        message = "a call of it adds no time to its neighbours"
        return (gate(REFEREE, None, "referee.idle", message),)
    figures = {
        "microseconds": stamps,
        "by_referee": witness.microseconds,
        "audits": witness.audits,
        "ratio": _ratio_by_referee(witnesses, step.parent, step.variant),
    }
    least = least_by_referee(limits.min_speedup)
    seen = f"{witness.microseconds:.3g} µs by the referee's clock, {stamps:.3g} µs in sessions"
    code = "referee.agrees"
    if are_apart(stamps, witness.microseconds, anchors_apart(timing, witness)):
        code, seen = "referee.differs", f"the times differ: {seen}"
    elif is_faster:
        ratio = figures["ratio"]
        if ratio is None:
            code, seen = "referee.parent", f"not collected of {step.parent}"
        elif ratio < least:
            code = "referee.no_gain"
            seen = f"the referee sees {ratio:.3f}x of its parent, not {least:.4g}x; {seen}"
    message = f"{seen}; {number_of(witness.audits, 'call')} of it were right"
    return (gate(REFEREE, code == "referee.agrees" or None, code, message, **figures),)


def anchors_apart(timing: Timing, witness: Witness) -> float:
    """The microseconds by which the anchor's call takes longer in sessions than by the referee."""
    measured = measured_in(timing.by_variant.get(witness.anchor, ())).get(witness.anchor)
    if measured is None or witness.anchor_microseconds is None:
        return 0.0
    return measured[0] - witness.anchor_microseconds


def least_by_referee(min_speedup: float) -> float:
    """Half of the gain that is asked; a step that need not gain may lose 1 % more."""
    return min_speedup - max(0.01, (min_speedup - 1) / 2)


def _ratio_by_referee(
    witnesses: Mapping[str, Witness], parent: str | None, variant: str
) -> float | None:
    """How many times faster than its parent a variant is, each in the time of the same anchor."""
    in_anchors = {
        name: witness.microseconds / witness.anchor_microseconds
        for name, witness in witnesses.items()
        if witness.microseconds and witness.anchor_microseconds
    }
    in_anchors |= {witness.anchor: 1.0 for witness in witnesses.values()}
    if parent not in in_anchors or variant not in in_anchors:
        return None
    return in_anchors[parent] / in_anchors[variant]


INTERFERENCE = "interference"


def company_gate(timing: TimedTogether | None, reference: str) -> Gate:
    """Whether the primary reference takes as long beside the steps as alone. Open where it
    seems not to, and that may be chance, or where its time was lost; open and not binding where it
    was not timed beside them, since a study may have shapes that it does not support.
    """
    if timing is None:
        return Gate(INTERFERENCE)
    if (reference, Regime.CHAINED, False) not in timing.times:
        lost = lost_time(timing, reference)
        absent = f"not collected: {reference} was not timed beside it"
        why = lost or finding("interference.not_timed", absent, reference=reference)
        return Gate(INTERFERENCE, GateState.OPEN, why, binding=lost is not None)
    beside = interference_of(timing, reference)
    if beside is None:
        absent = f"{reference} alone: not collected"
        return gate(INTERFERENCE, None, "interference.not_alone", absent, reference=reference)
    state = GateState.OPEN if beside.is_off else GateState.PASSED
    return Gate(INTERFERENCE, GateState.FAILED if beside.is_disturbed else state, beside.said())


def lost_time(timing: TimedTogether, variant: str) -> Finding | None:
    """Why a variant that was timed has no time; None where it was not timed or has one."""
    if variant in timing.timing.wrong:
        message = f"the outputs of timed calls of {variant} were wrong: it has no time"
        return finding("untimed.wrong_outputs", message, variant=variant)
    return None
