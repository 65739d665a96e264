"""A judged ladder as it is rendered: one row a variant, with all that is known of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from workbench.derive.figures import Figure
from workbench.derive.recordings import OverRecordings
from workbench.derive.roofline.ceilings import DRAM, Peaks
from workbench.derive.roofline.point import MeasuredCeilings, Point
from workbench.derive.speedup import Ratio, Time, smaller
from workbench.evidence.records import Build, Check, Environment
from workbench.evidence.timing import GraphNode
from workbench.judge.advice import NO_RECORD, Advice, AdviceRecord, Spot
from workbench.judge.bottlenecks import Bottleneck
from workbench.judge.comparison import Comparison
from workbench.judge.findings import Finding
from workbench.judge.gates import Accuracy, Gate
from workbench.judge.predictions import PredictionOutcome, Score, score
from workbench.judge.sessions import TimingFacts
from workbench.judge.times import AcrossShapes, InRegime
from workbench.study.model import Step, Work
from workbench.words import ABSENT, CheckResult, Origin, Parameter, Regime, Role, Status, Verdict

TABLE_ROWS = 20  # of steps, where not all are asked for


@dataclass(frozen=True)
class Row:
    """One variant. Without current evidence its figures are absent, and ``problem`` says why.

    ``evidence_state`` is that of build, check, timing and capture. ``verdict`` is None but for
    steps that are judged.

    ``judged_at`` names the shape that gates, verdict and predictions are about where that is not
    the table's, and ``deciding_speedup`` is the ratio over the parent there; else it is
    ``over_parent``. ``regimes`` has its times and ratios in each. ``call`` are what one call is
    made of, ``shapes_dropped`` the shapes that its parent supports and it does not.
    ``no_source_lines`` says that its capture has no source lines, and why.

    ``against_parent_at`` is that shape where the captures behind ``against_parent`` are of it too.
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
    shapes_dropped: tuple[str, ...] = ()
    figures: Mapping[str, Figure] = field(default_factory=dict)
    stalls: Mapping[str, float] = field(default_factory=dict)
    occupancy_limiters: tuple[str, ...] = ()
    bottlenecks: tuple[Bottleneck, ...] = ()
    roofline: Point | None = None
    gates: tuple[Gate, ...] = ()
    verdict: Verdict | None = None
    predictions: tuple[PredictionOutcome, ...] = ()
    kernels: tuple[str, ...] = ()
    capture: str = ""
    tables_only: bool = False  # the report of the capture was not kept
    no_source_lines: Finding | None = None
    checks: Mapping[str, Check] = field(default_factory=dict)
    build: Build | None = None
    against_parent: Comparison | None = None
    judged_at: str = ""
    deciding_speedup: Ratio | None = None
    against_parent_at: str = ""
    needs: str = field(default="", repr=False)
    role: Role = field(default=Role.STEP, repr=False)
    chosen: str = field(default="", repr=False)
    over_chosen: Ratio | None = field(default=None, repr=False)
    advice: tuple[Advice, ...] | None = None
    hottest: Spot | None = field(default=None, repr=False)

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


@dataclass(frozen=True)
class ShapeLadder:
    """The steps judged at one shape, and those they start from, in the order of the ladder, with
    the references, on the evidence at that shape.
    """

    shape: str
    parameters: Mapping[str, Parameter]
    rows: tuple[Row, ...]
    references: tuple[Row, ...]
    timing: TimingFacts | None = None

    def row(self, variant: str) -> Row:
        """A step or a reference by its name. Raises StopIteration for what is not shown."""
        return next(row for row in (*self.rows, *self.references) if row.variant == variant)


class EvidenceEnvironment(Environment, frozen=True, kw_only=True):
    """Of the timing session, else of the newest capture; None is not collected. ``date`` is in UTC,
    ``command`` what was typed; ``ncu`` and its flags are those of the newest capture.
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


NO_RECORDINGS = Recordings()


@dataclass(frozen=True)
class Ablation:
    """A ladder and its references at one shape; ``source`` is where its figures come from.

    ``whole`` compares the best step with the baseline; None where a capture is missing, or where no
    step was kept. ``across`` has the ladder's outcome at all shapes where it was timed; None but at
    the study's default shape. ``measured`` are the GPU's measured ceilings, where it was
    calibrated. ``ladders`` has one ladder a shape at which a step is judged, that of ``shape``
    first. ``recordings`` are the timing runs at ``shape``. ``record`` says how often each kind of
    change was kept, of other ladders too. ``work`` is what one call has to do at ``shape``.
    ``claimed`` is the best step over the fastest reference by all recordings at ``shape``.
    """

    study: str
    title: str
    summary: str
    shape: str
    parameters: Mapping[str, Parameter]
    gpu: str
    source: Origin
    date: str
    reference: str
    rows: tuple[Row, ...]
    references: tuple[Row, ...]
    ceilings: Peaks | None
    environment: EvidenceEnvironment
    timing_file: str
    warnings: tuple[Finding, ...]
    whole: Comparison | None = None
    across: AcrossShapes | None = None
    measured: MeasuredCeilings | None = None
    ladders: tuple[ShapeLadder, ...] = ()
    timing: TimingFacts | None = None
    recordings: Recordings = NO_RECORDINGS
    record: AdviceRecord = NO_RECORD
    work: Work | None = None
    claimed: OverRecordings | None = None

    @property
    def everything(self) -> tuple[Row, ...]:
        return (*self.rows, *self.references)

    def row(self, variant: str) -> Row:
        """A step or a reference by its name. Raises StopIteration for what is not shown."""
        return next(row for row in self.everything if row.variant == variant)

    @property
    def base(self) -> str:
        """The level of memory that the points' roofs are over, by most of them."""
        bases = Counter(row.roofline.base for row in self.everything if row.roofline)
        return bases.most_common(1)[0][0] if bases else DRAM

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
        found: list[Row] = []
        row = self.best
        while row is not None and row not in found:
            found.append(row)
            row = steps.get(row.chosen or (row.step.parent if row.step else "") or "")
        return tuple(found[::-1])

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
    fastest = _fastest(kept)
    linked = _fastest([r for r in kept if r.over_baseline])
    return linked if linked and fastest and _may_be_as_fast(linked, fastest) else fastest


def _fastest(rows: Iterable[Row]) -> Row | None:
    return min(rows, key=lambda r: r.time.value if r.time else 0.0, default=None)


def _may_be_as_fast(row: Row, other: Row) -> bool:
    """Whether the intervals of their times have anything in common."""
    if row.time is None or other.time is None:
        return False
    low, high = row.time.low, other.time.high
    return row is other or (low is not None and high is not None and low <= high)
