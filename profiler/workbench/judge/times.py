"""Times and speedups at one shape, between variants that were timed together as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.derive.speedup import Ratio, Time, TimedSamples, paired_ratio, time_of
from workbench.words import Regime

if TYPE_CHECKING:
    from workbench.judge.inputs import ShapeEvidence, Snapshot, TimingSession


def main_session(evidence: ShapeEvidence, variants: Iterable[str]) -> TimingSession | None:
    """The session that holds the most of ``variants`` as they are now; the newest of equals."""
    names = set(variants)
    newest = reversed(evidence.sessions)
    best = max(newest, key=lambda session: len(session.timed & names), default=None)
    return best if best is not None and best.timed & names else None


@dataclass(frozen=True, eq=False)
class Times:
    """``session`` is that of the table; a ratio's interval is bootstrapped by ``resamples``."""

    evidence: ShapeEvidence
    session: TimingSession | None
    resamples: int

    def together(self, *variants: str) -> TimingSession | None:
        """The session of the table where it holds them all, else the newest that does."""
        newest = reversed(self.evidence.sessions)
        sessions = [*([self.session] if self.session else []), *newest]
        return next((s for s in sessions if s.timed >= set(variants)), None)

    def samples(self, variant: str, regime: Regime) -> TimedSamples | None:
        """Those that a time is made of; None where it was not timed as it is now."""
        session = self.together(variant)
        return session.samples.get((variant, regime)) if session else None

    def time(self, variant: str, regime: Regime) -> Time | None:
        """None where it was not timed as it is now."""
        samples = self.samples(variant, regime)
        return time_of(samples) if samples else None

    def ratio(self, over: str | None, variant: str) -> Ratio | None:
        """How many times faster than ``over``, warm; None unless both are correct."""
        if not over or not self._are_correct(over, variant):
            return None
        session = self.together(over, variant)
        samples = session.samples if session else {}
        before, after = (samples.get((name, Regime.WARM)) for name in (over, variant))
        return paired_ratio(before, after, self.resamples) if before and after else None

    def _are_correct(self, *variants: str) -> bool:
        known = [self.evidence.variants.get(variant) for variant in variants]
        return all(evidence is not None and evidence.correct for evidence in known)


def timings(snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[float]]]:
    """Variant to regime to the microseconds behind its time in the table, by round."""
    evidence = snapshot.shapes[snapshot.shape]
    times = Times(evidence, main_session(evidence, snapshot.names), resamples=0)
    by_variant: dict[str, dict[str, Sequence[float]]] = {}
    for variant in snapshot.names:
        for regime in Regime:
            samples = times.samples(variant, regime)
            if samples is not None:
                order = samples.rounds.argsort(kind="stable")
                regimes = by_variant.setdefault(variant, {})
                regimes[regime] = samples.microseconds[order].tolist()
    return by_variant
