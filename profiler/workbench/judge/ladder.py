"""A ladder on one GPU, judged by a snapshot of recorded evidence. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from workbench.derive.roofline.ceilings import DRAM, Peaks, peaks
from workbench.derive.roofline.point import measured_ceilings
from workbench.judge.advice.ranking import JUDGED, Trial, Tried, record
from workbench.judge.comparability import (
    ceiling_warnings,
    choice_warnings,
    claimed,
    environment,
    file_warnings,
    ladder_warnings,
    recordings,
)
from workbench.judge.comparison import Comparison
from workbench.judge.evaluate import reference_row, start_row, step_row
from workbench.judge.findings import Finding, finding
from workbench.judge.known_evidence import (
    Snapshot,
    VariantEvidence,
    asked_for,
    judged_at,
    shapes_of,
    shown_at,
)
from workbench.judge.regimes import AcrossShapes, across_shapes
from workbench.judge.rows import Ablation, Row, ShapeLadder, best_of
from workbench.judge.sessions import TimingFacts, timing_facts, timing_warnings
from workbench.judge.view import View, Views
from workbench.study.config import Config
from workbench.study.model import Step, outcomes
from workbench.words import Origin, Status, Verdict, grouped


def judge(snapshot: Snapshot, config: Config, *, source: Origin = Origin.RECORDED) -> Ablation:
    """Judge the steps of the snapshot beside all references; of a snapshot of ``only`` some
    variants, these and the baseline at this shape, and nothing else.
    """
    views = Views(snapshot, config, snapshot.names)
    table, only = views.table, snapshot.only
    steps = asked_for(snapshot.steps, only, snapshot.shape) if only else snapshot.steps
    judged = tuple(_step(views, table, step) for step in steps)
    trials = tuple(trials_of(judged, snapshot.shape))
    shown = [r for r in judged if not only or r is judged[0] or r.variant in only]
    rows = with_trials(shown, trials, snapshot.shape)
    references = with_trials(_references(table), trials, snapshot.shape)
    everything = (*rows, *references)
    profiled = [table.variant(row.variant) for row in everything if row.capture]
    theory = _ceilings(profiled)
    measured = measured_ceilings(snapshot.calibration, theory) if snapshot.calibration else None
    session = table.times.table
    provenance = environment(
        [variant.index for variant in profiled if variant.index],
        session.timing.provenance if session else None,
    )
    highest = _highest_mhz(snapshot)
    ladders = tuple(_ladders(views, rows, references, trials, highest))
    across = None if only else _across(views)
    return Ablation(
        study=snapshot.study,
        title=snapshot.ladder.title,
        summary=snapshot.ladder.summary,
        shape=snapshot.shape,
        parameters=table.evidence.parameters,
        gpu=provenance.gpu or snapshot.gpu,
        source=source,
        date=provenance.day,
        reference=snapshot.ladder.primary_reference,
        rows=rows,
        references=references,
        ceilings=theory,
        environment=provenance,
        timing_file=session.file if session else "",
        warnings=(
            *file_warnings(snapshot),
            *ladder_warnings(everything, table.evidence),
            *_warnings_elsewhere(views, ladders[1:]),
            *choice_warnings(ladders, config.gates, snapshot.shape),
            *_other_timings(views, rows, ladders),
            *timing_warnings(_facts(views, ladders, across, highest), snapshot.shape),
            *ceiling_warnings(measured),
        ),
        whole=None if only else _whole(table, rows),
        across=across,
        measured=measured,
        ladders=ladders,
        timing=ladders[0].timing,
        recordings=recordings(snapshot, snapshot.shape),
        record=record(trials),
        work=table.evidence.work,
        claimed=claimed(snapshot, table.times, best_of(rows)),
    )


def _step(views: Views, view: View, step: Step) -> Row:
    """As measured in a view, with its comparison with the parent at the shape that decides."""
    deciding = views.at(step.shape) if step.shape else view
    row = step_row(view, deciding, step)
    comparison, compared = _against_parent(view, deciding, row)
    return replace(
        row,
        against_parent=comparison,
        against_parent_at=compared.shape if compared is not view else "",
    )


def _against_parent(view: View, deciding: View, row: Row) -> tuple[Comparison | None, View]:
    """By captures at the shape that decides, else by those of the table."""
    parent = row.step.parent if row.step else None
    if parent is None:
        return None, view
    if deciding is not view:
        comparison = deciding.compare(parent, row.variant, f" at {deciding.shape}")
        if comparison is not None:
            return comparison, deciding
    if row.status != Status.CURRENT:
        return None, view
    return view.compare(parent, row.variant), view


def _references(view: View) -> tuple[Row, ...]:
    return tuple(reference_row(view, r.name) for r in view.ladder.references)


def _ladders(
    views: Views,
    rows: Sequence[Row],
    references: tuple[Row, ...],
    trials: Sequence[Trial],
    highest_mhz: float | None,
) -> Iterator[ShapeLadder]:
    """One a shape at which a step is judged; that of the table is made of its rows."""
    snapshot = views.snapshot
    known = {row.variant: row for row in rows}
    steps = [row.step for row in rows if row.step]
    for shape in shapes_of(steps, snapshot.shape) if snapshot.everywhere else [snapshot.shape]:
        view = views.at(shape)
        judged = judged_at(steps, shape, snapshot.shape)
        own = known if view is views.table else {s.variant: _step(views, view, s) for s in judged}
        shown = tuple(
            own[step.variant] if step in judged else start_row(view, step)
            for step in shown_at(steps, shape, snapshot.shape)
        )
        others = references if view is views.table else _references(view)
        yield ShapeLadder(
            shape=shape,
            parameters=view.evidence.parameters,
            rows=with_trials(shown, trials, shape),
            references=with_trials(others, trials, shape),
            timing=_timing(view, highest_mhz),
        )


def _timing(view: View, highest_mhz: float | None) -> TimingFacts | None:
    return timing_facts(view.times.table, view.ladder.primary_reference, highest_mhz)


def _highest_mhz(snapshot: Snapshot) -> float | None:
    """The highest SM clock recorded for this GPU, in captures and in timed graphs."""
    shapes = snapshot.shapes.values()
    captured = (v.figures.get("sm_clock") for shape in shapes for v in shape.variants.values())
    timed = (mhz for shape in shapes for timing in shape.timings for mhz in timing.clocks)
    return max((*(1e3 * clock.value for clock in captured if clock), *timed), default=None)


def _facts(
    views: Views,
    ladders: Sequence[ShapeLadder],
    across: AcrossShapes | None,
    highest_mhz: float | None,
) -> Mapping[str, TimingFacts]:
    """Of every shape whose times are shown, or that has none since outputs were wrong."""
    across = across if views.snapshot.everywhere else None
    every = {ladder.shape: ladder.timing for ladder in ladders}
    shown = {result.shape for result in across.shapes} if across else set()
    for shape in views.snapshot.shapes if across else ():
        if shape not in every:
            facts = _timing(views.at(shape), highest_mhz)
            if shape in shown or (facts and facts.wrong):
                every[shape] = facts
    return {shape: facts for shape, facts in every.items() if facts is not None}


def _other_timings(
    views: Views, steps: Sequence[Row], ladders: Sequence[ShapeLadder]
) -> Iterator[Finding]:
    """Times and ratios of a table that are of other sessions than the rest of it; all ``steps``
    have theirs at the shape that is looked at.
    """
    for ladder in ladders:
        times = views.at(ladder.shape).times
        own_shape = ladder.shape == views.table.shape
        others: dict[str, list[Finding]] = {}
        for row in (*(steps if own_shape else ladder.rows), *ladder.references):
            if row.time is not None and (own := times.together(row.variant)) is not times.table:
                one = finding("variant", variant=row.variant)
                others.setdefault(own.file if own else "", []).append(one)
            parent = row.step.parent if row.step and row.over_parent else ""
            for over in filter(None, dict.fromkeys([parent, row.chained.fastest])):
                both = times.together(over, row.variant)
                if both is not None and both is not times.table:
                    one = finding("variant", variant=row.variant, over=over)
                    others.setdefault(both.file, []).append(one)
        shape = "" if own_shape else ladder.shape
        for file, of in others.items():
            yield finding("timing.other_file", file=file, shape=shape, variants=tuple(of))


def _warnings_elsewhere(views: Views, ladders: Sequence[ShapeLadder]) -> Iterator[Finding]:
    """Of the captures at the other shapes at which steps are judged."""
    for ladder in ladders:
        rows = (*ladder.rows, *ladder.references)
        yield from ladder_warnings(rows, views.at(ladder.shape).evidence, ladder.shape)


def _ceilings(profiled: Sequence[VariantEvidence]) -> Peaks | None:
    """Those of the first capture that has what a roofline needs."""
    every = (peaks(variant.capture.metrics) for variant in profiled if variant.capture)
    return next((found for found in every if found and {"fp32", DRAM} <= found.rates.keys()), None)


def _across(views: Views) -> AcrossShapes | None:
    """What the ladder comes to, at the study's default shape only: an outcome that was timed at
    fewer shapes than one before it, as a new one is at first, does not stand in for that.
    """
    snapshot = views.snapshot
    if not snapshot.steps or snapshot.shape != snapshot.default_shape:
        return None
    every = [views.at(shape).times for shape in snapshot.shapes]
    found = [
        across_shapes(every, snapshot.ladder, step.variant) for step in outcomes(snapshot.steps)
    ]
    at = max(range(len(found)), key=lambda at: (len(found[at].shapes), at))
    shapes = {result.shape for result in found[at].shapes}
    newer = {
        each.variant: len(shapes & {result.shape for result in each.shapes})
        for each in found[at + 1 :]
    }
    return replace(found[at], newer=newer)


def _whole(view: View, rows: Sequence[Row]) -> Comparison | None:
    """The best step with the baseline; None where no step was kept."""
    best = best_of(rows)
    if best is None or best.verdict == Verdict.BASELINE:
        return None
    return view.compare(rows[0].variant, best.variant)


def trials_of(rows: Iterable[Row], shape: str) -> Iterator[Trial]:
    """Steps that change another to be faster, each at the shape where it is judged: that of the
    table, ``shape``, or its own.
    """
    for row in rows:
        step = row.step
        if step and step.parent and step.kind and not step.corrects and row.verdict in JUDGED:
            at = row.judged_at or shape
            yield Trial(row.variant, step.parent, at, step.kind, row.verdict)


def with_trials(rows: Iterable[Row], trials: Iterable[Trial], shape: str) -> tuple[Row, ...]:
    """Rows of one shape, their advice with what came of it so far."""
    here = [trial for trial in trials if trial.shape == shape]
    return tuple(_with_answers(row, [t for t in here if t.parent == row.variant]) for row in rows)


def _with_answers(row: Row, trials: Iterable[Trial]) -> Row:
    if row.advice is None:
        return row
    tried = grouped((trial.kind, Tried(trial.variant, trial.verdict)) for trial in trials)
    parts = (replace(one, tried=tuple(tried.get(one.change, ()))) for one in row.advice)
    return replace(row, advice=tuple(parts))
