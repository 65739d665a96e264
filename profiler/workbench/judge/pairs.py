"""Any two variants of a study at one shape, side by side. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.derive.diff.model import Profiled, SourceDiff, Sources
from workbench.derive.diff.source_diff import profiled, source_diff
from workbench.derive.intervals import Ratio
from workbench.judge.comparability import file_warnings, ladder_warnings
from workbench.judge.comparison import Comparison
from workbench.judge.inputs import ShapeEvidence, Snapshot
from workbench.judge.rows import Ablation, Row
from workbench.judge.view import Views
from workbench.study.config import Config
from workbench.words import Regime, Status


@dataclass(frozen=True)
class VariantPair:
    """Any two variants: how many times faster in every regime, and their captures compared; what
    is not collected is not there, or None.
    """

    before: Row
    after: Row
    speedups: Mapping[Regime, Ratio]
    comparison: Comparison | None
    warnings: tuple[str, ...]

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
        if row.compared_at:
            other = snapshot.shapes[row.compared_at]
            pair = side(other, row.step.parent), side(other, row.variant)
            elsewhere[row.variant] = pair
        diffs[row.variant] = source_diff(*pair)
    return Sources(sides, diffs, elsewhere)


def pair_sources(snapshot: Snapshot, before: str, after: str) -> SourceDiff:
    """The diff of two variants at the shape that is looked at."""
    table = snapshot.shapes[snapshot.shape]
    return source_diff(side(table, before), side(table, after))


def side(evidence: ShapeEvidence, variant: str) -> Profiled:
    """A variant's sources as they stand, and its line costs where its capture is current."""
    known = evidence.variants[variant]
    state = known.state["capture"]
    why = "it has no capture" if state == Status.MISSING else f"its capture is {state}"
    return profiled(known.texts, known.capture, why)
