"""The sides of a diff: a variant's sources or a report's, with what their lines cost."""

from __future__ import annotations

from workbench.derive.diff.build import profiled, source_diff
from workbench.derive.diff.model import Profiled, SourceDiff, Sources
from workbench.evidence.recorded import Evidence
from workbench.judge.rows import Ablation
from workbench.ncu.capture import Capture, load_sources
from workbench.ncu.captures import captures_of
from workbench.study.sources import source_texts
from workbench.words import Status


def side(evidence: Evidence, variant: str) -> Profiled:
    """A variant's sources as they stand, and its line costs where its capture is current."""
    entry = evidence.capture_index(variant)
    index, capture = entry.usable, captures_of(evidence).of(variant)
    if entry.state == Status.ADOPTED and capture is not None and index is not None:
        return imported(capture, load_sources(evidence.report_path(index), index.wanted))
    texts = source_texts(evidence.study, evidence.study.variants[variant])
    missing = entry.state == Status.MISSING
    why = "it has no capture" if missing else f"its capture is {entry.state}"
    return profiled(texts, capture, why)


def imported(capture: Capture, texts: dict[str, str]) -> Profiled:
    """One side of a capture made elsewhere, from the sources in the report itself."""
    known = profiled(texts, capture)
    if known.costs is not None and not texts:
        return profiled({}, None, "the report has no text of its sources")
    return known


def changes_between(evidence: Evidence, before: str, after: str) -> SourceDiff:
    """The diff of two variants of a study with what its lines cost; see ``derive.diff``."""
    return source_diff(side(evidence, before), side(evidence, after))


def ladder_sources(evidence: Evidence, ladder: Ablation) -> Sources:
    """The sources of every variant with what their lines cost, and each step's diff, at the shape
    whose captures decide about it.
    """
    sides = {row.variant: side(evidence, row.variant) for row in ladder.everything}
    diffs, elsewhere = {}, {}
    for row in ladder.rows:
        if row.step is None or row.step.parent is None:
            continue
        pair = sides[row.step.parent], sides[row.variant]
        if row.compared_at:
            there = evidence.at(row.compared_at)
            pair = side(there, row.step.parent), side(there, row.variant)
            elsewhere[row.variant] = pair
        diffs[row.variant] = source_diff(*pair)
    return Sources(sides, diffs, elsewhere)
