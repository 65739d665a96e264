"""The evidence of a snapshot, one shape or two variants at a time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from workbench.derive.diff.line_diff import ProfiledSource, SourceDiff, Sources
from workbench.derive.diff.source_diff import profiled, source_diff
from workbench.derive.figures import TIME, Figure, figure_label
from workbench.derive.speedup import Ratio, SessionTimes, Time, adds_nothing, ratio_of, time_of
from workbench.judge.advice.ranking import Advice, advise
from workbench.judge.advice.subject import subject
from workbench.judge.comparability import file_warnings, ladder_warnings
from workbench.judge.comparison import Comparison, compare
from workbench.judge.cross_checks import clocks_finding
from workbench.judge.findings import NOT_COLLECTED, Finding, finding
from workbench.judge.known_evidence import ShapeEvidence, Snapshot, VariantEvidence
from workbench.study.config import Config, for_study
from workbench.study.model import Ladder
from workbench.words import Regime

if TYPE_CHECKING:
    from workbench.evidence.journal import Journal
    from workbench.judge.known_evidence import TimedTogether
    from workbench.judge.rows import Ablation, Row


@dataclass(frozen=True, eq=False)
class View:
    """One shape. ``ceilings`` are the measured ones by id, empty where nothing was calibrated."""

    evidence: ShapeEvidence
    times: ShapeTimes
    ladder: Ladder
    config: Config
    ceilings: Mapping[str, float]
    journal: Journal | None = None

    @property
    def shape(self) -> str:
        """Its name."""
        return self.evidence.shape

    def variant(self, name: str) -> VariantEvidence:
        """What is on record of a variant at this shape."""
        return self.evidence.variants[name]

    def advice(self, variant: str) -> tuple[Advice, ...] | None:
        """By its capture alone, whatever was tried since; None where there is none."""
        if variant not in self._advice:
            known = self.variant(variant)
            self._advice[variant] = (
                advise(subject(known.capture, known.figures, self.ceilings, self.evidence.work))
                if known.capture
                else None
            )
        return self._advice[variant]

    @cached_property
    def _advice(self) -> dict[str, tuple[Advice, ...] | None]:
        return {}

    def figure(self, variant: str | None, name: str) -> Figure | None:
        """``time`` is the chained time, everything else from a capture made here:
        predictions are about what was measured.
        """
        if variant is None:
            return None
        if name != TIME:
            evidence = self.variant(variant)
            return evidence.figures.get(name) if evidence.was_profiled else None
        time = self.times.time(variant)
        label, unit = figure_label(TIME)
        return Figure(TIME, label, time.value, unit, "", "lower") if time else None

    def compare(self, before: str, after: str, where: str = "") -> Comparison | None:
        """None where either variant has no capture that counts; ``where`` is added to the names."""
        one, other = self.variant(before), self.variant(after)
        if one.capture is None or other.capture is None:
            return None
        return compare(
            one.capture,
            other.capture,
            names=(before + where, after + where),
            known=(one.figures, other.figures),
        )


@dataclass(frozen=True, eq=False)
class Views:
    """All shapes of a snapshot; ``variants`` decide which timing is a table's."""

    snapshot: Snapshot
    config: Config
    variants: tuple[str, ...]

    @property
    def table(self) -> View:
        """The shape that is looked at."""
        return self.at(self.snapshot.shape)

    def at(self, shape: str) -> View:
        """Another shape of the snapshot."""
        if shape not in self._views:
            self._views[shape] = self._view(self.snapshot.shapes[shape])
        return self._views[shape]

    @cached_property
    def _views(self) -> dict[str, View]:
        return {}

    def _view(self, evidence: ShapeEvidence) -> View:
        calibration = self.snapshot.calibration
        return View(
            evidence=evidence,
            times=ShapeTimes(
                evidence=evidence,
                table=main_timing(evidence, self.variants),
            ),
            ladder=self.snapshot.ladder,
            config=for_study(self.config, self.snapshot.ladder),
            ceilings=calibration.values if calibration else {},
            journal=self.snapshot.journal,
        )


NEARLY = 0.9  # of the variants: with deleted steps an older timing may have a few more


def main_timing(evidence: ShapeEvidence, variants: Iterable[str]) -> TimedTogether | None:
    """The newest timing that has nearly the most of ``variants`` chained as they are now; else the
    one with most of them in any regime. Of equals one of several sessions, and the newest.
    """
    names = set(variants)

    def worth(timing: TimedTogether) -> tuple[int, int, bool]:
        several = len(timing.timing.together) > 1
        return len(timing.chained & names), len(timing.timed & names), several

    best = max(reversed(evidence.timings), key=worth, default=None)
    if best is None or not best.timed & names:
        return None
    most, _, several = worth(best)
    for timing in reversed(evidence.timings) if most else ():
        held, _, also_several = worth(timing)
        if held >= NEARLY * most and also_several >= several:
            return timing
    return best


@dataclass(frozen=True, eq=False)
class ShapeTimes:
    """``table`` is the timing that the table is of."""

    evidence: ShapeEvidence
    table: TimedTogether | None

    def together(self, *variants: str) -> TimedTogether | None:
        """The timing of the table where it has them all, else the newest that has them chained,
        else the newest that has them.
        """
        names = set(variants)
        newest = [t for t in reversed(self.evidence.timings) if t.timed >= names]
        own = [t for t in newest if t is self.table]
        chained = [t for t in newest if t.chained >= names]
        return next(iter((*own, *chained, *newest)), None)

    def instances(self, variant: str, regime: Regime = Regime.CHAINED) -> SessionTimes:
        """Those that a time is made of; empty where it was not timed so as it is now."""
        timing = self.together(variant)
        return timing.times.get((variant, regime, False), {}) if timing else {}

    def time(self, variant: str, regime: Regime = Regime.CHAINED) -> Time | None:
        """None where it was not timed so as it is now, or where its calls add nothing."""
        return time_of(self.instances(variant, regime), regime)

    def beside(self, other: str, variant: str, regime: Regime = Regime.CHAINED) -> Time | None:
        """The time of the variant in the timing that its ratio over ``other`` is of."""
        timing = self.together(other, variant)
        known = timing.times.get((variant, regime, False)) if timing else None
        return time_of(known, regime) if known else None

    def ratio(
        self, over: str | None, variant: str, regime: Regime = Regime.CHAINED
    ) -> Ratio | None:
        """How many times faster than ``over``; None unless both are correct."""
        if not over or not self._are_correct(over, variant):
            return None
        timing, own = self.together(over, variant), self.together(variant)
        if timing is None or own is None or timing.timing.method != own.timing.method:
            return None
        before, after = (timing.times.get((name, regime, False)) for name in (over, variant))
        return ratio_of(before, after, timing.first_planned) if before and after else None

    def ratios(self, over: str, variant: str) -> dict[Regime, Ratio]:
        """In every regime in which there is one."""
        every = {regime: self.ratio(over, variant, regime) for regime in Regime}
        return {regime: ratio for regime, ratio in every.items() if ratio is not None}

    def least(
        self, others: Iterable[str], variant: str, regime: Regime = Regime.CHAINED
    ) -> tuple[str, Ratio | None]:
        """The one of ``others`` over which the ratio is the smallest; "" where none was timed
        beside the variant.
        """
        ratios = {name: self.ratio(name, variant, regime) for name in others}
        known = {name: ratio for name, ratio in ratios.items() if ratio is not None}
        least = min(known, key=lambda name: known[name].ratio, default="")
        return least, known.get(least)

    def is_idle(self, variant: str) -> bool:
        """Whether a chained call of it adds no time to its neighbours."""
        return adds_nothing(self.instances(variant))

    def why_no_ratio(self, over: str, variant: str) -> Finding:
        """Why there is no chained ratio of two variants."""
        timing = self.together(over, variant)
        if timing is None or not {over, variant} <= timing.chained:
            return NOT_COLLECTED
        for name in (variant, over):
            if name in timing.wrong:
                return finding("untimed.wrong_outputs", variant=name)
            if (clocks := timing.two_clocks.get(name)) and clocks.disagree:
                return clocks_finding(clocks)
        idle = next((name for name in (variant, over) if self.is_idle(name)), None)
        return finding("untimed.adds_nothing", variant=idle) if idle else NOT_COLLECTED

    def _are_correct(self, *variants: str) -> bool:
        known = [self.evidence.variants.get(variant) for variant in variants]
        return all(evidence is not None and evidence.correct for evidence in known)


@dataclass(frozen=True)
class VariantPair:
    """Any two variants: how many times faster in every regime, and their captures compared; what
    is not collected is not there, or None.
    """

    before: Row
    after: Row
    speedups: Mapping[Regime, Ratio]
    comparison: Comparison | None
    warnings: tuple[Finding, ...]

    @property
    def speedup(self) -> Ratio | None:
        """Chained."""
        return self.speedups.get(Regime.CHAINED)


def judge_pair(snapshot: Snapshot, config: Config, before: Row, after: Row) -> VariantPair:
    """Two rows of the table that was judged on this snapshot."""
    names = (before.variant, after.variant)
    view = Views(snapshot, config, names).table
    return VariantPair(
        before=before,
        after=after,
        speedups=view.times.ratios(*names),
        comparison=view.compare(*names),
        warnings=(*file_warnings(snapshot, names), *ladder_warnings([before, after], view)),
    )


def ladder_sources(snapshot: Snapshot, ablation: Ablation) -> Sources:
    """The sources of every variant with what their lines cost, and each step's diff, at the shape
    whose captures decide about it. ``snapshot`` is what was judged, taken with its sources.
    """
    table = snapshot.shapes[snapshot.shape]
    sides = {row.variant: side(table, row.variant) for row in ablation.everything}
    diffs, elsewhere = {}, {}
    for row in ablation.rows:
        if row.step is None or row.step.parent is None:
            continue
        pair = sides[row.step.parent], sides[row.variant]
        if row.against_parent_at:
            other = snapshot.shapes[row.against_parent_at]
            pair = side(other, row.step.parent), side(other, row.variant)
            elsewhere[row.variant] = pair
        diffs[row.variant] = source_diff(*pair)
    return Sources(sides, diffs, elsewhere)


def pair_sources(snapshot: Snapshot, before: str, after: str) -> SourceDiff:
    """The diff of two variants at the shape that is looked at."""
    table = snapshot.shapes[snapshot.shape]
    return source_diff(side(table, before), side(table, after))


def side(evidence: ShapeEvidence, variant: str) -> ProfiledSource:
    """A variant's sources as they stand, and its line costs where its capture is current."""
    known = evidence.variants[variant]
    return profiled(known.texts, known.capture, known.state["capture"])
