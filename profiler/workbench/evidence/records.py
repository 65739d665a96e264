"""The records of the evidence folder, as they stand on disk under the schema that each kind has.
The journal has its own.

Keys that a record does not have are passed over: a newer version may write more of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from statistics import fmean, median
from typing import Annotated, ClassVar

import msgspec

from workbench.study.files import REPAIR
from workbench.words import SCHEMA_VERSION, CheckResult, NodeKind, Parameter, Regime, grouped

Number = int | float
Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
# Of what is measured and cannot be negative, in any unit that is used.
Measure = (
    Annotated[int, msgspec.Meta(ge=0, le=10**12)] | Annotated[float, msgspec.Meta(ge=0, le=1e12)]
)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """``repair`` is the way out where a file of this kind is damaged, ``schema`` its version."""

    schema: ClassVar[int] = SCHEMA_VERSION
    repair: ClassVar[str] = REPAIR


class Environment(Record, frozen=True, kw_only=True, omit_defaults=True):
    """GPU, driver and libraries of the process that measured; sizes in bytes, ``gpu_uuid`` NVML's.
    ``host`` is a digest of the machine's name, ``packages`` the versions of what references need.
    None is not collected, and is not written.
    """

    gpu: str | None = None
    gpu_uuid: str | None = None
    host: str | None = None
    compute_capability: str | None = None
    sm_count: Count | None = None
    l2_bytes: Count | None = None
    memory_bytes: Count | None = None
    driver: str | None = None
    cuda: str | None = None
    nvrtc: str | None = None
    cudnn: str | None = None
    torch: str | None = None
    cuda_core: str | None = None
    python: str | None = None
    packages: dict[str, str] | None = None


class Provenance(Environment, frozen=True, kw_only=True, omit_defaults=True):
    """The origin of a record; ``date`` is in UTC, ``command`` what the user ran."""

    date: str
    workbench: str | None = None
    command: str | None = None
    ncu_command: str | None = None


class BuiltKernel(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One kernel as ptxas reports it; sizes in bytes, of which 0 is not written, registers per
    thread.

    ``code`` is the sha256 of its machine code, without lines and names of files; "" is not
    collected, or of a kernel that the variant does not launch. ``compiler`` is named of a source
    that nvcc or NVRTC may compile; else it is NVRTC.
    """

    kernel: str
    registers: Count
    shared_bytes: Count = 0
    stack_bytes: Count = 0
    spill_store_bytes: Count = 0
    spill_load_bytes: Count = 0
    source: str
    code: str = ""
    compiler: str = ""


class Build(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The build of a variant; ``error`` says why it does not compile, ``hint`` what to do."""

    variant: str
    fingerprint: str
    sources: tuple[str, ...]
    arch: str
    kernels: tuple[BuiltKernel, ...]
    warnings: tuple[str, ...]
    error: str
    provenance: Provenance
    hint: str = ""


class CheckOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A variant against the float64 reference at one shape; errors are None where it has none.

    ``times_reference`` is the worst error as a multiple of the primary reference's error on the
    same inputs, and ``kind`` the kind of inputs that it comes from: empty for the plain ones.
    ``rounding``: that error is no more than rounding, or the study's own check accepts it, so that
    the multiple fails nothing. ``varies``: the same inputs gave other bits. ``output`` is the one
    of several that decided, and ``hint`` the way out of what is wrong.
    """

    status: CheckResult
    why: str = ""
    max_abs: Number | None = None
    relative: Number | None = None
    times_reference: Number | None = None
    rounding: bool = False
    kind: str = ""
    varies: bool = False
    output: str = ""
    hint: str = ""


class Check(CheckOutcome, frozen=True, kw_only=True, omit_defaults=True):
    """A finding of the sources with this fingerprint."""

    fingerprint: str


class VariantRecord(Record, frozen=True, kw_only=True, omit_defaults=True):
    """``variants/<variant>.json``: its build, and its checks by shape; ``checked`` says by what."""

    variant: str
    build: Build | None = None
    checks: dict[str, Check] = msgspec.field(default_factory=dict)
    checked: Provenance | None = None


class DerivedShape(Record, frozen=True, kw_only=True):
    """``<shape>/shape.json``: the parameters of a shape that the study does not list."""

    shape: str
    parameters: dict[str, Parameter]


class CapturedKernel(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A kernel as a capture has it: registers a thread, bytes of shared memory a block (its own and
    what was asked for at the launch), and executed instructions that spill registers.
    """

    kernel: str
    registers: Count | None = None
    shared_bytes: Count | None = None
    spill_instructions: Count | None = None


class CaptureIndex(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The launches of a variant: those in an NVTX ``range`` of a report, whose ``sha256`` is that
    of the report as kept. ``resources`` are of its kernels, each once.
    """

    variant: str
    shape: str
    fingerprint: str
    report: str
    sha256: str
    range: str
    launches: Count
    ncu: str
    ncu_flags: tuple[str, ...]
    provenance: Provenance
    resources: tuple[CapturedKernel, ...] | None = None

    def __post_init__(self) -> None:
        name = self.report
        if not name or "/" in name or "\0" in name or name.startswith("."):
            raise ValueError(f"has 'report' {name!a}, no file in the folder of reports")

    @property
    def was_flushed(self) -> bool:
        """Whether ncu emptied the caches before the capture: its inputs come from DRAM, not L2."""
        return "--cache-control none" not in " ".join(self.ncu_flags)


class Captures(Record, frozen=True, kw_only=True):
    """``<shape>/captures.json``: the captures at one shape by variant."""

    captures: dict[str, CaptureIndex]


Ticks = tuple[Count, ...]


class TracedLaunch(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One launch by the clock of the GPU, all in ticks of ``tick_ns``. ``sms``, ``starts`` and
    ``lives`` have a value a block, in the order of block indices; ``begin`` is that of the launch
    after the first one of its call, and a block's start is after that of the launch.

    Every ``stride``-th block has its ``warps`` in ``warp_starts``, after the start of the block,
    and ``warp_lives``, block by block. ``in_graph``: a CUDA graph's, which the host does not hold
    up.
    """

    kernel: str
    warps: Count
    in_graph: bool
    tick_ns: Annotated[int, msgspec.Meta(gt=0, le=10**9)]
    begin: Count
    sms: Ticks
    starts: Ticks
    lives: Ticks
    stride: Annotated[int, msgspec.Meta(gt=0)]
    warp_starts: Ticks
    warp_lives: Ticks

    def __post_init__(self) -> None:
        blocks, rows = len(self.starts), -(-len(self.starts) // self.stride) * self.warps
        lengths = (len(self.sms), len(self.lives), len(self.warp_starts), len(self.warp_lives))
        if not rows or lengths != (blocks, blocks, rows, rows):
            raise ValueError("has columns of different lengths, or none")


class Timeline(Record, frozen=True, kw_only=True):
    """``<shape>/timelines/<variant>.json.zst``: when the warps of one call ran, launch by launch,
    in a run of its own that nothing was timed in. ``iket`` is the version of what recorded it.
    """

    variant: str
    shape: str
    fingerprint: str
    iket: str
    provenance: Provenance
    launches: tuple[TracedLaunch, ...]


class ShippedTime(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The measured time of a shipped variant at a shape: microseconds of a call, chained, and how
    many times faster it is than ``reference``, with the interval of ``level`` percent over
    ``sessions``.

    ``times_reference`` is its error as a multiple of the primary reference's, ``file`` the timing
    that the figures come from, by its path in the evidence folder.
    """

    shape: str
    microseconds: Measure
    sessions: Count
    file: str
    reference: str = ""
    ratio: Number | None = None
    low: Number | None = None
    high: Number | None = None
    level: int = 95
    times_reference: Number | None = None


class Shipped(Record, frozen=True, kw_only=True, omit_defaults=True):
    """``provenance.json`` of a package: what was shipped, and what is known of it.

    ``fingerprint`` is of the variant's sources, ``environment`` that of the evidence, ``gates`` say
    why the step is kept. ``keeps`` are the places where it may keep something from call to call.
    """

    repair: ClassVar[str] = "ship it again"

    date: str
    workbench: str
    study: str
    variant: str
    key_change: str
    fingerprint: str
    judged_at: str
    verdict: str
    gates: dict[str, str]
    commit: str
    environment: Provenance
    times: tuple[ShippedTime, ...]
    keeps: tuple[str, ...] = ()


METHOD = 2  # how times are measured now; see Timing
STEADY_WINDOWS = 3  # the last of a kernel alone, whose time counts


class GraphNode(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A node of a variant's CUDA graph; ``kernel`` is the mangled name, extents are x, y, z."""

    kind: NodeKind
    kernel: str = ""
    grid: tuple[int, int, int] = (0, 0, 0)
    block: tuple[int, int, int] = (0, 0, 0)
    shared_bytes: Count = 0


class Series(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One instance of a variant in one regime, by round.

    ``microseconds`` are of one of the ``calls`` in a graph, less the time between two stamps with
    nothing between them, of which ``gap`` is the median. Older recordings have the same
    ``by_events``, which nothing reads. ``unchecked``: no graph can capture a call, because of the
    line ``refused_at``, and these were queued in a stream. Method 1 has the time of a call with all
    that is around it, and in ``around`` that of the same graph without the variant in the same
    round. ``mhz`` and ``around_mhz`` are SM clocks inside of these graphs. ``control``: it is a
    second group of instances of the variant, which must come out as equal. Alone it has a value for
    every window of time in place of rounds, in which no other kernel ran: the time counts once it
    has settled.
    """

    variant: str
    instance: Count
    regime: Regime
    calls: Count
    microseconds: tuple[Measure, ...]
    around: tuple[Measure, ...] = ()
    mhz: tuple[Measure, ...] = ()
    around_mhz: tuple[Measure, ...] = ()
    control: bool = msgspec.field(default=False, name="twin")
    gap: Measure | None = None
    by_events: tuple[Number, ...] = ()
    unchecked: bool = False
    refused_at: str = ""

    def __post_init__(self) -> None:
        rounds = len(self.microseconds)
        for name in ("around", "mhz", "around_mhz"):
            if len(getattr(self, name)) not in (0, rounds):
                raise ValueError(f"has '{name}' of another length than 'microseconds', {rounds}")
        if not rounds or self.calls < 1:
            raise ValueError("has no rounds, or no calls")

    @property
    def settled(self) -> Series:
        """The series without the windows before clock and power had settled."""
        if self.regime != Regime.ALONE:
            return self
        last = slice(-STEADY_WINDOWS, None)
        return msgspec.structs.replace(
            self, microseconds=self.microseconds[last], mhz=self.mhz[last]
        )

    @property
    def added(self) -> list[float]:
        """Microseconds that a call takes or, by method 1, adds to its neighbours, by round."""
        if not self.around:
            return list(self.microseconds)
        return [t - around for t, around in zip(self.microseconds, self.around, strict=True)]


class Audit(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Outputs of timed calls against the float64 reference, after the timing: the worst
    ``relative`` error in norm, and ``why`` one is wrong.
    """

    variant: str
    outputs: Count
    relative: Number | None = None
    why: str = ""


class Witness(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A call of a variant by the clock of a process that runs no code of the user's, in µs, beside
    the ``anchor``'s in the same minute; ``deviation`` is the relative standard error of their
    ratio.

    ``audits`` calls of so many ``replays`` were compared with the expected results, drawn when all
    had run; ``relative`` is the error of the output that is kept. ``why`` they are wrong, or why
    the variant is ``unmeasured`` so; without an anchor that is nothing of its own.
    """

    variant: str
    anchor: str
    calls: Count = 0
    replays: Count = 0
    microseconds: Measure | None = None
    anchor_microseconds: Measure | None = None
    deviation: Measure | None = None
    audits: Count = 0
    relative: Number | None = None
    why: str = ""
    unmeasured: str = ""


# A session's time of an honest kernel and the referee's differ by 8 % or 0.8 µs at most, as they
# are or less what the anchor's differ by (docs/measuring.md): what a call leaves in L2 takes or
# saves those behind it time, which is in the referee's and in no session's.
APART, APART_US = 0.1, 1.0


def are_apart(in_session: float, by_referee: float, anchors: float = 0.0) -> bool:
    """Whether two times of a call, in microseconds, cannot both be right, where the anchor's takes
    ``anchors`` more in the session, too.
    """
    apart = in_session - by_referee
    return min(abs(apart), abs(apart - anchors)) > allowed_apart(in_session)


def allowed_apart(microseconds: float) -> float:
    """Return how many microseconds the referee may see more or less of a call of so many."""
    return max(APART * microseconds, APART_US)


def measured_in(every: Iterable[Series]) -> Mapping[str, tuple[float, float]]:
    """Microseconds and thousands of cycles of a chained call of each variant."""
    chained = grouped(
        (series.variant, (time, time * median(series.mhz or (1.0,))))
        for series in every
        if series.regime == Regime.CHAINED and not series.control
        for time in [median(series.microseconds)]
    )
    return {
        name: (fmean(time for time, _ in many), fmean(cycles for _, cycles in many))
        for name, many in chained.items()
    }


class Session(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One timing process. ``alone``: it held references only, no step's code was in it.

    ``throttled`` is the share of rounds in which the GPU said that it slowed itself down, by what
    (``reasons``, NVML's names); ``temperature_c`` at its end. ``instances`` a variant.
    """

    number: Count
    instances: Count
    series: tuple[Series, ...]
    audits: tuple[Audit, ...] = ()
    alone: bool = False
    temperature_c: Number | None = None
    throttled: Measure | None = None
    reasons: tuple[str, ...] = ()


Call = tuple[GraphNode, ...]  # its nodes


def other_ways(*every: Call) -> tuple[Call, ...]:
    """Keep calls that differ from the first and from each other, in whatever order."""
    ways = {frozenset(Counter(call).items()): call for call in reversed(every)}
    ways.pop(frozenset(Counter(every[0]).items()))
    return tuple(reversed(ways.values()))


class Timing(Record, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """``<shape>/timings/<date>.json.zst``: some variants timed together, in several sessions.

    ``method`` 1 timed a graph and took off the time of the same graph without the variant, which
    finds other things in L2; 2 has stamps around each call. ``fingerprints`` are those of the
    variants, ``nodes`` the graph of one call of each. Of ``stride`` pieces of 16 bytes the
    neighbours write and read one (method 2: all); what is constant is held in so many ``copies``,
    which calls have in turn. ``planned`` sessions hold every variant; more came
    where a verdict was open. ``ways`` are the other nodes that calls of some instances launched, of
    variants that choose them in their first calls. ``witnesses`` of the times are other processes.
    """

    schema: ClassVar[int] = 2

    study: str
    shape: str
    fingerprints: dict[str, str]
    nodes: dict[str, tuple[GraphNode, ...]]
    stride: Count
    sessions: tuple[Session, ...]
    provenance: Provenance
    method: Count = 1
    copies: Count = 1
    planned: Count = 0  # not recorded
    ways: dict[str, tuple[Call, ...]] = msgspec.field(default_factory=dict)
    witnesses: tuple[Witness, ...] = ()

    @cached_property
    def by_variant(self) -> Mapping[str, list[Series]]:
        return grouped(
            (series.variant, series) for session in self.sessions for series in session.series
        )

    @cached_property
    def audits(self) -> Mapping[str, list[Audit]]:
        """Of sessions, which audited themselves before the referee did, and of the referee."""
        by_referee = [
            Audit(variant=seen.variant, outputs=seen.audits, relative=seen.relative, why=seen.why)
            for seen in self.witnesses
            if seen.audits or seen.why
        ]
        every = (*(audit for session in self.sessions for audit in session.audits), *by_referee)
        return grouped((audit.variant, audit) for audit in every)

    @cached_property
    def refereed(self) -> frozenset[str]:
        """The variants that the referee timed, and what it timed them beside."""
        timed = [seen for seen in self.witnesses if seen.microseconds is not None]
        return frozenset(name for seen in timed for name in (seen.variant, seen.anchor))

    @property
    def unrefereed(self) -> frozenset[str]:
        """The variants that it tried to time, and could not."""
        return frozenset(seen.variant for seen in self.witnesses if seen.unmeasured)

    @cached_property
    def wrong(self) -> Mapping[str, str]:
        """Variants of which a timed call gave a wrong output, and what was wrong with it."""
        audits = (audit for every in self.audits.values() for audit in every)
        return {audit.variant: audit.why for audit in audits if audit.why}

    @cached_property
    def chained(self) -> frozenset[str]:
        """The variants that were timed in the regime that decides."""
        return frozenset(
            variant
            for variant, every in self.by_variant.items()
            if any(one.regime == Regime.CHAINED and not one.control for one in every)
        )

    @cached_property
    def together(self) -> tuple[Session, ...]:
        """The sessions that held steps and references side by side: ratios are theirs."""
        return tuple(session for session in self.sessions if not session.alone)

    @cached_property
    def fewest(self) -> int:
        """How many sessions hold every variant."""
        held = Counter(
            name for one in self.together for name in {series.variant for series in one.series}
        )
        return min(held.values(), default=0)

    @property
    def first_planned(self) -> int:
        """The planned number of sessions; if not recorded, how many hold every variant."""
        return self.planned or self.fewest

    @property
    def is_complete(self) -> bool:
        """Whether it has the sessions that were planned: a process that is killed leaves fewer."""
        return len(self.together) >= self.planned


PACKED = ".zst"  # at the end of the name of a file that is compressed


def timing_name(file: str) -> str:
    """Return the name of a timing in the journal: without how it is compressed."""
    return file.removesuffix(PACKED)
