"""What is only ever appended, a line an entry, and what a package says of its variant."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from workbench.evidence.records.base import Number, Provenance, Record
from workbench.words import Known


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
