"""With what the figures of a ladder were measured. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING

from workbench.evidence.layout import timing_name
from workbench.words import ABSENT

if TYPE_CHECKING:
    from workbench.evidence.records import CaptureIndex, Provenance, SessionEntry
    from workbench.judge.inputs import Snapshot


@dataclass(frozen=True)
class Environment:
    """GPU, driver and libraries of the timing session, else of the newest capture; None is not
    collected. ``date`` is in UTC, ``command`` what was typed; ``ncu`` and its flags are those of
    the newest capture.
    """

    gpu: str | None = None
    compute_capability: str | None = None
    driver: str | None = None
    cuda: str | None = None
    nvrtc: str | None = None
    cudnn: str | None = None
    torch: str | None = None
    cuda_core: str | None = None
    python: str | None = None
    workbench: str | None = None
    date: str | None = None
    command: str | None = None
    ncu: str = ABSENT
    ncu_flags: tuple[str, ...] = ()

    @property
    def ncu_options(self) -> Mapping[str, str]:
        """Options of ncu to their values, such as ``--cache-control`` to ``all``."""
        return dict(pairwise(self.ncu_flags))

    @property
    def day(self) -> str:
        """The date without its time; "" where not collected."""
        return (self.date or "")[:10]


# Fields of a provenance by what a difference in them may be put down to.
COMPILERS = ("nvrtc",)
LIBRARIES = ("torch", "cudnn", "cuda_core", "packages")
HARDWARE = ("gpu", "gpu_uuid", "driver")
PROVENANCE = [f.name for f in fields(Environment) if f.name not in ("ncu", "ncu_flags")]


def environment(indexes: Iterable[CaptureIndex], session: Provenance | None) -> Environment:
    """``indexes`` are of the captures measured here, ``session`` is that of the table."""
    newest = max(indexes, key=lambda index: index.provenance.date, default=None)
    sources = [session, newest.provenance if newest else None]
    return Environment(
        **{name: _first(sources, name) for name in PROVENANCE},
        ncu=newest.ncu if newest else ABSENT,
        ncu_flags=newest.ncu_flags if newest else (),
    )


def _first(sources: Iterable[Provenance | None], name: str) -> str | None:
    values = (getattr(source, name) for source in sources if source is not None)
    return next((value for value in values if value is not None), None)


@dataclass(frozen=True)
class Gone:
    """A timing run whose samples are gone; ``medians`` in microseconds, by variant."""

    date: str
    regime: str
    medians: Mapping[str, float]

    def ratio(self, before: str, after: str) -> float | None:
        """Of two medians, above 1 where ``after`` is faster; None where one was not timed."""
        if before not in self.medians or not self.medians.get(after):
            return None
        return self.medians[before] / self.medians[after]


@dataclass(frozen=True)
class Recordings:
    """The timing runs of one shape on one GPU.

    ``noted`` are in the journal. ``kept`` have their samples on record, ``unnoted`` of them from
    before there was a journal: how many others there were then is not known. Of those that are gone
    some were ``superseded``, and some ``cut_short``: ended, or begun again without a variant.
    """

    noted: int = 0
    kept: int = 0
    unnoted: int = 0
    superseded: tuple[Gone, ...] = ()
    cut_short: tuple[Gone, ...] = ()

    @property
    def total(self) -> int:
        """All that are known of."""
        return self.noted + self.unnoted


def recordings(snapshot: Snapshot, shape: str) -> Recordings:
    """What the journal and the timing files say of a shape."""
    entries = snapshot.journal.sessions if snapshot.journal else ()
    noted = [entry for entry in entries if entry.shape == shape]
    kept = {timing_name(timing.file) for timing in snapshot.shapes[shape].timings}
    whole = [entry for entry in noted if not entry.cut_short]
    return Recordings(
        noted=len(noted),
        kept=len(kept),
        unnoted=len(kept - {entry.file for entry in whole}),
        superseded=tuple(_gone(entry) for entry in whole if entry.file not in kept),
        cut_short=tuple(_gone(entry) for entry in noted if entry.cut_short),
    )


def _gone(entry: SessionEntry) -> Gone:
    return Gone(date=entry.date, regime=entry.regime, medians=entry.medians)
