"""What ``diff`` answers under ``--json``: typed records of two variants or two reports."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from workbench.derive.figures import Figure
from workbench.derive.matching import PairGroup
from workbench.derive.source_diff import Hunk, Shift, SourceDiff
from workbench.derive.speedup import Ratio
from workbench.judge.bottlenecks import Bottleneck
from workbench.judge.comparison import Comparison
from workbench.judge.findings import Finding
from workbench.judge.ladder import Ablation, VariantPair
from workbench.ncu.report_file import Launch, Report
from workbench.render.answers import AdvisedChange, LadderRow, answer, shape_of, to_try, whole_row
from workbench.render.as_json import Data
from workbench.render.document.launches import PairRead
from workbench.words import Regime

MOST_SHIFTS = 20


class SourceCosts(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about the sources of two sides; sums are of what each side's lines cost."""

    not_collected: Mapping[str, str]
    hunks: tuple[Hunk, ...]
    outside_hunks: Data
    outside_sources: list[Data]
    total: Data
    unchanged_lines: tuple[Shift, ...]


def source_diff(changes: SourceDiff) -> SourceCosts:
    outside = changes.elsewhere.items()
    whys = zip(("before", "after"), changes.why, strict=True)
    return SourceCosts(
        not_collected={side: why for side, why in whys if why},
        hunks=changes.hunks,
        outside_hunks=_sides(changes.unchanged),
        outside_sources=[{"file": file, **_sides(costs)} for file, costs in outside],
        total=_sides(changes.totals),
        unchanged_lines=changes.shifts[:MOST_SHIFTS],
    )


def _sides(pair: tuple[object, object]) -> Data:
    return {"before": pair[0], "after": pair[1]}


class PairAnswer(SourceCosts, frozen=True, kw_only=True):
    """The answer of ``diff`` of two variants."""

    study: str
    gpu: str
    shape: Data
    before: str
    after: str
    speedup: Ratio | None
    speedups: Mapping[Regime, Ratio]
    comparison: Comparison | None
    variants: list[LadderRow]
    figures: Mapping[str, FigurePair]
    warnings: tuple[Finding, ...]


def variant_pair(ladder: Ablation, pair: VariantPair, changes: SourceDiff) -> PairAnswer:
    return answer(
        PairAnswer,
        pair,
        study=ladder.study,
        gpu=ladder.gpu,
        shape=shape_of(ladder),
        before=pair.before.variant,
        after=pair.after.variant,
        variants=[whole_row(ladder, row) for row in (pair.before, pair.after)],
        figures=figure_pairs(pair.before.figures, pair.after.figures),
        **msgspec.structs.asdict(source_diff(changes)),
    )


class KernelPair(msgspec.Struct, frozen=True, kw_only=True):
    """Launches of two reports that were matched; the typical pair is read whole."""

    launches: list[tuple[int, int]]
    matched_by: str
    before: Launch
    after: Launch
    comparison: Comparison
    figures: Mapping[str, FigurePair]
    bottlenecks_before: tuple[Bottleneck, ...]
    bottlenecks_after: tuple[Bottleneck, ...]
    advice: list[AdvisedChange] | None
    source: SourceCosts


def kernel_pair(read: PairRead, group: PairGroup) -> KernelPair:
    return KernelPair(
        launches=[(pair.before.index, pair.after.index) for pair in group.pairs],
        matched_by=group.typical.how,
        before=group.typical.before,
        after=group.typical.after,
        comparison=read.comparison,
        figures=figure_pairs(read.before.figures, read.after.figures),
        bottlenecks_before=read.before.bottlenecks,
        bottlenecks_after=read.after.bottlenecks,
        advice=to_try(read.after.advice),
        source=source_diff(read.lines),
    )


class ReportPair(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``diff`` of two reports."""

    before: Report
    after: Report
    warnings: list[Finding]
    kernels: list[KernelPair]
    only_before: tuple[Launch, ...]
    only_after: tuple[Launch, ...]


class FigurePair(msgspec.Struct, frozen=True, kw_only=True):
    """None on a side that has not collected it."""

    before: float | None
    after: float | None
    factor: float | None
    unit: str
    metric: str


def figure_pairs(
    before: Mapping[str, Figure], after: Mapping[str, Figure]
) -> dict[str, FigurePair]:
    """Return pairs by the id of the figure."""
    return {
        key: FigurePair(
            before=old.value if (old := before.get(key)) else None,
            after=new.value if (new := after.get(key)) else None,
            factor=new.value / old.value if old and new and old.value else None,
            unit=known.unit,
            metric=known.metric,
        )
        for key, known in {**after, **before}.items()
    }
