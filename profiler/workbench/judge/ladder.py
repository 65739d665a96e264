"""Stage three, analyse: one function of the loaded evidence gives the judged ladder. Pure.

``judge`` makes a ``View`` of each shape, judges every step at the shape that decides about it, and
then builds the rows of each table, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from workbench.derive.figures import Figure, occupancy_limiters, stall_shares
from workbench.derive.rooflines import Peaks, Point, peaks, point
from workbench.derive.source_diff import ProfiledSource, SourceDiff, Sources, profiled, source_diff
from workbench.derive.speedup import OverRecordings, Ratio, Time, over_recordings, smaller
from workbench.derive.timeline import CallTimeline
from workbench.errors import unknown
from workbench.evidence.records import (
    Build,
    CaptureIndex,
    Check,
    Environment,
    GraphNode,
    Provenance,
    timing_name,
)
from workbench.judge.advice_rules import Advice, Spot, Tried, advise, subject
from workbench.judge.bottlenecks import Bottleneck, bottlenecks_of
from workbench.judge.comparison import Comparison
from workbench.judge.findings import Finding, finding, joined, suffix
from workbench.judge.gates import (
    Accuracy,
    Judgement,
    View,
    Views,
    accuracy_of,
    compiled_by,
    judge_step,
    standing,
)
from workbench.judge.predictions import Score, score
from workbench.judge.times import (
    AcrossShapes,
    InRegime,
    ShapeTimes,
    TimingFacts,
    across_shapes,
    in_regimes,
    main_timing,
    timing_facts,
    timing_warnings,
)
from workbench.load import (
    LadderEvidence,
    ShapeEvidence,
    VariantEvidence,
    judged_at,
    shapes_of,
    shown_at,
    steps_shown,
)
from workbench.ncu.capture import Capture, has_lines
from workbench.ncu.catalog import DRAM, L2
from workbench.ncu.command import counting
from workbench.study.config import Config, Gates
from workbench.study.front_ends import why_no_lines
from workbench.study.model import Step, Work, outcomes
from workbench.words import (
    ABSENT,
    CLOCK_TOLERANCE,
    GENERATED_ROOT,
    VIRTUAL_ROOT,
    Change,
    CheckResult,
    Origin,
    Parameter,
    Regime,
    Role,
    Status,
    Verdict,
    grouped,
)

TABLE_ROWS = 20  # of steps, where not all are asked for


@dataclass(frozen=True)
class Row(Judgement):
    """One variant. Without current evidence its figures are absent, and ``problem`` says why.

    ``evidence_state`` is that of build, check, timing and capture. ``regimes`` has its times and
    ratios in each. ``call`` are what one call is made of. ``no_source_lines`` says that its capture
    has no source lines, and why.

    ``chosen`` is the fastest of those that a choice picks from, and ``over_chosen`` the ratio over
    it. ``needs`` is the package without which a reference is not measured. ``advice`` is all that
    could be tried next, see ``to_try``; None is not collected. ``hottest`` is the line with the
    most stall time.
    """

    variant: str
    title: str = field(repr=False)
    step: Step | None = field(repr=False)
    evidence_state: Mapping[str, Status]
    status: Status
    problem: Finding | None = None
    regimes: Mapping[Regime, InRegime] = field(default_factory=dict)
    call: tuple[GraphNode, ...] = ()
    accuracy: Accuracy | None = None
    figures: Mapping[str, Figure] = field(default_factory=dict)
    stalls: Mapping[str, float] = field(default_factory=dict)
    occupancy_limiters: tuple[str, ...] = ()
    bottlenecks: tuple[Bottleneck, ...] = ()
    roofline: Point | None = None
    kernels: tuple[str, ...] = ()
    capture: str = ""
    tables_only: bool = False  # the report of the capture was not kept
    no_source_lines: Finding | None = None
    checks: Mapping[str, Check] = field(default_factory=dict)
    build: Build | None = None
    needs: str = field(default="", repr=False)
    role: Role = field(default=Role.STEP, repr=False)
    chosen: str = field(default="", repr=False)
    over_chosen: Ratio | None = field(default=None, repr=False)
    advice: tuple[Advice, ...] | None = None
    hottest: Spot | None = field(default=None, repr=False)
    timeline: CallTimeline | None = field(default=None, repr=False)

    @property
    def is_judged(self) -> bool:
        """Whether there is current evidence to judge it by, here or at the shape where it is."""
        return self.status in (Status.CURRENT, Status.FAILED) or self.verdict is not None

    @property
    def is_unsupported(self) -> bool:
        """Whether it says that it does not support the shape of the table."""
        unsupported = CheckResult.UNSUPPORTED.value
        return self.problem is not None and self.problem.values.get("status") == unsupported

    @property
    def chained(self) -> InRegime:
        """The regime that decides."""
        return self.regimes.get(Regime.CHAINED) or InRegime()

    @property
    def time(self) -> Time | None:
        """Chained, as the ratios below."""
        return self.chained.microseconds

    @property
    def over_baseline(self) -> Ratio | None:
        return self.chained.speedup_over_baseline

    @property
    def over_parent(self) -> Ratio | None:
        return self.chained.speedup_over_parent

    @property
    def over_reference(self) -> Ratio | None:
        return self.chained.speedup_over_reference

    @property
    def over_fastest(self) -> Ratio | None:
        """Over the fastest reference there is, ``chained.fastest``."""
        return self.chained.speedup_over_fastest

    @property
    def alone(self) -> InRegime:
        """At the power limit, with no other kernel; without numbers where it was not timed so."""
        return self.regimes.get(Regime.ALONE) or InRegime()

    @property
    def claimed(self) -> Ratio | None:
        """Over the fastest reference, in turn or alone: the smaller."""
        return smaller(self.over_fastest, self.alone.speedup_over_fastest)

    @property
    def is_reference(self) -> bool:
        """Whether it is no step of the ladder."""
        return self.step is None


@dataclass(frozen=True, kw_only=True)
class ShapeLadder:
    """The steps judged at one shape, and those they start from, in the order of the ladder, with
    the references, on the evidence at that shape.
    """

    shape: str
    parameters: Mapping[str, Parameter]
    rows: tuple[Row, ...]
    references: tuple[Row, ...]
    timing: TimingFacts | None = None

    @property
    def everything(self) -> tuple[Row, ...]:
        return (*self.rows, *self.references)

    def row(self, variant: str) -> Row:
        """A step or a reference by its name. Raises UsageError for what is not shown."""
        row = next((row for row in self.everything if row.variant == variant), None)
        if row is None:
            raise unknown("variant of this ladder", variant, [r.variant for r in self.everything])
        return row


class EvidenceEnvironment(Environment, frozen=True, kw_only=True):
    """The environment of the timing session, else of the newest capture; None is not collected.

    ``date`` is in UTC, ``command`` what was typed; ``ncu`` and its flags are those of the newest
    capture.
    """

    workbench: str | None = None
    date: str | None = None
    command: str | None = None
    ncu: str = ABSENT
    ncu_flags: tuple[str, ...] = ()

    @property
    def ncu_options(self) -> Mapping[str, str]:
        """Options of ncu to their values, such as ``--cache-control`` to ``all``."""
        return dict(pairwise(self.ncu_flags))

    @property
    def day(self) -> str:
        """The date without its time; "" where not collected."""
        return (self.date or "")[:10]


@dataclass(frozen=True)
class Recordings:
    """The timing runs of a shape on a GPU: ``noted`` in the journal, and ``kept`` with their
    samples; ``unnoted`` ones are older than the journal, and how many there were is not known. The
    others were ``superseded``, or ``cut_short``: ended, or begun again without a variant.
    """

    noted: int = 0
    kept: int = 0
    unnoted: int = 0
    superseded: int = 0
    cut_short: int = 0

    @property
    def total(self) -> int:
        return self.noted + self.unnoted


@dataclass(frozen=True, kw_only=True)
class Ablation(ShapeLadder):
    """A ladder and its references at one shape; ``source`` is where its figures come from.

    ``whole`` compares the best step with the baseline; None where a capture is missing, or where no
    step was kept. ``across`` has the ladder's outcome at all shapes where it was timed; None but at
    the study's default shape. ``measured`` are ceilings that a GPU of its model reached, by id, in
    FLOP/s and byte/s. ``ladders`` has one ladder a shape at which a step is judged, that of
    ``shape`` first. ``recordings`` are the timing runs at ``shape``. ``work`` is what one call has
    to do at ``shape``.
    ``claimed`` is the best step over the fastest reference by all recordings at ``shape``.
    ``shapes`` has the parameters of every shape of the study, checked ones too.
    ``over_parents`` has the claimed ratio of each step over its parent by shape, wherever both were
    timed.
    ``taken`` are the names of all steps of the study, in their order.
    """

    study: str
    title: str
    summary: str
    gpu: str
    source: Origin
    date: str
    reference: str
    ceilings: Peaks | None
    environment: EvidenceEnvironment
    timing_file: str
    warnings: tuple[Finding, ...]
    whole: Comparison | None = None
    across: AcrossShapes | None = None
    measured: Mapping[str, float] = field(default_factory=dict)
    ladders: tuple[ShapeLadder, ...] = ()
    recordings: Recordings = Recordings()
    work: Work | None = None
    claimed: OverRecordings | None = None
    shapes: Mapping[str, Mapping[str, Parameter]] = field(default_factory=dict, repr=False)
    taken: tuple[str, ...] = field(default=(), repr=False)
    over_parents: Mapping[str, Mapping[str, Ratio]] = field(default_factory=dict, repr=False)

    @property
    def damage(self) -> Collection[Finding]:
        """The first warning of each kind about files that do not count, or not wholly."""
        bad = (found for found in reversed(self.warnings) if found.code.endswith(".damaged"))
        return {found.code: found for found in bad}.values()

    @property
    def base(self) -> str:
        """The level of memory that inputs come from, by most points; DRAM if L2 is too small."""
        room = self.environment.l2_bytes
        if self.work and room and self.work.bytes > room:
            return DRAM
        bases = Counter(row.roofline.base for row in self.everything if row.roofline)
        return bases.most_common(1)[0][0] if bases else DRAM

    @property
    def has_sizes(self) -> bool:
        """Whether the ladder's outcome was timed at several shapes."""
        return self.across is not None and len(self.across.shapes) > 1

    @property
    def moves_only(self) -> bool:
        """Whether the problem needs no arithmetic: a roofline has no place for it."""
        return self.work is not None and not self.work.flops

    @property
    def best(self) -> Row | None:
        return best_of(self.rows)

    @property
    def path(self) -> tuple[Row, ...]:
        """From the baseline to the best step; before a dispatcher, the kernel that it chooses."""
        steps = {row.variant: row for row in self.rows}
        path: list[Row] = []
        row = self.best
        while row is not None and row not in path:
            path.append(row)
            row = steps.get(row.chosen or (row.step.parent if row.step else "") or "")
        return tuple(path[::-1])

    @property
    def table_rows(self) -> list[Row]:
        return self.rows_with(())

    def rows_with(self, named: Collection[str]) -> list[Row]:
        """The rows of a table in the order of the ladder, the best step last.

        They are the path, the ``named`` steps and, up to ``TABLE_ROWS``, steps beside the path that
        were not kept at this shape, losses first. Without a best step they are all steps.
        """
        path = self.path
        if not path:
            return list(self.rows)
        shown = {row.variant for row in path}
        for losses_only in (True, False):
            for row in self.rows:
                parent = row.step.parent if row.step else None
                wanted = _is_loss(row) if losses_only else _is_failure(row)
                if wanted and parent in shown and len(shown) < TABLE_ROWS:
                    shown.add(row.variant)
        rows = [row for row in self.rows if row.variant in shown or row.variant in named]
        best = path[-1]
        return sorted(rows, key=lambda row: row is best and row.verdict != Verdict.BASELINE)

    @property
    def score(self) -> Score:
        """Predictions of all steps that are judged by current evidence: those of one that failed
        are not measurable, and are not dropped with it.
        """
        return score(o for row in self.rows if row.is_judged for o in row.predictions)


def _is_failure(row: Row) -> bool:
    """Whether it was judged at this shape and not kept."""
    return row.verdict not in (None, Verdict.KEPT, Verdict.BASELINE) and not row.judged_at


def _is_loss(row: Row) -> bool:
    over = row.over_parent
    return _is_failure(row) and (over is None or (over.high or over.ratio) < 1)


def best_of(rows: Iterable[Row]) -> Row | None:
    """The fastest kept row or baseline; of equals, one that was timed beside the baseline."""
    kept = [r for r in rows if r.time and r.verdict in (Verdict.KEPT, Verdict.BASELINE)]
    kept.sort(key=lambda r: r.time.value if r.time else 0.0)
    fastest = next(iter(kept), None)
    linked = next((row for row in kept if row.over_baseline), None)
    if not linked or not fastest or not linked.time or not fastest.time:
        return fastest
    low, high = linked.time.low, fastest.time.high
    return linked if low is not None and high is not None and low <= high else fastest


COMPARED = ("gpu", "driver", "cuda", "torch")


def ladder_warnings(
    rows: Sequence[Row], evidence: ShapeEvidence, shape: str = ""
) -> Iterator[Finding]:
    """Warn about captures behind rows at one shape; ``shape`` names it if not the table's."""
    yield from _clocks(rows, shape)
    recorded = [evidence.variants[row.variant].index for row in rows if row.capture]
    indexes = [index for index in recorded if index is not None]
    yield from _provenance(indexes, shape)
    for row in rows:
        if row.roofline and row.roofline.above_roof:
            message = f"{row.variant} stands above its roof{suffix(shape)}: an error in the data"
            yield finding("captures.above_roof", message, variant=row.variant, shape=shape)


def file_warnings(evidence: LadderEvidence, of: Collection[str] | None = None) -> Iterator[Finding]:
    """Warn about captures that do not count, by reason, then other damage; ``of`` some or all."""
    hurt = grouped(
        (variant.damage, variant_at(variant.variant, "" if name == evidence.shape else name))
        for name, shape in evidence.shapes.items()
        for variant in shape.variants.values()
        if variant.damage and (of is None or variant.variant in of)
    )
    for damage, variants in hurt.items():
        message = f"{damage}: no capture of {joined(variants)}; profile again, or restore the file"
        yield finding("captures.damaged", message, text=damage, variants=tuple(variants))
    for text in evidence.notes:
        yield finding("evidence.damaged", text, text=text)


def variant_at(variant: str, shape: str = "") -> Finding:
    return finding("variant", f"{variant}{suffix(shape)}", variant=variant, shape=shape)


def _clocks(rows: Sequence[Row], shape: str) -> Iterator[Finding]:
    clocks = {r.variant: r.figures["sm_clock"].value for r in rows if "sm_clock" in r.figures}
    by_clock = sorted(clocks, key=clocks.__getitem__)
    if by_clock and clocks[by_clock[-1]] > clocks[by_clock[0]] * (1 + CLOCK_TOLERANCE):
        ends = tuple(
            finding("variant", f"{v} at {clocks[v]:.3f} GHz", variant=v, sm_clock_ghz=clocks[v])
            for v in (by_clock[0], by_clock[-1])
        )
        message = f"captures ran at different SM clocks{suffix(shape)}: {joined(ends)}"
        yield finding("captures.clocks", message, shape=shape, variants=ends)


def _provenance(indexes: Sequence[CaptureIndex], shape: str) -> Iterator[Finding]:
    values = {
        key: {ABSENT if value is None else str(value) for value in of}
        for key in COMPARED
        if (of := [getattr(index.provenance, key) for index in indexes])
    }
    values["ncu"] = {index.ncu for index in indexes}
    values["ncu_flags"] = {str(list(counting(index.ncu_flags))) for index in indexes}
    for key, different in values.items():
        if len(different) > 1:
            distinct = tuple(sorted(different))
            message = f"captures differ in {key}{suffix(shape)}: {', '.join(distinct)}"
            yield finding("captures.differ", message, field=key, shape=shape, values=distinct)


def choice_warnings(ladders: Iterable[ShapeLadder], gates: Gates, table: str) -> Iterator[Finding]:
    """Dispatchers slower than what they choose among, by the gate's speedup for certain."""
    for ladder in ladders:
        for row in ladder.rows:
            over = row.over_chosen
            if over is None or over.low is None or over.high is None:
                continue
            if over.high * gates.min_speedup < 1:
                shape = "" if ladder.shape == table else ladder.shape
                yield finding(
                    "choice.slower",
                    f"{row.variant} does not choose the fastest{suffix(shape)}: it is "
                    f"{over.words} of {row.chosen}",
                    variant=row.variant,
                    shape=shape,
                    chosen=row.chosen,
                    **over.numbers,
                )


PROVENANCE = EvidenceEnvironment.__struct_fields__[:-2]  # all but ncu and its flags


def environment(indexes: Iterable[CaptureIndex], session: Provenance | None) -> EvidenceEnvironment:
    """``indexes`` are of the captures measured here, ``session`` is that of the table."""
    newest = max(indexes, key=lambda index: index.provenance.date, default=None)
    sources = [s for s in (session, newest.provenance if newest else None) if s is not None]
    values = {name: [getattr(source, name) for source in sources] for name in PROVENANCE}
    return EvidenceEnvironment(
        **{name: next((v for v in of if v is not None), None) for name, of in values.items()},
        ncu=newest.ncu if newest else ABSENT,
        ncu_flags=newest.ncu_flags if newest else (),
    )


def claimed(evidence: LadderEvidence, times: ShapeTimes, best: Row | None) -> OverRecordings | None:
    """The best step over the fastest reference by all recordings of the same sources at the shape
    (those without samples by the journal's medians, varying as the table's), or alone if that is
    less.
    """
    over = best.over_fastest if best else None
    elsewhere = evidence.between_of if evidence.between_of != evidence.gpu else ""
    if best is None or over is None:
        return None
    if best.claimed is not None and best.claimed is not over:
        return over_recordings([best.claimed], evidence.between, between_of=elsewhere)
    return times.over_recordings(evidence, (best.chained.fastest, best.variant), over, elsewhere)


def recordings(evidence: LadderEvidence, shape: str) -> Recordings:
    """Count the recordings of a shape in the journal and among the timing files."""
    entries = evidence.journal.sessions if evidence.journal else ()
    noted = [entry for entry in entries if entry.shape == shape]
    kept = {timing_name(timing.file) for timing in evidence.shapes[shape].timings}
    whole = [entry for entry in noted if not entry.cut_short]
    return Recordings(
        noted=len(noted),
        kept=len(kept),
        unnoted=len(kept - {entry.file for entry in whole}),
        superseded=sum(entry.file not in kept for entry in whole),
        cut_short=len(noted) - len(whole),
    )


def view_of(evidence: LadderEvidence, config: Config, shape: str, variants: Sequence[str]) -> View:
    """``variants`` decide which timing the table's is."""
    here = evidence.shapes[shape]
    advised = {
        name: subject(
            variant.capture, variant.figures, evidence.ceilings, here.work, variant.timeline
        )
        for name, variant in here.variants.items()
        if variant.capture
    }
    times = ShapeTimes(here, main_timing(here, variants))
    return View(evidence, config, here, times, advised)


def judge(
    evidence: LadderEvidence,
    config: Config,
    *,
    source: Origin = Origin.RECORDED,
    everywhere: bool = True,
) -> Ablation:
    """Judge the steps of the evidence beside all references.

    If the evidence is of ``only`` some variants, these and the baseline are judged, at this shape.
    everywhere: Whether to make tables at the shapes of other steps.
    """
    views = {shape: view_of(evidence, config, shape, evidence.names) for shape in evidence.shapes}
    table, only = views[evidence.shape], evidence.only
    steps = steps_shown(evidence.steps, only, evidence.shape) if only else evidence.steps
    judged = {step.variant: judge_step(views, table, step) for step in steps}
    in_vain = _in_vain(steps, judged, evidence.shape)
    shown = [step for step in steps if not only or step is steps[0] or step.variant in only]
    rows = tuple(
        _row(table, step.variant, in_vain, step=step, judged=judged[step.variant]) for step in shown
    )
    references = _reference_rows(table, in_vain)
    everything = (*rows, *references)
    captured = [table.variant(row.variant) for row in everything if row.capture]
    session = table.times.table
    provenance = environment(
        [variant.index for variant in captured if variant.index],
        session.timing.provenance if session else None,
    )
    highest = _highest_mhz(evidence)
    everywhere = everywhere and not only
    shapes = shapes_of(shown, evidence.shape) if everywhere else [evidence.shape]
    ladders = tuple(_ladders(shapes, views, rows, references, in_vain, highest))
    across = None if only else _across(evidence, views)
    return Ablation(
        study=evidence.study,
        title=evidence.ladder.title,
        summary=evidence.ladder.summary,
        shape=evidence.shape,
        parameters=table.evidence.parameters,
        shapes=evidence.parameters,
        gpu=provenance.gpu or evidence.gpu,
        source=source,
        date=provenance.day,
        reference=evidence.ladder.primary_reference,
        rows=rows,
        references=references,
        ceilings=_ceilings(captured),
        environment=provenance,
        timing_file=session.file if session else "",
        warnings=(
            *file_warnings(evidence),
            *ladder_warnings(everything, table.evidence),
            *(
                warning
                for ladder in ladders[1:]
                for warning in ladder_warnings(
                    ladder.everything, views[ladder.shape].evidence, ladder.shape
                )
            ),
            *choice_warnings(ladders, config.gates, evidence.shape),
            *_other_timings(views, table, rows, ladders),
            *timing_warnings(
                _facts(views, ladders, across if everywhere else None, highest), evidence.shape
            ),
        ),
        whole=None if only else _whole(table, rows),
        across=across,
        measured=evidence.ceilings,
        ladders=ladders,
        timing=ladders[0].timing,
        recordings=recordings(evidence, evidence.shape),
        work=table.evidence.work,
        taken=tuple(step.variant for step in evidence.ladder.steps),
        claimed=claimed(evidence, table.times, best_of(rows)),
        over_parents={step.variant: _over_parent(views, step) for step in shown},
    )


def _over_parent(views: Views, step: Step) -> Mapping[str, Ratio]:
    times = (
        (shape, view.times.over_parent(step.parent or "", step.variant))
        for shape, view in views.items()
    )
    return {
        shape: over for shape, (chained, alone, *_) in times if (over := smaller(chained, alone))
    }


InVain = Mapping[tuple[str, str, Change], Sequence[Tried]]


def _in_vain(
    steps: Iterable[Step], judged: Mapping[str, Judgement], table: str
) -> dict[tuple[str, str, Change], list[Tried]]:
    """Rejected steps that were to be faster, by the shape where they are judged, what they start
    from, and the kind of change. A step that was kept has advice of its own.
    """
    return grouped(
        (
            (judged[step.variant].judged_at or table, step.parent, step.kind),
            Tried(step.variant, verdict),
        )
        for step in steps
        if step.parent and step.kind and not step.corrects
        if (verdict := judged[step.variant].verdict) and verdict.is_rejected
    )


def _reference_rows(view: View, in_vain: InVain) -> tuple[Row, ...]:
    """References as measured at one shape: they have neither gates nor a verdict."""
    return tuple(
        _row(view, reference.name, in_vain, needs=reference.needs)
        for reference in view.ladder.references
    )


def _row(
    view: View,
    variant: str,
    in_vain: InVain,
    *,
    step: Step | None = None,
    judged: Judgement | None = None,
    needs: str = "",
) -> Row:
    evidence = view.variant(variant)
    status, problem = standing(evidence, view.shape)
    if needs and status == Status.MISSING:
        problem = finding("missing.package", f"not collected: it needs {needs}", package=needs)
    stale = status == Status.STALE
    accuracy = None if stale else accuracy_of(evidence.checks)
    timed = not stale and status != Status.FAILED
    timing = view.times.together(variant) if timed else None
    parent = step.parent if step and judged else None
    chosen, over_chosen = "", None
    role = Role.REFERENCE if step is None else Role.START if judged is None else Role.STEP
    if step and judged and step.chooses and not stale:
        role = Role.CHOICE
        chosen, over_chosen = view.times.least(step.chooses, variant)
    capture = evidence.capture if timed and evidence.index else None
    level = DRAM if evidence.index and evidence.index.was_flushed else L2
    advised = view.advised[variant] if capture else None
    return Row(
        **(vars(judged) if judged else {}),
        variant=variant,
        title=evidence.title,
        step=step,
        evidence_state=evidence.state,
        status=status,
        problem=problem,
        regimes=in_regimes(view.times, view.ladder, variant, parent) if timed else {},
        call=timing.timing.nodes.get(variant, ()) if timing else (),
        accuracy=accuracy,
        figures=evidence.figures if capture else {},
        stalls=stall_shares(capture.metrics) if capture else {},
        occupancy_limiters=tuple(occupancy_limiters(capture.metrics)) if capture else (),
        bottlenecks=bottlenecks_of(capture, evidence.figures) if capture else (),
        roofline=point(capture.metrics, view.whole.ceilings, level) if capture else None,
        kernels=capture.kernels if capture else (),
        capture=capture.path.name if capture else "",
        tables_only=evidence.tables_only if capture else False,
        no_source_lines=lines_missing(capture, evidence.front_ends) if capture else None,
        checks={} if stale else evidence.checks,
        build=None if stale else evidence.build,
        needs=needs,
        role=role,
        chosen=chosen,
        over_chosen=over_chosen,
        advice=_answered(view.shape, variant, advise(advised), in_vain) if advised else None,
        hottest=advised.hottest if advised else None,
        timeline=evidence.timeline if timed else None,
    )


def _answered(
    shape: str, variant: str, advice: Sequence[Advice] | None, in_vain: InVain
) -> tuple[Advice, ...] | None:
    """The advice on a variant, with the steps that tried it in vain at this shape."""
    if advice is None:
        return None
    return tuple(
        replace(proposal, tried=tuple(in_vain.get((shape, variant, proposal.change), ())))
        for proposal in advice
    )


def _ladders(
    shapes: Sequence[str],
    views: Views,
    rows: Sequence[Row],
    references: tuple[Row, ...],
    in_vain: InVain,
    highest_mhz: float | None,
) -> Iterator[ShapeLadder]:
    """Make a ladder for each shape; that of the table, the first, is made of its ``rows``."""
    steps, table = [row.step for row in rows if row.step], shapes[0]
    for shape in shapes:
        view, judged = views[shape], judged_at(steps, shape, table)
        if shape == table:
            by_name = {row.variant: row for row in rows}
        else:
            by_name = {
                step.variant: _row(
                    view, step.variant, in_vain, step=step, judged=judge_step(views, view, step)
                )
                for step in judged
            }
        yield ShapeLadder(
            shape=shape,
            parameters=view.evidence.parameters,
            rows=tuple(
                by_name[step.variant]
                if step in judged
                else _row(view, step.variant, in_vain, step=step)  # its verdict is elsewhere
                for step in shown_at(steps, shape, table)
            ),
            references=references if shape == table else _reference_rows(view, in_vain),
            timing=_timing(view, highest_mhz),
        )


def _timing(view: View, highest_mhz: float | None) -> TimingFacts | None:
    return timing_facts(view.times.table, view.ladder.primary_reference, highest_mhz)


def lines_missing(capture: Capture, front_ends: Sequence[str]) -> Finding | None:
    """Say that a capture has no source lines, or none of the user's files; None if it has."""
    if not has_lines(capture):
        message = f"no source lines: {why_no_lines(front_ends)}"
        return finding("lines.none", message, front_ends=tuple(front_ends))
    files = [str(file) for file in set(capture.lines["file"]) if file]
    generated = [file.startswith(GENERATED_ROOT) for file in files]
    users = [file.startswith(VIRTUAL_ROOT) for file in files]
    if any(generated) and not any(users):
        by = compiled_by(front_ends)
        message = (
            "no source lines of its own files: those shown are of code generated " + by.message
        )
        return finding("lines.generated", message, by=by)
    return None


def _highest_mhz(evidence: LadderEvidence) -> float | None:
    """The highest SM clock recorded for this GPU, in captures and in timed graphs."""
    shapes = evidence.shapes.values()
    captured = (v.figures.get("sm_clock") for shape in shapes for v in shape.variants.values())
    timed = (mhz for shape in shapes for timing in shape.timings for mhz in timing.clocks)
    return max((*(1e3 * clock.value for clock in captured if clock), *timed), default=None)


def _facts(
    views: Views,
    ladders: Sequence[ShapeLadder],
    across: AcrossShapes | None,
    highest_mhz: float | None,
) -> Mapping[str, TimingFacts]:
    """Collect timing facts of every shape that shows times, or has wrong outputs and so no time."""
    every = {ladder.shape: ladder.timing for ladder in ladders}
    if across:
        shown = {result.shape for result in across.shapes}
        for shape, view in views.items():
            if shape not in every:
                facts = _timing(view, highest_mhz)
                if shape in shown or (facts and facts.wrong):
                    every[shape] = facts
    return {shape: facts for shape, facts in every.items() if facts is not None}


def _other_timings(
    views: Views, table: View, steps: Sequence[Row], ladders: Sequence[ShapeLadder]
) -> Iterator[Finding]:
    """Times and ratios of a table that are of other sessions than the rest of it; all ``steps``
    have theirs at the shape of the table.
    """
    for ladder in ladders:
        times, own_shape = views[ladder.shape].times, ladder.shape == table.shape
        others: dict[str, list[Finding]] = {}
        for row in (*(steps if own_shape else ladder.rows), *ladder.references):
            if row.time is not None and (timing := times.together(row.variant)) is not times.table:
                others.setdefault(timing.file if timing else "", []).append(variant_at(row.variant))
            parent = row.step.parent if row.step and row.over_parent else ""
            for over in filter(None, dict.fromkeys([parent, row.chained.fastest])):
                both = times.together(over, row.variant)
                if both is not None and both is not times.table:
                    text = f"{row.variant} over {over}"
                    timed = finding("variant", text, variant=row.variant, over=over)
                    others.setdefault(both.file, []).append(timed)
        shape = "" if own_shape else ladder.shape
        for file, variants in others.items():
            names = ", ".join(dict.fromkeys(str(variant.values["variant"]) for variant in variants))
            message = f"times or ratios of another run ({file or ABSENT}){suffix(shape)}: {names}"
            every = tuple(variants)
            yield finding("timing.other_file", message, file=file, shape=shape, variants=every)


def _ceilings(profiled: Sequence[VariantEvidence]) -> Peaks | None:
    """Take the ceilings of the first capture that has what a roofline needs."""
    every = (peaks(variant.capture.metrics) for variant in profiled if variant.capture)
    return next((roof for roof in every if roof and {"fp32", DRAM} <= roof.rates.keys()), None)


def _across(evidence: LadderEvidence, views: Views) -> AcrossShapes | None:
    """Sum up the ladder over all shapes, at the study's default shape only.

    An outcome that was timed at fewer shapes than one before it, as a new one is at first, does not
    stand in for that.
    """
    if not evidence.steps or evidence.shape != evidence.default_shape:
        return None
    times = [view.times for view in views.values()]
    references = [reference.name for reference in evidence.ladder.references]
    results = [across_shapes(times, references, s.variant) for s in outcomes(evidence.steps)]
    return max(reversed(results), key=lambda result: len(result.shapes))


def _whole(view: View, rows: Sequence[Row]) -> Comparison | None:
    """The best step with the baseline; None where no step was kept."""
    best = best_of(rows)
    if best is None or best.verdict == Verdict.BASELINE:
        return None
    return view.compare(rows[0].variant, best.variant)


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


def judge_pair(snapshot: LadderEvidence, config: Config, before: Row, after: Row) -> VariantPair:
    """Two rows of the table that was judged on this snapshot."""
    names = (before.variant, after.variant)
    view = view_of(snapshot, config, snapshot.shape, names)
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
