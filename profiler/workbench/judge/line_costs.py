"""The sources of a judged ladder with what their lines cost, and the diffs of its steps. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.derive.source_diff import ProfiledSource, SourceDiff, Sources, profiled, source_diff
from workbench.judge.ladder import Ablation
from workbench.judge.rows import Row
from workbench.load import LadderEvidence, ShapeEvidence


def ladder_sources(
    snapshot: LadderEvidence, ablation: Ablation, rows: Sequence[Row] | None = None
) -> Sources:
    """The sources of every variant with what their lines cost, and the diff of each step, or of the
    ``rows`` alone, at the shape whose captures decide about it. ``snapshot`` is what was judged,
    taken with its sources.
    """
    table = snapshot.shapes[snapshot.shape]
    shown = {row.variant for row in rows or ablation.everything}
    shown |= {row.step.parent or "" for row in rows or () if row.step}
    sides = {r.variant: side(table, r.variant) for r in ablation.everything if r.variant in shown}
    diffs, elsewhere = {}, {}
    for row in ablation.rows if rows is None else rows:
        if row.step is None or row.step.parent is None:
            continue
        pair = sides[row.step.parent], sides[row.variant]
        if row.against_parent_at:
            other = snapshot.shapes[row.against_parent_at]
            pair = side(other, row.step.parent), side(other, row.variant)
            elsewhere[row.variant] = pair
        diffs[row.variant] = source_diff(*pair)
    return Sources(sides, diffs, elsewhere)


def pair_sources(snapshot: LadderEvidence, before: str, after: str) -> SourceDiff:
    """The diff of two variants at the shape that is looked at."""
    table = snapshot.shapes[snapshot.shape]
    return source_diff(side(table, before), side(table, after))


def side(evidence: ShapeEvidence, variant: str) -> ProfiledSource:
    """Read a variant's sources as they stand, and its line costs where its capture is current."""
    recorded = evidence.variants[variant]
    return profiled(recorded.texts, recorded.capture, recorded.state["capture"])
