"""Times and ratios of variants at one shape, as its timings have them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from workbench.derive.speedup import (
    OverRecordings,
    Ratio,
    SessionTimes,
    Time,
    adds_nothing,
    over_recordings,
    ratio_of,
    smaller,
    time_of,
)
from workbench.judge.findings import NOT_COLLECTED, Finding, finding
from workbench.judge.time_checks import lost_time
from workbench.load import LadderEvidence, ShapeEvidence, TimedTogether
from workbench.words import HEADLINE, Regime

NEARLY = 0.9  # of the variants: with deleted steps an older timing may have a few more


def main_timing(evidence: ShapeEvidence, variants: Iterable[str]) -> TimedTogether | None:
    """The newest timing that has nearly the most of ``variants`` chained, of present sources;
    else the one with most of them in any regime. Of equals one of several sessions, and the newest.
    """
    names = set(variants)

    def worth(timing: TimedTogether) -> tuple[int, int, bool]:
        several = len(timing.timing.together) > 1
        return len(timing.chained & names), len(timing.current & names), several

    best = max(reversed(evidence.timings), key=worth, default=None)
    if best is None or not best.current & names:
        return None
    most, _, several = worth(best)
    for timing in reversed(evidence.timings) if most else ():
        held, _, also_several = worth(timing)
        if held >= NEARLY * most and also_several >= several:
            return timing
    return best


@dataclass(frozen=True)
class OverParent:
    """The ratio of a step over its parent, in turn and ``alone`` at the power limit; why it is
    ``absent``, where it is, and whether that is because a call of the step adds no time at all,
    which no work can.
    """

    chained: Ratio | None
    alone: Ratio | None = None
    absent: Finding = NOT_COLLECTED
    is_idle: bool = False


@dataclass(frozen=True, eq=False)
class ShapeTimes:
    """``table`` is the timing that the table is of.

    Times and ratios are of the sessions that were planned, which have every variant, so that all of
    a table are of the same; ``every`` takes those too that came where a verdict was open.
    """

    evidence: ShapeEvidence
    table: TimedTogether | None

    def together(self, *variants: str) -> TimedTogether | None:
        """The table's timing if it has them all, else the newest with them, chained if possible."""
        names = set(variants)
        newest = [t for t in reversed(self.evidence.timings) if t.current >= names]
        of_table = [t for t in newest if t is self.table]
        chained = [t for t in newest if t.chained >= names]
        return next(iter((*of_table, *chained, *newest)), None)

    def refereed(self, variant: str, beside: str | None) -> ShapeTimes:
        """The times in the recording that the referee's are looked for in: that of the ratio over
        ``beside``. If the referee's host was too busy then, it is the newest with both its times.
        """
        both = self.together(variant, beside) if beside else None
        names = {variant, beside} if beside and both else {variant}
        ours = both or self.together(variant)
        if ours and names & ours.timing.unrefereed:
            newest = (t for t in reversed(self.evidence.timings) if t.chained >= names)
            ours = next((t for t in newest if t.timing.refereed >= names), ours)
        return replace(self, table=ours)

    def instances(
        self,
        variant: str,
        regime: Regime = Regime.CHAINED,
        *,
        beside: str = "",
        every: bool = False,
    ) -> SessionTimes:
        """Return the instance times behind a time, in the timing that has ``beside`` too."""
        timing = self.together(*filter(None, (beside, variant)))
        every_session = timing.times.get((variant, regime, False), {}) if timing else {}
        if timing is None or every:
            return every_session
        return {
            number: instances
            for number, instances in every_session.items()
            if number in timing.planned
        }

    def time(
        self, variant: str, regime: Regime = Regime.CHAINED, *, beside: str = ""
    ) -> Time | None:
        """None where its present sources were not timed so, or where its calls add nothing;
        ``beside`` another, it is of the timing that their ratio is of.
        """
        return time_of(self.instances(variant, regime, beside=beside), regime)

    def ratio(
        self,
        over: str | None,
        variant: str,
        regime: Regime = Regime.CHAINED,
        *,
        every: bool = False,
    ) -> Ratio | None:
        """How many times faster than ``over``; None unless both are correct."""
        sides = [self.evidence.variants.get(name) for name in (over, variant) if name]
        if not over or not all(
            variant_evidence and variant_evidence.correct for variant_evidence in sides
        ):
            return None
        timing, alone = self.together(over, variant), self.together(variant)
        if timing is None or alone is None or timing.timing.method != alone.timing.method:
            return None
        before = self.instances(over, regime, beside=variant, every=every)
        after = self.instances(variant, regime, beside=over, every=every)
        return ratio_of(before, after, timing.timing.first_planned) if before and after else None

    def ratios(self, over: str, variant: str) -> dict[Regime, Ratio]:
        every = {regime: self.ratio(over, variant, regime) for regime in Regime}
        return {regime: ratio for regime, ratio in every.items() if ratio is not None}

    def least(
        self, others: Iterable[str], variant: str, regime: Regime = Regime.CHAINED
    ) -> tuple[str, Ratio | None]:
        """The one of ``others`` with the smallest ratio over it; "" if none was timed beside it."""
        ratios = {name: self.ratio(name, variant, regime) for name in others}
        timed = {name: ratio for name, ratio in ratios.items() if ratio is not None}
        least = min(timed, key=lambda name: timed[name].ratio, default="")
        return least, timed.get(least)

    def over_parent(self, parent: str, variant: str) -> OverParent:
        chained, alone = (
            self.ratio(parent, variant, regime, every=True) for regime in (HEADLINE, Regime.ALONE)
        )
        why = self.why_no_ratio(parent, variant)
        return OverParent(chained, alone, why, self.is_idle(variant))

    def claimed_over_parent(self, parent: str | None, variant: str) -> Ratio | None:
        """Return the ratio over the parent, in turn or alone: the smaller."""
        over = self.over_parent(parent or "", variant)
        return smaller(over.chained, over.alone)

    def claimed_over(
        self, whole: LadderEvidence, names: tuple[str, str], in_turn: Ratio, claimed: Ratio | None
    ) -> OverRecordings | None:
        """A reference and a variant by all recordings of the same sources at the shape, or alone
        where that is what is ``claimed``.
        """
        elsewhere = whole.between_of if whole.between_of != whole.gpu else ""
        if claimed is not None and claimed is not in_turn:
            return over_recordings([claimed], whole.between, between_of=elsewhere)
        return self.over_recordings(whole, names, in_turn, elsewhere)

    def over_recordings(
        self, whole: LadderEvidence, names: tuple[str, str], ratio: Ratio, between_of: str = ""
    ) -> OverRecordings | None:
        """The ``ratio`` of two variants over all recordings of the same sources: others by the
        journal's medians, which vary as this one does. None where they were not timed together.
        """
        timing, journal = self.together(*names), whole.journal
        if timing is None:
            return None
        wanted = {name: timing.timing.fingerprints[name] for name in names}
        ratios, gpus = [ratio], {timing.timing.provenance.gpu_uuid}
        for entry in journal.sessions if journal else ():
            is_other = entry.shape == self.evidence.shape and entry.file != timing.name
            if entry.cut_short or not is_other:
                continue
            prints = {name: entry.fingerprints.get(name) for name in names}
            before, after = (float(entry.medians.get(name, 0)) for name in names)
            if prints == wanted and before > 0 and after > 0:
                middle = before / after
                low, high = (end and end * middle / ratio.ratio for end in (ratio.low, ratio.high))
                ratios.append(replace(ratio, ratio=middle, low=low, high=high))
                gpus.add(entry.gpu_uuid)
        return over_recordings(ratios, whole.between, len(gpus), between_of)

    def is_idle(self, variant: str) -> bool:
        """Whether a chained call of it adds no time to its neighbours."""
        return adds_nothing(self.instances(variant, every=True))

    def why_no_ratio(self, over: str, variant: str) -> Finding:
        """Why there is no chained ratio of two variants."""
        timing = self.together(over, variant)
        if timing is None or not {over, variant} <= timing.chained:
            return NOT_COLLECTED
        for name in (variant, over):
            if lost := lost_time(timing, name):
                return lost
        idle = next((name for name in (variant, over) if self.is_idle(name)), None)
        if idle is None:
            return NOT_COLLECTED
        message = f"a call of {idle} adds no time to its neighbours"
        return finding("untimed.adds_nothing", message, variant=idle)
