"""The records of the evidence folder, as they stand on disk under the schema that each kind has:
files of builds, checks, captures, ceilings and timings, and lines of the journal.

Keys that a record does not have are passed over: a newer version may write more of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import msgspec

from workbench.words import SCHEMA_VERSION, CheckResult, Known, NodeKind, Parameter, Regime

Number = int | float
UNITS = ("FLOP/s", "byte/s")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """``mend`` is the way out where a file of this kind is damaged, ``schema`` its version."""

    schema: ClassVar[int] = SCHEMA_VERSION
    mend: ClassVar[str] = "restore it, or delete it and measure again"

    def written(self, content: dict[str, Any]) -> dict[str, Any]:
        """Its content without what a file of this kind leaves out to be smaller."""
        return content


def without_defaults(content: Mapping[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Of a record of this kind what is not as its fields begin."""
    begin = {each.name: each.default for each in msgspec.structs.fields(kind)}
    return {name: value for name, value in content.items() if value != begin[name]}


class Environment(Record, frozen=True, kw_only=True, omit_defaults=True):
    """GPU, driver and libraries of the process that measured; sizes in bytes.

    ``gpu_uuid`` is NVML's. ``host`` is a digest of the machine's name, which tells two machines
    apart and names neither. ``packages`` are the versions of what references need. None is not
    collected, and is not written.
    """

    gpu: str | None = None
    gpu_uuid: str | None = None
    host: str | None = None
    compute_capability: str | None = None
    sm_count: int | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    driver: str | None = None
    cuda: str | None = None
    nvrtc: str | None = None
    cudnn: str | None = None
    torch: str | None = None
    cuda_core: str | None = None
    python: str | None = None
    packages: dict[str, str] | None = None


class Provenance(Environment, frozen=True, kw_only=True, omit_defaults=True):
    """Where a record comes from; ``date`` is in UTC, ``command`` what the user ran."""

    date: str
    workbench: str | None = None
    command: str | None = None
    ncu_command: str | None = None


def require_file_name(field: str, name: str) -> None:
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise ValueError(f"has '{field}' {name!a}, no file in the folder of reports")


class BuiltKernel(Record, frozen=True, kw_only=True):
    """What ptxas reports of one kernel; sizes in bytes, of which 0 is not written, registers per
    thread. ``code`` is the sha256 of its machine code, without lines and names of files; "" is not
    collected, or of a kernel that the variant does not launch.
    """

    kernel: str
    registers: int
    shared_bytes: int = 0
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    source: str
    code: str = ""


class Build(Record, frozen=True, kw_only=True):
    """``builds/<variant>.json``: where it does not compile, ``error`` says why and ``hint`` what
    to do.
    """

    variant: str
    fingerprint: str
    sources: tuple[str, ...]
    arch: str
    kernels: tuple[BuiltKernel, ...]
    warnings: tuple[str, ...]
    error: str
    provenance: Provenance
    hint: str = ""

    def written(self, content: dict[str, Any]) -> dict[str, Any]:
        kernels = [without_defaults(each, BuiltKernel) for each in content["kernels"]]
        return {**without_defaults(content, Build), "kernels": kernels}


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A variant against the float64 reference at one shape; errors are None where it has none.

    ``times_reference`` is the worst error as a multiple of the primary reference's error on the
    same inputs, and ``kind`` the kind of inputs that it comes from: empty for the plain ones.
    ``varies``: the same inputs gave other bits. ``output`` is the one of several that decided, and
    ``hint`` the way out of what is wrong.
    """

    status: CheckResult
    why: str = ""
    max_abs: Number | None = None
    relative: Number | None = None
    times_reference: Number | None = None
    kind: str = ""
    varies: bool = False
    output: str = ""
    hint: str = ""


class Check(Finding, frozen=True, kw_only=True):
    """A finding of the sources with this fingerprint."""

    fingerprint: str


class Checks(Record, frozen=True, kw_only=True):
    """``checks/<variant>.json``: the checks of one variant by shape."""

    variant: str
    shapes: dict[str, Check]
    provenance: Provenance

    def written(self, content: dict[str, Any]) -> dict[str, Any]:
        shapes = {name: without_defaults(each, Check) for name, each in content["shapes"].items()}
        return {**content, "shapes": shapes}


class DerivedShape(Record, frozen=True, kw_only=True):
    """``<shape>/shape.json``: the parameters of a shape that the study does not list."""

    shape: str
    parameters: dict[str, Parameter]


class CapturedKernel(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What a capture says of a kernel: registers a thread, bytes of shared memory a block (its own
    and what was asked for at the launch), and executed instructions that spill registers.
    """

    kernel: str
    registers: int | None = None
    shared_bytes: int | None = None
    spill_instructions: int | None = None


class CaptureIndex(Record, frozen=True, kw_only=True, omit_defaults=True):
    """``<shape>/captures/<variant>.json``: which launches of which report are the variant's.

    ``range`` is the NVTX range around them, ``sha256`` of the report as it is kept.
    ``resources`` are those of its kernels, each once.
    """

    variant: str
    shape: str
    fingerprint: str
    report: str
    sha256: str
    range: str
    launches: int
    ncu: str
    ncu_flags: tuple[str, ...]
    provenance: Provenance
    resources: tuple[CapturedKernel, ...] | None = None

    def __post_init__(self) -> None:
        require_file_name("report", self.report)


class Tried(Record, frozen=True, kw_only=True):
    """A setting of a benchmark and the median of its rounds, in the unit of the ceiling."""

    ran: str
    median: Number


class Ceiling(Record, frozen=True, kw_only=True):
    """``value`` is the median round of the best setting, ``best`` the best of them.

    ``unit`` is FLOP/s or byte/s, ``ran`` says what was run. Clocks in MHz, of the SMs and of the
    memory while it ran; None where not collected.
    """

    unit: str
    value: Number
    best: Number
    rounds: int
    round_ms: Number
    settings: int
    ran: str
    sm_clock_mhz: Number | None
    memory_clock_mhz: Number | None
    temperature_c: Number | None
    throttled: bool
    tried: tuple[Tried, ...]

    def __post_init__(self) -> None:
        if not 0 < self.value < float("inf") or self.unit not in UNITS:
            raise ValueError(f"is {self.value:g} {self.unit}")


class CeilingsFile(Record, frozen=True, kw_only=True):
    """``ceilings.json``: what the card was measured to reach, by id; why others are missing."""

    mend: ClassVar[str] = "run `workbench calibrate` on that GPU again, or delete the file"

    ceilings: dict[str, Ceiling]
    not_collected: dict[str, str]
    provenance: Provenance

    @property
    def values(self) -> dict[str, float]:
        """FLOP/s or byte/s by id: dram, l2, l1, fp32, fp64, half, ``tensor <type>``."""
        return {name: float(ceiling.value) for name, ceiling in self.ceilings.items()}


class GraphNode(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A node of a variant's CUDA graph; ``kernel`` is the mangled name, extents are x, y, z."""

    kind: NodeKind
    kernel: str = ""
    grid: tuple[int, int, int] = (0, 0, 0)
    block: tuple[int, int, int] = (0, 0, 0)
    shared_bytes: int = 0


class Series(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One instance of a variant in one regime, by round.

    ``microseconds`` are of one of the ``calls`` in the graph with all that is around it, ``around``
    of the same graph without the variant in the same round (empty back to back): what the call
    adds is the difference. ``mhz`` and ``around_mhz`` are SM clocks inside of these graphs.
    ``twin``: it is a second group of instances of the variant, which must come out as equal.
    """

    variant: str
    instance: int
    regime: Regime
    calls: int
    microseconds: tuple[Number, ...]
    around: tuple[Number, ...] = ()
    mhz: tuple[Number, ...] = ()
    around_mhz: tuple[Number, ...] = ()
    twin: bool = False

    def __post_init__(self) -> None:
        rounds = len(self.microseconds)
        for name in ("around", "mhz", "around_mhz"):
            if len(getattr(self, name)) not in (0, rounds):
                raise ValueError(f"has '{name}' of another length than 'microseconds', {rounds}")
        if not rounds or self.calls < 1:
            raise ValueError("has no rounds, or no calls")


class Audit(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Outputs of timed calls compared with the float64 reference after the timing.

    ``relative`` is the worst error relative in norm; ``why`` says what is wrong with one of them.
    """

    variant: str
    outputs: int
    relative: Number | None = None
    why: str = ""


class Session(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One timing process. ``alone``: it held references only, no step's code was in it.

    ``throttled`` is the share of rounds in which the GPU said that it slowed itself down, by what
    (``reasons``, NVML's names); ``temperature_c`` at its end. ``instances`` a variant.
    """

    number: int
    instances: int
    series: tuple[Series, ...]
    audits: tuple[Audit, ...] = ()
    alone: bool = False
    temperature_c: Number | None = None
    throttled: Number | None = None
    reasons: tuple[str, ...] = ()


Nodes = Mapping[str, tuple[GraphNode, ...]]


def differing(one: Nodes, other: Nodes) -> set[str]:
    """Variants of both whose calls are not made of the same nodes, in whatever order."""
    return {
        name for name in one.keys() & other.keys() if Counter(one[name]) != Counter(other[name])
    }


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Of a session: whether it held references only."""

    alone: bool = False


class TimingHead(Record, frozen=True, kw_only=True):
    """What a timing is of, without its measurements: a quarter of the time to read."""

    schema: ClassVar[int] = 2

    fingerprints: dict[str, str]
    sessions: tuple[Head, ...]
    planned: int = 0

    @property
    def is_complete(self) -> bool:
        """As of ``Timing``."""
        return sum(not session.alone for session in self.sessions) >= self.planned


class Timing(Record, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """``<shape>/timings/<date>.json.zst``: some variants timed together, in several sessions.

    ``fingerprints`` are those of the variants, ``nodes`` the graph of one call of each. Of
    ``stride`` pieces of 16 bytes the neighbours write and read one; what is constant is held in so
    many ``copies``, which calls have in turn. ``planned`` sessions hold every variant; more came
    where a verdict was open. ``unsteady`` are variants whose calls launched other nodes in one
    session than in another.
    """

    schema: ClassVar[int] = 2

    study: str
    shape: str
    fingerprints: dict[str, str]
    nodes: dict[str, tuple[GraphNode, ...]]
    stride: int
    sessions: tuple[Session, ...]
    provenance: Provenance
    copies: int = 1
    planned: int = 0  # not recorded
    unsteady: tuple[str, ...] = ()

    @cached_property
    def by_variant(self) -> Mapping[str, list[Series]]:
        """What each variant was timed in, of all sessions."""
        found: dict[str, list[Series]] = {}
        for session in self.sessions:
            for series in session.series:
                found.setdefault(series.variant, []).append(series)
        return found

    @cached_property
    def chained(self) -> frozenset[str]:
        """The variants that were timed in the regime that decides."""
        return frozenset(
            variant
            for variant, every in self.by_variant.items()
            if any(one.regime == Regime.CHAINED and not one.twin for one in every)
        )

    @cached_property
    def together(self) -> tuple[Session, ...]:
        """The sessions that held steps and references side by side: ratios are theirs."""
        return tuple(session for session in self.sessions if not session.alone)

    @property
    def first_planned(self) -> int:
        """As ``planned``; where that is not on record, how many sessions hold every variant."""
        held = Counter(
            name for one in self.together for name in {series.variant for series in one.series}
        )
        return self.planned or min(held.values(), default=0)

    @property
    def is_complete(self) -> bool:
        """Whether it has the sessions that were planned: a process that is killed leaves fewer."""
        return len(self.together) >= self.planned


class Entry(Record, frozen=True, kw_only=True, omit_defaults=True, tag_field="entry"):
    """One line of ``journal.jsonl``; ``date`` is in UTC, ``workbench`` its version.

    ``gpu_uuid`` and ``host`` as in ``Environment``.
    """

    mend: ClassVar[str] = "the other lines of the journal count; this one can be deleted"

    date: str
    workbench: str | None = None
    gpu_uuid: str | None = None
    host: str | None = None


class SessionEntry(Entry, frozen=True, kw_only=True, tag="session"):
    """A timing run: what is left of it where its file was superseded.

    ``file`` stands in the shape's ``timings``, ``sessions`` is the number of processes that timed,
    ``medians`` are those of the variants in ``regime``, in microseconds of one call. ``cut_short``:
    it ended before it had the sessions that were planned, or was begun again without a variant
    that broke it, and its samples were not kept. ``found``: nobody had noted it when another one
    superseded it.
    """

    shape: str
    file: str
    sessions: int
    regime: str
    fingerprints: dict[str, str]
    medians: dict[str, Number]
    cut_short: bool = False
    found: bool = False


class CaptureEntry(Entry, frozen=True, kw_only=True, tag="capture"):
    """A capture of a variant in a report."""

    shape: str
    report: str
    variant: str
    fingerprint: str


class PredictionEntry(Entry, frozen=True, kw_only=True, tag="prediction"):
    """A step's predictions as they stood before a run measured anything.

    ``predictions`` are their digests (``Step.digest``), ``known`` is what was on record of the
    step, on any GPU and at any shape, when they were noted.
    """

    variant: str
    parent: str | None
    predictions: tuple[str, ...]
    known: Known


JournalEntry = SessionEntry | CaptureEntry | PredictionEntry


class SpentEntry(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One line of ``ledger.jsonl``: a run that held a GPU for so many ``seconds``.

    ``place`` is where that GPU stands, ``rate`` the price of its hour at that time.
    """

    mend: ClassVar[str] = "the other lines count; this one can be deleted"

    date: str
    verb: str
    study: str
    gpu: str
    seconds: Number
    shape: str = ""
    place: str = "local"
    rate: Number = 0

    @property
    def cost(self) -> float:
        """In the currency of the rate."""
        return float(self.seconds) / 3600 * float(self.rate)


class ShippedTime(Record, frozen=True, kw_only=True, omit_defaults=True):
    """What was measured of a shipped variant at a shape: microseconds of a call, chained, and how
    many times faster it is than ``reference``, with the interval of ``level`` percent over
    ``sessions``.

    ``times_reference`` is its error as a multiple of the primary reference's, ``file`` the timing
    that the figures come from, by its path in the evidence folder.
    """

    shape: str
    microseconds: Number
    sessions: int
    file: str
    reference: str = ""
    ratio: Number | None = None
    low: Number | None = None
    high: Number | None = None
    level: int = 95
    times_reference: Number | None = None


class ShippedCubin(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A cubin in a package. ``code`` is the sha256 of its machine code, ``measured`` whether that
    is what the evidence speaks of: another NVRTC may make other code of the same source. None is
    not collected.
    """

    file: str
    sha256: str
    arch: str
    source: str
    kernel: str
    registers: int
    code: str = ""
    measured: bool | None = None
    defines: dict[str, str] = msgspec.field(default_factory=dict)


class Shipped(Record, frozen=True, kw_only=True, omit_defaults=True):
    """``provenance.json`` of a package: what was shipped, and what is known of it.

    ``sources`` are the variant's files as they stand in their workspace, ``files`` all files of the
    package: name to sha256. ``environment`` is that of the evidence, ``gates`` say why the step is
    kept. ``keeps`` as in ``shipped.facts``.
    """

    mend: ClassVar[str] = "ship it again"

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
    sources: dict[str, str]
    environment: Provenance
    times: tuple[ShippedTime, ...]
    cubins: tuple[ShippedCubin, ...] = ()
    compiler: str = ""
    keeps: tuple[str, ...] = ()
    files: dict[str, str] = msgspec.field(default_factory=dict)
