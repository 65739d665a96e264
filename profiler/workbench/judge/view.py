"""The evidence of a snapshot, one shape or two variants at a time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from workbench.derive.diff.line_diff import ProfiledSource, SourceDiff, Sources
from workbench.derive.diff.source_diff import profiled, source_diff
from workbench.derive.figures import TIME, Figure, figure_label
from workbench.derive.speedup import Ratio
from workbench.evidence.journal import Journal
from workbench.judge.advice.ranking import Advice, advise
from workbench.judge.advice.subject import Spot, subject
from workbench.judge.comparability import file_warnings, ladder_warnings
from workbench.judge.comparison import Comparison, compare
from workbench.judge.findings import Finding
from workbench.judge.known_evidence import (
    ShapeEvidence,
    ShapeTimes,
    Snapshot,
    VariantEvidence,
    main_timing,
)
from workbench.judge.rows import Ablation, Row
from workbench.study.config import Config
from workbench.study.model import Ladder
from workbench.words import Regime


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
        return self.evidence.shape

    def variant(self, name: str) -> VariantEvidence:
        """What is recorded of a variant at this shape."""
        return self.evidence.variants[name]

    def advice(self, variant: str) -> tuple[Advice, ...] | None:
        """By its capture alone, whatever was tried since; None where there is none."""
        return self._advised(variant)[0]

    def hottest(self, variant: str) -> Spot | None:
        """The line of its capture with the most stall time."""
        return self._advised(variant)[1]

    def _advised(self, variant: str) -> tuple[tuple[Advice, ...] | None, Spot | None]:
        if variant not in self._known:
            known = self.variant(variant)
            self._known[variant] = None, None
            if known.capture:
                own = subject(known.capture, known.figures, self.ceilings, self.evidence.work)
                self._known[variant] = advise(own), own.hottest
        return self._known[variant]

    @cached_property
    def _known(self) -> dict[str, tuple[tuple[Advice, ...] | None, Spot | None]]:
        return {}

    def figure(self, variant: str | None, name: str) -> Figure | None:
        """``time`` is the chained time; all else is from a capture made here: it was measured."""
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
        if shape not in self._views:
            evidence, calibration = self.snapshot.shapes[shape], self.snapshot.calibration
            self._views[shape] = View(
                evidence=evidence,
                times=ShapeTimes(evidence, main_timing(evidence, self.variants)),
                ladder=self.snapshot.ladder,
                config=self.config,
                ceilings=calibration.values if calibration else {},
                journal=self.snapshot.journal,
            )
        return self._views[shape]

    @cached_property
    def _views(self) -> dict[str, View]:
        return {}


@dataclass(frozen=True)
class VariantPair:
    """Two variants: speedups by regime, and captures compared; None is not collected."""

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
        warnings=(
            *file_warnings(snapshot, names),
            *ladder_warnings([before, after], view.evidence),
        ),
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
