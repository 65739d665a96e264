"""What the verbs print under ``--json``: the records that they return, serialised.

A record shows the fields that its ``repr`` has, and the properties marked ``shown``, by their
names. docs/json.md and docs/reference.md say what the names mean.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import PurePath
from typing import Any

import msgspec

from workbench.derive.diff.line_diff import Hunk, Shift, SourceDiff
from workbench.derive.figures import Figure
from workbench.derive.matching import PairGroup
from workbench.derive.recordings import OverRecordings
from workbench.derive.speedup import Ratio
from workbench.judge.advice import ranking as ranked
from workbench.judge.advice.ranking import Advice, AdviceRecord, KindRecord
from workbench.judge.bottlenecks import Bottleneck
from workbench.judge.comparison import Comparison, rule_words
from workbench.judge.findings import Finding
from workbench.judge.predictions import Score
from workbench.judge.regimes import AcrossShapes, AtShape
from workbench.judge.rows import Ablation, Row
from workbench.judge.sessions import TimingFacts
from workbench.judge.view import VariantPair
from workbench.ncu.report_file import Launch, Report
from workbench.render.document import ladder_table
from workbench.render.document.advice import CATALOGUE
from workbench.render.document.launches import Details, PairRead
from workbench.render.document.phrases import figure
from workbench.render.document.sentences import sentence
from workbench.words import SCHEMA_VERSION, VIRTUAL_ROOT, Regime

DIGITS = 4
TOP = VIRTUAL_ROOT.rpartition("/")[0] + "/"
MOST_TRIED = 3
MOST_SHIFTS = 20
# In the JSON of one variant, not in that of a ladder.
WHOLE_ROW = (
    *("call", "figures", "bottlenecks", "roofline", "build", "checks"),
    *("evidence_state", "tables_only"),
)
Data = dict[str, object]


@cache
def shown_names(record: Any) -> tuple[str, ...]:
    """What a record shows: its fields with a ``repr``, then the properties marked ``shown``."""
    if issubclass(record, msgspec.Struct):
        return tuple(each.name for each in msgspec.structs.fields(record))
    every = {name: each for base in reversed(record.__mro__) for name, each in vars(base).items()}
    marked = [n for n, p in every.items() if hasattr(getattr(p, "fget", None), "is_shown")]
    return (*(each.name for each in fields(record) if each.repr), *marked)


def plain_data(value: Any) -> Any:
    """Records as objects, sequences as lists; what is no number is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, msgspec.Struct):
        return {name: plain_data(getattr(value, name)) for name in shown_names(type(value))}
    if isinstance(value, Finding):
        return {**shown_fields(value), "message": sentence(value)}
    if is_dataclass(value):
        return shown_fields(value)
    if isinstance(value, Mapping):
        return {key: plain_data(each) for key, each in value.items()}
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain_data(each) for each in value]
    return value


def shown_fields(record: Any, *but: str) -> Data:
    """All that a record shows ``but`` some of it."""
    kind: Any = type(record)
    return {n: plain_data(getattr(record, n)) for n in shown_names(kind) if n not in but}


def dumps(data: object, indent: int | None = 1) -> str:
    """A record, or an object of several, with its ``schema_version``; never NaN."""
    whole = {"schema_version": SCHEMA_VERSION, **plain_data(data)}
    return json.dumps(whole, indent=indent, allow_nan=False)


class LadderAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Of ``ablate`` and ``profile``."""

    study: str
    gpu: str
    shape: Data
    evidence: Data
    reference: str
    timing: TimingFacts | None
    claimed: OverRecordings | None
    predictions: Score
    whole: Data | None
    across_shapes: Data | None
    versions: list[Data]
    references: list[Data]
    warnings: tuple[Finding, ...]


def ablation(found: Ablation, *, full: Collection[str] = ()) -> LadderAnswer:
    """All rows, or the variants of which all is asked for."""

    def shown(rows: Iterable[Row]) -> list[Data]:
        if not full:
            return [row(found, each) for each in rows]
        return [full_row(found, each) for each in rows if each.variant in full]

    return LadderAnswer(
        study=found.study,
        gpu=found.gpu,
        shape=_shape(found),
        evidence={**_evidence(found), "timings": found.timing_file},
        reference=found.reference,
        timing=found.timing,
        claimed=found.claimed,
        predictions=found.score,
        whole=_in_short(found.whole),
        across_shapes=_across(found.across) if found.across else None,
        versions=shown(found.rows),
        references=shown(found.references),
        warnings=found.warnings,
    )


def _across(found: AcrossShapes) -> Data:
    shapes = [shown_fields(one) | {"shape": _shape(one)} for one in found.shapes]
    return {**shown_fields(found, "shapes"), "shapes": shapes}


def _evidence(found: Ablation) -> Data:
    return {"source": found.source, "date": found.date}


def _shape(found: Ablation | AtShape) -> Data:
    return {"name": found.shape, **found.parameters}


def _in_short(found: Comparison | None) -> Data | None:
    return shown_fields(found, "largest_changes") if found else None


def columns(found: Ablation, row: Row) -> Data:
    """What the columns of the ladder have of a row, by their keys in JSON."""
    return {f.column.json: f.cell(row).data for f in ladder_table.fields(found) if f.column.json}


def row(found: Ablation, row: Row, without: Collection[str] = WHOLE_ROW) -> Data:
    first = ranked.to_try(row.advice, found.record)
    return {
        **shown_fields(row, *without, "against_parent", "gates", "regimes", "advice"),
        **columns(found, row),
        "parent": row.step.parent if row.step else None,
        "lesson": row.step.lesson if row.step else "",
        "dram_gb_per_s": figure(row, "dram_bandwidth"),
        "regimes": {r: known for r, known in row.regimes.items() if r != Regime.CHAINED},
        "against_parent": _in_short(row.against_parent),
        "gates": {gate.name: gate for gate in row.gates},
        "advice": first and [{"id": one.id, "gain_up_to": _gain(one)} for one in first],
    }


def full_row(found: Ablation, each: Row) -> Data:
    """A row with every figure, for ``profile`` and ``show``."""
    return {
        **row(found, each, without=()),
        "advice": to_try(each.advice, found.record),
    }


def launch(found: Details, launches: Iterable[int]) -> Data:
    """A launch of a report, which stands for others of its kernel and shape."""
    return {
        "launches": list(launches),
        **shown_fields(found, "launch"),
        "launch": found.launch.index,
        "kernel": found.launch.kernel,
        "advice": to_try(found.advice),
    }


class SourceCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Of the sources of two sides; sums are of what each side's lines cost."""

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
    """Of ``diff`` of two variants."""

    study: str
    gpu: str
    shape: Data
    before: str
    after: str
    speedup: Ratio | None
    speedups: Mapping[Regime, Ratio]
    comparison: Comparison | None
    versions: list[Data]
    figures: Mapping[str, FigurePair]
    warnings: tuple[Finding, ...]


def variant_pair(found: Ablation, pair: VariantPair, changes: SourceDiff) -> PairAnswer:
    return PairAnswer(
        study=found.study,
        gpu=found.gpu,
        shape=_shape(found),
        before=pair.before.variant,
        after=pair.after.variant,
        speedup=pair.speedup,
        speedups=pair.speedups,
        comparison=pair.comparison,
        versions=[full_row(found, row) for row in (pair.before, pair.after)],
        figures=figure_pairs(pair.before.figures, pair.after.figures),
        warnings=pair.warnings,
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
    advice: list[Data] | None
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
    """Of ``diff`` of two reports."""

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
    """By the id of the figure."""
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


class AdviceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Of ``advise``: ids that stay, and less than 4 KB for a variant."""

    study: str
    gpu: str
    shape: str
    variant: str
    evidence: Data
    microseconds: float | None
    advice: list[Data] | None
    record_of: Data
    nvidia: list[Data]
    warnings: tuple[Finding, ...]


def advised(found: Ablation, row: Row, warnings: tuple[Finding, ...] = ()) -> AdviceAnswer:
    return AdviceAnswer(
        study=found.study,
        gpu=found.gpu,
        shape=found.shape,
        variant=row.variant,
        evidence=_evidence(found),
        microseconds=round(row.time.value, DIGITS) if row.time else None,
        advice=to_try(row.advice, found.record),
        record_of=shown_fields(found.record, "kinds"),
        nvidia=[
            {
                "rule": rule_words(limit.rule, limit.title),
                "estimate_pct": round(limit.estimated_speedup_pct, 1),
            }
            for limit in row.bottlenecks
            if limit.rule
        ],
        warnings=warnings,
    )


def to_try(
    advice: Sequence[Advice] | None, record: AdviceRecord | None = None
) -> list[Data] | None:
    """The best first; ``None`` where the capture has nothing to judge by."""
    first = ranked.to_try(advice, record)
    return None if first is None else [_advice(one, record) for one in first]


def _gain(one: Advice) -> float:
    return round(one.gain, DIGITS - 1)


def _advice(one: Advice, record: AdviceRecord | None) -> Data:
    known = record.of(one.change) if record else KindRecord()
    limit, spot = one.limit, one.spot
    return {
        "id": one.id,
        "change": one.change,
        "why": one.why,
        **shown_fields(CATALOGUE[one.change]),
        "limit": {
            "stage": limit.stage,
            "of": limit.what,
            "metric": limit.metric,
            "unit": limit.unit,
            "share": round(limit.share, DIGITS),
            "value": float(f"{limit.value:.{DIGITS}g}"),
        },
        "line": spot
        and {
            "file": spot.file.removeprefix(TOP),
            "line": spot.line,
            "stall_share": None if spot.share is None else round(spot.share, DIGITS),
        },
        "gain_up_to": _gain(one),
        "record": known if known.tried else None,
        "tried": one.tried[:MOST_TRIED],
    }
