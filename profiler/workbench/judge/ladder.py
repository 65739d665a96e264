"""Stage three, analyse: one function of the loaded evidence gives the judged ladder. Pure.

``judge`` makes a ``View`` of each shape, judges every step at the shape that decides about it, and
then builds the rows of each table, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from workbench.derive.rooflines import Peaks
from workbench.derive.speedup import OverRecordings, Ratio
from workbench.judge.across import AcrossShapes, across_shapes
from workbench.judge.advice_rules import subject
from workbench.judge.comparison import Comparison
from workbench.judge.findings import Finding
from workbench.judge.gates import View, judge_step
from workbench.judge.predictions import Score, score
from workbench.judge.provenance import (
    EvidenceEnvironment,
    Recordings,
    capture_warnings,
    choice_warnings,
    environment_of,
    file_warnings,
    recordings,
    timing_warnings,
    warnings_of_other_timings,
)
from workbench.judge.rows import Row, ShapeLadder, tables_of
from workbench.judge.session_checks import highest_mhz, timing_facts
from workbench.judge.times import ShapeTimes, main_timing
from workbench.load import LadderEvidence
from workbench.ncu.catalog import DRAM, L2
from workbench.study.config import Config
from workbench.study.model import outcomes, shapes_of, shown_at, steps_shown
from workbench.study.values import Work
from workbench.words import Origin, Parameter, Regime, Status, Verdict

TABLE_ROWS = 20  # of steps, where not all are asked for


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
    recordings: Recordings = field(default_factory=Recordings)
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

    def stale(self, names: Collection[str] = ()) -> list[str]:
        """Variants with evidence of older sources alone: of ``names``, else of the ladder where
        they are all of its steps.
        """
        rows = [r for r in self.everything if r.variant in names] if names else self.rows
        stale = [row.variant for row in rows if row.status == Status.STALE]
        return stale if names or len(stale) == len(rows) else []

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
                wanted = row.is_loss if losses_only else row.is_failure
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


def view_of(evidence: LadderEvidence, config: Config, shape: str, variants: Sequence[str]) -> View:
    """``variants`` decide which timing the table's is."""
    here = evidence.shapes[shape]
    times = ShapeTimes(here, main_timing(here, variants))
    advised = {
        name: subject(
            variant.capture,
            variant.figures,
            evidence.ceilings,
            here.work,
            variant.timeline,
            DRAM if variant.index and variant.index.was_flushed else L2,
        )
        for name, variant in here.variants.items()
        if variant.capture
    }
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
    table_shape, only, primary = evidence.shape, evidence.only, evidence.ladder.primary_reference
    views = {shape: view_of(evidence, config, shape, evidence.names) for shape in evidence.shapes}
    view = views[table_shape]
    highest = highest_mhz(evidence)
    facts = {
        shape: timing_facts(there.times.table, primary, highest) for shape, there in views.items()
    }
    steps = steps_shown(evidence.steps, only, table_shape) if only else evidence.steps
    shown = [step for step in steps if not only or step is steps[0] or step.variant in only]
    shapes = shapes_of(shown, table_shape) if everywhere and not only else [table_shape]
    steps_at = {shape: shown_at(shown, shape, table_shape) for shape in shapes}
    # An outcome is summed up over all shapes at the default shape alone.
    summed_up = outcomes(steps) if table_shape == evidence.default_shape and not only else []

    judged = {step.variant: judge_step(views, view, step) for step in steps}
    table, ladders = tables_of(views, judged, steps_at, shown, facts)
    best, profiled = table.best, [row.variant for row in table.everything if row.capture]
    indexes = [view.variant(name).index for name in profiled]
    advised = [view.advised[name] for name in profiled]
    # Those of the first capture that has what a roofline needs.
    ceilings = next(
        (k.peaks for k in advised if k.peaks and {"fp32", DRAM} <= k.peaks.rates.keys()), None
    )

    times = {shape: there.times for shape, there in views.items()}
    across = across_shapes(times.values(), evidence.ladder, summed_up)
    claimed = None
    if best and best.over_fastest:
        pair = (best.chained.fastest, best.variant)
        claimed = view.times.claimed_over(evidence, pair, best.over_fastest, best.claimed)
    session = view.times.table
    environment = environment_of(
        [index for index in indexes if index],
        session.timing.provenance if session else None,
    )
    recorded, warnings_of_files = recordings(evidence, table_shape), file_warnings(evidence)
    warnings_of_times = (
        *choice_warnings(ladders, config.gates, table_shape),
        *warnings_of_other_timings(times, table_shape, table.rows, ladders),
        *timing_warnings(facts, shapes, across if everywhere else None),
    )
    warnings_of_captures = (
        warning
        for ladder in ladders
        for warning in capture_warnings(
            (table if ladder.shape == table_shape else ladder).everything,
            evidence.shapes[ladder.shape],
            "" if ladder.shape == table_shape else ladder.shape,
        )
    )
    return Ablation(
        study=evidence.study,
        title=evidence.ladder.title,
        summary=evidence.ladder.summary,
        shape=table_shape,
        parameters=table.parameters,
        shapes=evidence.parameters,
        gpu=environment.gpu or evidence.gpu,
        source=source,
        date=environment.day,
        reference=primary,
        rows=table.rows,
        references=table.references,
        ceilings=ceilings,
        environment=environment,
        timing_file=session.file if session else "",
        warnings=(*warnings_of_files, *warnings_of_captures, *warnings_of_times),
        whole=view.compare(steps[0].variant, best.variant)
        if best and best.verdict != Verdict.BASELINE and not only
        else None,
        across=across,
        measured=evidence.ceilings,
        ladders=tuple(ladders),
        timing=table.timing,
        recordings=recorded,
        work=view.evidence.work,
        taken=tuple(step.variant for step in evidence.ladder.steps),
        claimed=claimed,
        over_parents={
            step.variant: {
                shape: over
                for shape, there in times.items()
                if (over := there.claimed_over_parent(step.parent, step.variant))
            }
            for step in shown
        },
    )


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
            *capture_warnings([before, after], view.evidence),
        ),
    )
