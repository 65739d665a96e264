"""What each verb answers under ``--json``: typed records, made from judged values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from workbench.derive.figures import Figure
from workbench.derive.matching import LaunchGroup
from workbench.derive.source_diff import InstructionCost
from workbench.derive.speedup import OverRecordings
from workbench.judge import advice_rules as ranked
from workbench.judge.advice_rules import Advice, AdviceRecord, KindRecord, Tried
from workbench.judge.bottlenecks import Bottleneck
from workbench.judge.comparison import Comparison
from workbench.judge.findings import Finding
from workbench.judge.gates import Gate
from workbench.judge.ladder import Ablation, Row
from workbench.judge.predictions import Score
from workbench.judge.times import AcrossShapes, AtShape, InRegime, TimingFacts
from workbench.ncu.report_file import Launch, Report
from workbench.render.as_json import Data, shown_fields
from workbench.render.columns import Where, data
from workbench.render.document.advice import CATALOGUE
from workbench.render.document.launches import Details
from workbench.render.document.phrases import figure
from workbench.render.source_lines import SourceLine
from workbench.words import VIRTUAL_ROOT, Change, GateState, Regime, Stage

DIGITS = 4
TOP = VIRTUAL_ROOT.rpartition("/")[0] + "/"
MOST_TRIED = 3
# In the JSON of one variant, not in that of a ladder.
WHOLE_ROW = (
    *("call", "figures", "bottlenecks", "roofline", "build", "checks"),
    *("evidence_state", "tables_only"),
)
IN_FULL = (  # of `ablate --full`
    *("stalls", "predictions", "deciding_speedup", "occupancy_limiters", "kernels"),
    *("regimes", "against_parent", "against_parent_at", "no_source_lines", "capture"),
)


A = TypeVar("A", bound=msgspec.Struct)


def answer(kind: type[A], record: object, **more: object) -> A:
    """``more``, and the other fields from the attributes of ``record``."""
    names = [name for name in kind.__struct_fields__ if name not in more]
    return kind(**{name: getattr(record, name) for name in names}, **more)


class AdvisedLimit(msgspec.Struct, frozen=True, kw_only=True):
    """``of`` is a level, a pipe or a stall reason of the ``stage``."""

    stage: Stage
    of: str
    metric: str
    unit: str
    share: float
    value: float


class AdvisedLine(msgspec.Struct, frozen=True, kw_only=True):
    """The line that shows a limit best."""

    file: str
    line: int
    stall_share: float | None
    called_at: str | None


class AdvisedChange(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of change to try next."""

    id: str
    change: Change
    why: Finding
    title: str
    how: str
    limit: AdvisedLimit
    line: AdvisedLine | None
    estimated_gain: float
    tried: tuple[Tried, ...]


class AdviceInShort(msgspec.Struct, frozen=True, kw_only=True):
    """Of a row of ``ablate``."""

    id: str
    estimated_gain: float


class LadderRow(msgspec.Struct, frozen=True, kw_only=True):
    """One variant. Keys of its row and of the ladder's columns stand beside the others."""

    of_row: Row | Data  # whole, or without ``WHOLE_ROW``
    columns: Data
    parent: str | None
    lesson: str | msgspec.UnsetType
    dram_gb_per_s: float | None
    regimes: Mapping[Regime, InRegime] | msgspec.UnsetType
    against_parent: Data | msgspec.UnsetType | None
    gates: Mapping[str, Gate]
    advice: list[AdvisedChange] | list[AdviceInShort] | None


class VariantAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Of ``show VARIANT``."""

    study: str
    gpu: str
    of_row: LadderRow
    warnings: tuple[Finding, ...]


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
    variants: Sequence[LadderRow]
    references: Sequence[LadderRow]
    warnings: tuple[Finding, ...]


def ablation(found: Ablation, *, full: Collection[str] = (), short: bool = False) -> LadderAnswer:
    """All rows, ``short`` without ``--full``, or the variants of which all is asked for."""

    def shown(rows: Iterable[Row]) -> Sequence[LadderRow]:
        if not full:
            return [short_row(found, each) if short else row(found, each) for each in rows]
        return [whole_row(found, each) for each in rows if each.variant in full]

    return answer(
        LadderAnswer,
        found,
        shape=shape_of(found),
        evidence={**_evidence(found), "timings": found.timing_file},
        predictions=found.score,
        whole=_in_short(found.whole),
        across_shapes=_across(found.across) if found.across and not short else None,
        variants=shown(found.rows),
        references=shown(found.references),
    )


def _across(found: AcrossShapes) -> Data:
    shapes = [shown_fields(one) | {"shape": shape_of(one)} for one in found.shapes]
    return {**shown_fields(found, "shapes"), "shapes": shapes}


def _evidence(found: Ablation) -> Data:
    return {"source": found.source, "date": found.date}


def shape_of(found: Ablation | AtShape) -> Data:
    return {"name": found.shape, **found.parameters}


def _in_short(found: Comparison | None) -> Data | None:
    return shown_fields(found, "largest_changes") if found else None


def whole_row(found: Ablation, each: Row) -> LadderRow:
    return LadderRow(
        of_row=each,
        columns=data(found, each, Where.JSON),
        parent=each.step.parent if each.step else None,
        lesson=each.step.lesson if each.step else "",
        dram_gb_per_s=figure(each, "dram_bandwidth"),
        regimes=each.regimes,
        against_parent=_in_short(each.against_parent),
        gates={gate.name: gate for gate in each.gates},
        advice=to_try(each.advice, found.record),
    )


def row(found: Ablation, each: Row) -> LadderRow:
    """As ``ablate`` has it."""
    first = ranked.to_try(each.advice, found.record)
    advice = first and [AdviceInShort(id=one.id, estimated_gain=_gain(one)) for one in first]
    short = shown_fields(each, *WHOLE_ROW)
    return msgspec.structs.replace(whole_row(found, each), of_row=short, advice=advice)


def short_row(found: Ablation, each: Row) -> LadderRow:
    """The columns and the verdict, with the gates that did not pass."""
    return msgspec.structs.replace(
        row(found, each),
        of_row=shown_fields(each, *WHOLE_ROW, *IN_FULL),
        lesson=msgspec.UNSET,
        regimes=msgspec.UNSET,
        against_parent=msgspec.UNSET,
        gates={gate.name: gate for gate in each.gates if gate.state != GateState.PASSED},
    )


class KernelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Launches of a report that are alike; all but ``launches`` is of the median ``launch``."""

    launches: list[int]
    launch: int
    kernel: str
    figures: Mapping[str, Figure]
    stalls: Mapping[str, float]
    occupancy_limiters: tuple[str, ...]
    bottlenecks: tuple[Bottleneck, ...]
    rules_collected: bool
    advice: list[AdvisedChange] | None


def kernel(found: Details, group: LaunchGroup) -> KernelAnswer:
    return answer(
        KernelAnswer,
        found,
        launches=[each.index for each in group.launches],
        launch=found.launch.index,
        kernel=found.launch.kernel,
        advice=to_try(found.advice),
    )


class ReportAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Of ``show FILE``. Keys of the report stand beside the others."""

    of_report: Report
    launches: Sequence[Launch]
    kernels: list[KernelAnswer]


class ListedKernel(msgspec.Struct, frozen=True, kw_only=True):
    """Launches of a program that are alike, as its first run listed them."""

    kernel: str
    signature: str
    grid: tuple[int, ...] | None
    block: tuple[int, ...] | None
    count: int
    total_microseconds: float | None
    microseconds: float | None


def listed(group: LaunchGroup) -> ListedKernel:
    return answer(
        ListedKernel,
        group.typical,
        count=len(group.launches),
        total_microseconds=group.microseconds,
    )


class ProgramAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Of ``profile -- PROGRAM``."""

    program: Sequence[str]
    failure: str
    missing: Sequence[str]
    listed: list[ListedKernel]
    profile: ReportAnswer


class VariantLines(msgspec.Struct, frozen=True, kw_only=True):
    """Of ``show VARIANT --source``."""

    variant: str
    files: Mapping[str, Sequence[SourceLine]]
    sass: Sequence[InstructionCost] | msgspec.UnsetType


class ReportLines(msgspec.Struct, frozen=True, kw_only=True):
    """Of ``show FILE --source``."""

    of_report: Report
    launch: int
    kernel: str
    without_text: list[str]
    files: Mapping[str, Sequence[SourceLine]]
    sass: Sequence[InstructionCost] | msgspec.UnsetType


class AdviceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Of ``advise``: ids that stay, and less than 4 KB for a variant."""

    study: str
    gpu: str
    shape: str
    variant: str
    evidence: Data
    microseconds: float | None
    advice: list[AdvisedChange] | None
    recorded_steps: KindRecord
    warnings: tuple[Finding, ...]


def advised(found: Ablation, row: Row, warnings: tuple[Finding, ...] = ()) -> AdviceAnswer:
    advice = to_try(row.advice, found.record)
    return answer(
        AdviceAnswer,
        found,
        variant=row.variant,
        evidence=_evidence(found),
        microseconds=round(row.time.value, DIGITS) if row.time else None,
        advice=advice,
        recorded_steps=found.record.of(*(one.change for one in advice or ())),
        warnings=warnings,
    )


def place(file: str, line: int) -> str:
    return f"{file.removeprefix(TOP)}:{line}"


def to_try(
    advice: Sequence[Advice] | None, record: AdviceRecord | None = None
) -> list[AdvisedChange] | None:
    """The best first; ``None`` where the capture has nothing to judge by."""
    first = ranked.to_try(advice, record)
    return None if first is None else list(map(_advice, first))


def _gain(one: Advice) -> float:
    return round(one.gain, DIGITS - 1)


def _advice(one: Advice) -> AdvisedChange:
    limit, spot, recipe = one.limit, one.spot, CATALOGUE[one.change]
    return AdvisedChange(
        id=one.id,
        change=one.change,
        why=one.why,
        title=recipe.title,
        how=recipe.how,
        limit=AdvisedLimit(
            stage=limit.stage,
            of=limit.what,
            metric=limit.metric,
            unit=limit.unit,
            share=round(limit.share, DIGITS),
            value=float(f"{limit.value:.{DIGITS}g}"),
        ),
        line=AdvisedLine(
            file=spot.file.removeprefix(TOP),
            line=spot.line,
            stall_share=None if spot.share is None else round(spot.share, DIGITS),
            called_at=place(*spot.called_at) if spot.called_at else None,
        )
        if spot
        else None,
        estimated_gain=_gain(one),
        tried=one.tried[:MOST_TRIED],
    )
