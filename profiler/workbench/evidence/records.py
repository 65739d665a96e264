"""The records of the evidence folder, as they stand on disk under schema 1.

Keys that a record does not have are passed over: a newer version may write more of them.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from workbench.words import CheckResult, Known

Number = int | float
UNITS = ("FLOP/s", "byte/s")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """``mend`` is the way out where a file of this kind is damaged."""

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
    """``builds/<variant>.json``: where it does not compile, ``error`` says why."""

    variant: str
    fingerprint: str
    sources: tuple[str, ...]
    arch: str
    kernels: tuple[BuiltKernel, ...]
    warnings: tuple[str, ...]
    error: str = ""
    provenance: Provenance


class Check(Record, frozen=True, kw_only=True):
    """A variant against the float64 reference at one shape; errors are None where it has none."""

    status: CheckResult
    why: str
    max_abs: Number | None
    relative: Number | None
    fingerprint: str


class Checks(Record, frozen=True, kw_only=True):
    """``checks/<variant>.json``: the checks of one variant by shape."""

    variant: str
    shapes: dict[str, Check]
    provenance: Provenance


class Samples(Record, frozen=True, kw_only=True):
    """Columns of timed samples, all of one length; None is not collected.

    ``mode`` is a regime, ``microseconds`` are of one call, ``calls`` how many filled a sample,
    ``how`` it was called: ``graph`` or ``python``.
    """

    variant: tuple[str, ...]
    mode: tuple[str, ...]
    round: tuple[int, ...]
    order: tuple[int, ...]
    microseconds: tuple[Number, ...]
    calls: tuple[int, ...]
    how: tuple[str, ...]
    sm_clock_mhz: tuple[Number | None, ...]
    temperature_c: tuple[Number | None, ...]
    throttled: tuple[bool | None, ...]

    def __post_init__(self) -> None:
        lengths = {name: len(getattr(self, name)) for name in self.__struct_fields__}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise ValueError(f"has columns of different lengths: {listed}")


class Session(Record, frozen=True, kw_only=True):
    """``<shape>/timings/<date>.json``: one timing process.

    ``fingerprints`` are those of the variants that were timed together in it.
    """

    study: str
    shape: str
    fingerprints: dict[str, str]
    samples: Samples
    provenance: Provenance


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


class CaptureIndex(Record, frozen=True, kw_only=True, omit_defaults=True):
    """``<shape>/captures/<variant>.json``: which launches of which report are the variant's.

    ``range`` is the NVTX range around them, ``sha256`` of the report as it is kept. ``repeats``
    are earlier reports of the same sources under the same ncu, newest first, and
    ``repeats_sha256`` theirs by name, where known. ``adopted`` only where the capture was made
    elsewhere.
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
