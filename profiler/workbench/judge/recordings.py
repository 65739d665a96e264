"""How often a shape was timed: the best of many recordings is not picked in silence. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.evidence.layout import timing_name

if TYPE_CHECKING:
    from workbench.evidence.records import SessionEntry
    from workbench.judge.inputs import Snapshot


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
