"""The rows of a ladder: one variant by all that is recorded of it, and tables of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from workbench.derive.figures import Figure, occupancy_limiters, stall_shares
from workbench.derive.rooflines import Point
from workbench.derive.speedup import Ratio, Time, smaller
from workbench.derive.timeline import CallTimeline
from workbench.errors import unknown
from workbench.evidence.records import Build, Check, GraphNode
from workbench.judge.advice_rules import Advice, Spot, Tried, advise
from workbench.judge.bottlenecks import Bottleneck, bottlenecks_of
from workbench.judge.findings import Finding, finding
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
from workbench.judge.session_checks import TimingFacts
from workbench.judge.times import ShapeTimes
from workbench.ncu.capture import Capture, has_lines
from workbench.study.front_ends import why_no_lines
from workbench.study.model import Ladder, Step
from workbench.words import (
    GENERATED_ROOT,
    VIRTUAL_ROOT,
    Change,
    CheckResult,
    Parameter,
    Regime,
    Role,
    Status,
    Verdict,
    grouped,
)


@dataclass(frozen=True)
class InRegime:
    """The time of a variant in one regime, and how many times faster than others it is there; None
    is not collected.

    ``fastest`` names the fastest reference there, which ``speedup_over_fastest`` is over.
    """

    microseconds: Time | None = None
    speedup_over_baseline: Ratio | None = None
    speedup_over_parent: Ratio | None = None
    speedup_over_reference: Ratio | None = None
    speedup_over_fastest: Ratio | None = None
    fastest: str = ""


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

    @property
    def is_failure(self) -> bool:
        """Whether it was judged at this shape and not kept."""
        rejected = self.verdict not in (None, Verdict.KEPT, Verdict.BASELINE)
        return rejected and not self.judged_at

    @property
    def is_loss(self) -> bool:
        over = self.over_parent
        return self.is_failure and (over is None or (over.high or over.ratio) < 1)


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

    @property
    def best(self) -> Row | None:
        return best_of(self.rows)

    def row(self, variant: str) -> Row:
        """A step or a reference by its name. Raises UsageError for what is not shown."""
        row = next((row for row in self.everything if row.variant == variant), None)
        if row is None:
            raise unknown("variant of this ladder", variant, [r.variant for r in self.everything])
        return row


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


InVain = Mapping[tuple[str, str, Change], Sequence[Tried]]


def tried_in_vain(
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
        if step.variant in judged and step.parent and step.kind and not step.corrects
        if (verdict := judged[step.variant].verdict) and verdict.is_rejected
    )


def tables_of(
    views: Views,
    judged: Mapping[str, Judgement],
    steps_at: Mapping[str, Sequence[Step]],
    shown: Sequence[Step],
    facts: Mapping[str, TimingFacts | None],
) -> tuple[ShapeLadder, list[ShapeLadder]]:
    """The table of all steps that are ``shown``, and a ladder of those at each shape, the table's
    first: a step that another one starts from, but which is judged elsewhere, has no verdict there.
    """
    first = next(iter(steps_at))
    in_vain = tried_in_vain(views[first].whole.steps, judged, first)
    references = {shape: reference_rows(views[shape], in_vain) for shape in steps_at}
    rows_of_table = {
        step.variant: row_of(
            views[first], step.variant, in_vain, step=step, judged=judged[step.variant]
        )
        for step in shown
    }
    rows_at: dict[str, list[Row]] = {}
    for shape, steps in steps_at.items():
        view, rows = views[shape], rows_at.setdefault(shape, [])
        for step in steps:
            if (step.shape or first) != shape:
                rows.append(row_of(view, step.variant, in_vain, step=step))
            elif shape == first:
                rows.append(rows_of_table[step.variant])
            else:
                verdict = judge_step(views, view, step)
                rows.append(row_of(view, step.variant, in_vain, step=step, judged=verdict))

    def ladder(shape: str, rows: Iterable[Row]) -> ShapeLadder:
        return ShapeLadder(
            shape=shape,
            parameters=views[shape].evidence.parameters,
            rows=tuple(rows),
            references=references[shape],
            timing=facts[shape],
        )

    table = ladder(first, rows_of_table.values())
    return table, [ladder(shape, rows) for shape, rows in rows_at.items()]


def reference_rows(view: View, in_vain: InVain) -> tuple[Row, ...]:
    """References as measured at one shape: they have neither gates nor a verdict."""
    return tuple(
        row_of(view, reference.name, in_vain, needs=reference.needs)
        for reference in view.ladder.references
    )


def row_of(
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
    advised = view.advised[variant] if capture else None
    regimes = in_regimes(view.times, view.ladder, variant, parent) if timed else {}
    no_lines = lines_missing(capture, evidence.front_ends) if capture else None
    limits = bottlenecks_of(capture, evidence.figures) if capture else ()
    proposed = advise(advised) if advised else None
    return Row(
        **(vars(judged) if judged else {}),
        variant=variant,
        title=evidence.title,
        step=step,
        evidence_state=evidence.state,
        status=status,
        problem=problem,
        regimes=regimes,
        call=timing.timing.nodes.get(variant, ()) if timing else (),
        accuracy=accuracy,
        figures=evidence.figures if capture else {},
        stalls=stall_shares(capture.metrics) if capture else {},
        occupancy_limiters=tuple(occupancy_limiters(capture.metrics)) if capture else (),
        bottlenecks=limits,
        roofline=advised.roofline if advised else None,
        kernels=capture.kernels if capture else (),
        capture=capture.path.name if capture else "",
        tables_only=evidence.tables_only if capture else False,
        no_source_lines=no_lines,
        checks={} if stale else evidence.checks,
        build=None if stale else evidence.build,
        needs=needs,
        role=role,
        chosen=chosen,
        over_chosen=over_chosen,
        advice=tuple(
            replace(advice, tried=tuple(in_vain.get((view.shape, variant, advice.change), ())))
            for advice in proposed
        )
        if proposed is not None
        else None,
        hottest=advised.hottest if advised else None,
        timeline=evidence.timeline if timed else None,
    )


def in_regimes(
    times: ShapeTimes, ladder: Ladder, variant: str, parent: str | None = None
) -> Mapping[Regime, InRegime]:
    """A variant in the regimes in which its present sources were timed."""
    references = [reference.name for reference in ladder.references]
    by_regime: dict[Regime, InRegime] = {}
    for regime in Regime:
        if time := times.time(variant, regime):
            fastest, over = times.least(references, variant, regime)
            by_regime[regime] = InRegime(
                microseconds=time,
                speedup_over_baseline=times.ratio(ladder.steps[0].variant, variant, regime),
                speedup_over_parent=times.ratio(parent, variant, regime),
                speedup_over_reference=times.ratio(ladder.primary_reference, variant, regime),
                speedup_over_fastest=over,
                fastest=fastest,
            )
    return by_regime


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
