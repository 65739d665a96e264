"""The records of the evidence folder, as they stand on disk under the schema that each kind has.

Keys that a record does not have are passed over: a newer version may write more of them.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import msgspec

from workbench.words import SCHEMA_VERSION, CheckResult, Known, NodeKind, Parameter, Regime

Number = int | float
UNITS = ("FLOP/s", "byte/s")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """``mend`` is the way out where a file of this kind is damaged, ``schema`` its version."""

    schema: ClassVar[int] = SCHEMA_VERSION
    mend: ClassVar[str] = "restore it, or delete it and measure again"


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


class BuiltKernel(Record, frozen=True, kw_only=True):
    """What ptxas reports of one kernel; sizes in bytes, registers per thread."""

    kernel: str
    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    source: str


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
    error: str = ""
    provenance: Provenance
    hint: str | msgspec.UnsetType = msgspec.UNSET


class Check(Record, frozen=True, kw_only=True):
    """A variant against the float64 reference at one shape; errors are None where it has none.

    ``times_reference`` is the worst error as a multiple of the primary reference's error on the
    same inputs, and ``kind`` the kind of inputs that it comes from: empty for the plain ones.
    ``varies``: the same inputs gave other bits. ``output`` is the one of several that decided, and
    ``hint`` the way out of what is wrong; they are not written where there is nothing to say.
    """

    status: CheckResult
    why: str
    max_abs: Number | None
    relative: Number | None
    fingerprint: str
    times_reference: Number | None = None
    kind: str = ""
    varies: bool = False
    output: str | msgspec.UnsetType = msgspec.UNSET
    hint: str | msgspec.UnsetType = msgspec.UNSET


class Checks(Record, frozen=True, kw_only=True):
    """``checks/<variant>.json``: the checks of one variant by shape."""

    variant: str
    shapes: dict[str, Check]
    provenance: Provenance


class DerivedShape(Record, frozen=True, kw_only=True):
    """``<shape>/shape.json``: the parameters of a shape that the study does not list."""

    shape: str
    parameters: dict[str, Parameter]


class Samples(Record, frozen=True, kw_only=True):
    """Columns of timed samples as schema 1 had them, all of one length; None is not collected."""

    variant: tuple[str, ...]
    mode: tuple[str, ...]
    round: tuple[int, ...]
    microseconds: tuple[Number, ...]
    calls: tuple[int, ...]
    temperature_c: tuple[Number | None, ...]
    throttled: tuple[bool | None, ...]

    def __post_init__(self) -> None:
        lengths = {name: len(getattr(self, name)) for name in self.__struct_fields__}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise ValueError(f"has columns of different lengths: {listed}")


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


class Timing(Record, frozen=True, kw_only=True, omit_defaults=True):
    """``<shape>/timings/<date>.json``: some variants timed together, in several sessions.

    ``fingerprints`` are those of the variants, ``nodes`` the graph of one call of each. Of
    ``stride`` pieces of 16 bytes the neighbours write and read one. ``planned`` sessions hold every
    variant; more came where a verdict was open.
    """

    schema: ClassVar[int] = 2

    study: str
    shape: str
    fingerprints: dict[str, str]
    nodes: dict[str, tuple[GraphNode, ...]]
    stride: int
    sessions: tuple[Session, ...]
    provenance: Provenance
    planned: int = 0  # not recorded

    @property
    def chained(self) -> set[str]:
        """The variants that were timed in the regime that decides."""
        every = (series for session in self.sessions for series in session.series)
        return {s.variant for s in every if s.regime == Regime.CHAINED and not s.twin}

    @property
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


def _require_file_name(field: str, name: str) -> None:
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise ValueError(f"has '{field}' {name!a}, no file in the folder of reports")


class Adopted(Record, frozen=True, kw_only=True):
    """Where a capture made elsewhere comes from; ``launches`` are indices in its report.

    ``sha256`` is of the file as it was given, ``absolute_paths`` how many paths of that machine
    travel in it.
    """

    file: str
    sha256: str
    launches: tuple[int, ...]
    kernels: tuple[str, ...]
    timing: str
    correctness: str
    absolute_paths: int


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

    ``range`` is the NVTX range around them, ``sha256`` of the report as it is kept. ``repeats``
    are earlier reports of the same sources under the same ncu, newest first, and
    ``repeats_sha256`` theirs by name, where known. ``adopted`` only where the capture was made
    elsewhere. ``resources`` are those of its kernels, each once.
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
    repeats: tuple[str, ...] | None = None
    repeats_sha256: dict[str, str] | None = None
    adopted: Adopted | None = None
    resources: tuple[CapturedKernel, ...] | None = None

    def __post_init__(self) -> None:
        _require_file_name("report", self.report)
        for name in self.repeats or ():
            _require_file_name("repeats", name)

    @property
    def known_sha256(self) -> dict[str, str]:
        """Of its report and its repeats, by name."""
        return {**(self.repeats_sha256 or {}), self.report: self.sha256}

    @property
    def wanted(self) -> str | tuple[int, ...]:
        """The launches in the report: a range, or indices where it was adopted."""
        return self.adopted.launches if self.adopted else self.range


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
    ``medians`` are those of the variants in ``regime``, in microseconds of one call.
    """

    shape: str
    file: str
    sessions: int
    regime: str
    fingerprints: dict[str, str]
    medians: dict[str, Number]


class CaptureEntry(Entry, frozen=True, kw_only=True, tag="capture"):
    """A capture of a variant in a report; ``adopted`` where it was made elsewhere."""

    shape: str
    report: str
    variant: str
    fingerprint: str
    adopted: bool = False


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
