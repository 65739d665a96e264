"""What each verb answers under ``--json``: typed records, made from judged values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from workbench.derive.code_diff import CodeChange, CodeRow, KindCount
from workbench.derive.figures import Figure
from workbench.derive.matching import LaunchGroup, PairGroup
from workbench.derive.source_diff import Hunk, InstructionCost, Shift, SourceDiff
from workbench.derive.speedup import OverRecordings, Ratio
from workbench.derive.timeline import LaunchTimeline
from workbench.judge import advice_rules
from workbench.judge.across import AtShape
from workbench.judge.advice_rules import Advice, Tried, faults
from workbench.judge.bottlenecks import Bottleneck
from workbench.judge.comparison import Comparison
from workbench.judge.findings import Finding, Gate
from workbench.judge.ladder import Ablation, VariantPair
from workbench.judge.predictions import Score
from workbench.judge.program_variants import ProgramStep
from workbench.judge.rows import InRegime, Row
from workbench.judge.session_checks import TimingFacts
from workbench.ncu.report_file import Launch, Report
from workbench.render.as_json import Data, shown_fields
from workbench.render.document.advice import CATALOGUE
from workbench.render.document.hunks import SourceLine
from workbench.render.document.launches import Details, PairRead
from workbench.render.document.printed_ladder import Where, data, figure
from workbench.render.document.variant import FigurePair, figure_pairs
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
NOT_SHORT = ("lesson", "regimes", "against_parent", "timeline")


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
    tried: tuple[Tried, ...]


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
    advice: list[AdvisedChange] | list[str] | None
    timeline: Sequence[LaunchTimeline] | msgspec.UnsetType = msgspec.UNSET
    faults: tuple[Finding, ...] | msgspec.UnsetType = msgspec.UNSET


class VariantAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``show VARIANT``."""

    study: str
    gpu: str
    of_row: LadderRow
    warnings: tuple[Finding, ...]


class LadderAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``ablate`` and ``profile``."""

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


def ablation(ladder: Ablation, *, full: Collection[str] = (), short: bool = False) -> LadderAnswer:
    """All rows, ``short`` without ``--full``, or the variants of which all is asked for."""

    def shown(rows: Iterable[Row]) -> Sequence[LadderRow]:
        if full:
            return [whole_row(ladder, each) for each in rows if each.variant in full]
        return [row(ladder, each, short=short) for each in rows]

    across: Data | None = None
    if ladder.across and not short:
        shapes = [shown_fields(each) | {"shape": shape_of(each)} for each in ladder.across.shapes]
        across = {**shown_fields(ladder.across, "shapes"), "shapes": shapes}
    return answer(
        LadderAnswer,
        ladder,
        shape=shape_of(ladder),
        evidence={**_evidence(ladder), "timings": ladder.timing_file},
        predictions=ladder.score,
        whole=_in_short(ladder.whole),
        across_shapes=across,
        variants=shown(ladder.rows),
        references=shown(ladder.references),
    )


def _evidence(ladder: Ablation) -> Data:
    return {"source": ladder.source, "date": ladder.date}


def shape_of(result: Ablation | AtShape) -> Data:
    return {"name": result.shape, **result.parameters}


def _in_short(comparison: Comparison | None) -> Data | None:
    return shown_fields(comparison, "largest_changes") if comparison else None


def whole_row(ladder: Ablation, row: Row) -> LadderRow:
    return LadderRow(
        of_row=row,
        columns=data(ladder, row, Where.JSON),
        parent=row.step.parent if row.step else None,
        lesson=row.step.lesson if row.step else "",
        dram_gb_per_s=figure(row, "dram_bandwidth"),
        regimes=row.regimes,
        against_parent=_in_short(row.against_parent),
        gates={gate.name: gate for gate in row.gates},
        advice=to_try(row.advice),
        timeline=row.timeline.launches if row.timeline else msgspec.UNSET,
        faults=tuple(fault.why for fault in faults(row.timeline))
        if row.timeline
        else msgspec.UNSET,
    )


def row(ladder: Ablation, judged: Row, *, short: bool = False) -> LadderRow:
    """Return a row in the form that ``ablate`` has; ``short`` are the columns and the verdict, with
    the gates that did not pass.
    """
    first = advice_rules.to_try(judged.advice)
    fields: Data = {"advice": first and [one.id for one in first]}
    fields["of_row"] = shown_fields(judged, *WHOLE_ROW, *(IN_FULL if short else ()))
    if short:
        fields |= dict.fromkeys(NOT_SHORT, msgspec.UNSET)
        open_gates = [gate for gate in judged.gates if gate.state != GateState.PASSED]
        fields["gates"] = {gate.name: gate for gate in open_gates}
    return msgspec.structs.replace(whole_row(ladder, judged), **fields)


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


def kernel(details: Details, group: LaunchGroup) -> KernelAnswer:
    return answer(
        KernelAnswer,
        details,
        launches=[each.index for each in group.launches],
        launch=details.launch.index,
        kernel=details.launch.kernel,
        advice=to_try(details.advice),
    )


class ReportAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``show FILE``. Keys of the report stand beside the others."""

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
    """The answer of ``profile -- PROGRAM``."""

    program: Sequence[str]
    failure: str
    missing: Sequence[str]
    listed: list[ListedKernel]
    profile: ReportAnswer
    study: Sequence[ProgramStep]


class VariantLines(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``show VARIANT --source``."""

    variant: str
    files: Mapping[str, Sequence[SourceLine]]
    sass: Sequence[InstructionCost] | msgspec.UnsetType


class ReportLines(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``show FILE --source``."""

    of_report: Report
    launch: int
    kernel: str
    without_text: list[str]
    files: Mapping[str, Sequence[SourceLine]]
    sass: Sequence[InstructionCost] | msgspec.UnsetType


class AdviceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``advise``: ids that stay, and less than 4 KB for a variant."""

    study: str
    gpu: str
    shape: str
    variant: str
    evidence: Data
    microseconds: float | None
    advice: list[AdvisedChange] | None
    warnings: tuple[Finding, ...]


def advised(ladder: Ablation, row: Row, warnings: tuple[Finding, ...] = ()) -> AdviceAnswer:
    return answer(
        AdviceAnswer,
        ladder,
        variant=row.variant,
        evidence=_evidence(ladder),
        microseconds=round(row.time.value, DIGITS) if row.time else None,
        advice=to_try(row.advice),
        warnings=warnings,
    )


def place(file: str, line: int) -> str:
    return f"{file.removeprefix(TOP)}:{line}"


def to_try(advice: Sequence[Advice] | None) -> list[AdvisedChange] | None:
    """The best first; ``None`` where the capture has nothing to judge by."""
    first = advice_rules.to_try(advice)
    return None if first is None else list(map(_advice, first))


def _advice(advice: Advice) -> AdvisedChange:
    limit, spot, recipe = advice.limit, advice.spot, CATALOGUE[advice.change]
    return answer(
        AdvisedChange,
        advice,
        title=recipe.title,
        how=recipe.how,
        limit=answer(
            AdvisedLimit,
            limit,
            of=limit.what,
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
        tried=advice.tried[:MOST_TRIED],
    )


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


class CodeKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel's machine code on both sides; ``changed`` are the rows that are not the same."""

    kernel: str
    same: bool
    instructions_before: int
    instructions_after: int
    summary: str
    counts: Mapping[CodeChange, int]
    kinds: Sequence[KindCount] | msgspec.UnsetType = msgspec.UNSET
    changed: Sequence[CodeRow] | msgspec.UnsetType = msgspec.UNSET


class MachineCode(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``diff --sass``."""

    before: str
    after: str
    origin: str
    kernels: list[CodeKernel]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
