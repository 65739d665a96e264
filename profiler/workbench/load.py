"""Stage one, load: reads what a study has recorded on one GPU, once, into plain records.

``load`` reads some variants at some shapes, ``load_ladder`` all that judging the ladder needs.
Nothing in a record reads a file later: the stages after this one compute with values alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from workbench.derive.figures import Figure, figures
from workbench.derive.speedup import Key, SessionTimes, session_times
from workbench.derive.timeline import CallTimeline, call_timeline
from workbench.errors import BadCapture
from workbench.evidence import store
from workbench.evidence.journal import Journal, known_between, load_journal
from workbench.evidence.records import Build, CaptureIndex, Check, Timeline, Timing, timing_name
from workbench.evidence.store import EvidenceFolder
from workbench.ncu.capture import Capture
from workbench.ncu.captures import LaunchTables, tables_of
from workbench.ncu.catalog import catalog
from workbench.ncu.reader import wanted_of
from workbench.study.front_ends import front_ends_of
from workbench.study.model import Ladder, Step, Study, outcomes, shapes_of, shown_at, steps_shown
from workbench.study.params import UnseenShapes, unseen_shapes
from workbench.study.sources import Fingerprints, source_files, source_texts
from workbench.study.values import Work
from workbench.words import CheckResult, Parameter, Status

F = TypeVar("F", Build, Check, CaptureIndex, Timeline)  # tied to sources by a fingerprint
Entry = tuple[Status, F | None]  # a record of the present sources, or why there is none


@dataclass(frozen=True)
class UnseenEvidence:
    """Checks of a step at the shapes drawn for it from the study's ranges (None: not collected),
    in their order; the ``seed`` of the draw; and what is recorded of the step and its parent at the
    first of these shapes, where they are timed.
    """

    checks: Mapping[str, Check | None]
    seed: str
    first: ShapeEvidence


@dataclass(frozen=True, eq=False)
class VariantEvidence:
    """One variant at one shape.

    state: Of the build, check, timing and capture at this shape.
    correct: By the newest check at this shape, whatever its sources were.
    build, checks (by shape), index, capture, figures, timeline: They belong to the present sources;
        None or empty where there is no such record, or where it was not asked for.
    check_states: Of the check at every shape of the study.
    due: Shapes at which a variant is always checked, and this one was not as it is now.
    unchecked: Other shapes without such a check.
    texts: Sources by their name in the line table, where they were asked for.
    damage: Why a recorded capture does not count.
    tables_only: The report of the capture was not kept.
    front_ends: Compilers other than the workbench, by the variant's sources.
    unseen: None for a study without ranges, and for a variant that is no step with a parent.
    """

    variant: str
    title: str
    state: Mapping[str, Status]
    correct: bool
    build: Build | None = None
    checks: Mapping[str, Check] = field(default_factory=dict)
    check_states: Mapping[str, Status] = field(default_factory=dict)
    due: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    index: CaptureIndex | None = None
    capture: Capture | None = None
    figures: Mapping[str, Figure] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    damage: str = ""
    tables_only: bool = False
    front_ends: tuple[str, ...] = ()
    unseen: UnseenEvidence | None = None
    timeline: CallTimeline | None = None

    @property
    def was_profiled(self) -> bool:
        return self.index is not None


@dataclass(frozen=True, eq=False)
class TimedTogether:
    """One timing; sources of the ``current`` variants have not changed since."""

    file: str
    timing: Timing
    current: frozenset[str]

    @property
    def name(self) -> str:
        """The file's name in the journal."""
        return timing_name(self.file)

    @property
    def chained(self) -> frozenset[str]:
        """The current variants that were timed in the regime that decides."""
        return self.current & self.timing.chained

    @cached_property
    def times(self) -> Mapping[Key, SessionTimes]:
        """Times of instances in the sessions that held steps and references side by side."""
        return session_times(self.timing.together, self.timing.wrong)

    @cached_property
    def alone(self) -> Mapping[Key, SessionTimes]:
        """Those in the sessions that held references only."""
        return session_times(session for session in self.timing.sessions if session.alone)

    @cached_property
    def planned(self) -> frozenset[int]:
        """Sessions that held every variant, before others followed for inconclusive verdicts."""
        numbers = sorted(session.number for session in self.timing.together)
        return frozenset(numbers[: self.timing.first_planned])

    @property
    def clocks(self) -> Iterator[float]:
        """SM clocks inside all timed graphs, in MHz."""
        return (
            mhz
            for session in self.timing.sessions
            for series in session.series
            for mhz in series.mhz
        )


@dataclass(frozen=True, eq=False)
class ShapeEvidence:
    """A shape with its timings, oldest first, and variants; ``work`` is None if only checked."""

    shape: str
    parameters: Mapping[str, Parameter]
    timings: tuple[TimedTogether, ...]
    variants: Mapping[str, VariantEvidence]
    work: Work | None = None


@dataclass(frozen=True, eq=False)
class LadderEvidence:
    """All evidence that a judgement of a ladder needs, as it was at one moment.

    steps: To be judged; ``only`` names those that are shown, where not all are.
    shape: The shape of the table. ``shapes`` has it and every other that the judgement needs, in
        the order of the study.
    gpu: Name of the evidence folder.
    notes: Damage of files that cost no variant its evidence.
    between, between_of: See ``known_between``.
    parameters: Those of every shape of the study.
    """

    study: str
    gpu: str
    ladder: Ladder
    steps: tuple[Step, ...]
    shape: str
    default_shape: str
    shapes: Mapping[str, ShapeEvidence]
    ceilings: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    journal: Journal | None = None
    only: tuple[str, ...] = ()
    between: float | None = None
    between_of: str = ""
    parameters: Mapping[str, Mapping[str, Parameter]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The steps to be judged, and all references."""
        return (*(s.variant for s in self.steps), *(r.name for r in self.ladder.references))


def load(
    study: Study,
    folder: EvidenceFolder,
    wanted: Mapping[str, Iterable[str] | None],
    *,
    captures: Collection[str] = (),
    samples: bool = True,
    from_tables: bool = True,
    prints: Fingerprints | None = None,
) -> dict[str, ShapeEvidence]:
    """Evidence by shape, of the ``wanted`` variants at each (None: all that were measured there).

    captures: Shapes at which captures are opened. from_tables: If not, only from reports.
    samples: Without them only states are loaded: no timing, no front ends, no drawn shapes, nor, at
        shapes without ``captures``, the work of a call.
    prints: Of the study, read for another folder.

    Raises UsageError for a damaged file, and EnvironmentLacks for one that cannot be read.
    """
    prints = prints or Fingerprints(study)
    reader = _EvidenceReader(study, folder, prints, samples=samples, from_tables=from_tables)
    return {
        shape: reader.shape(shape, names, captures=shape in captures)
        for shape, names in wanted.items()
    }


def load_ladder(
    study: Study,
    folder: EvidenceFolder,
    shape: str,
    steps: Sequence[Step],
    *,
    sources: bool = False,
    timed: Sequence[Step] | None = None,
    only: Sequence[str] = (),
) -> LadderEvidence:
    """Evidence of ``steps`` and of all references at ``shape``, and of steps that are judged at
    another shape what decides about them there.

    timed: Steps whose times are wanted at all shapes; by default the outcomes of ``steps``.
    only: Variants to be shown; what they are compared with is loaded too.
    sources: with the texts of the variants' sources.
    """
    if timed is None:
        timed = outcomes(steps) if steps and not only else []
    judged = steps_shown(steps, only, shape) if only else steps
    reader = _EvidenceReader(study, folder, Fingerprints(study), sources=sources)
    between, between_of = known_between(folder.gpu)
    journal = load_journal(folder)
    shapes = {
        name: reader.shape(name, variants, captures=whole)
        for name, variants, whole in _wanted(study, shape, judged, timed)
    }
    return LadderEvidence(
        study=study.name,
        gpu=folder.gpu,
        ladder=study.ladder,
        steps=tuple(steps),
        shape=shape,
        default_shape=study.default_shape,
        shapes=shapes,
        ceilings=store.measured_ceilings(folder.gpu),
        notes=(*reader.notes, *journal.notes),
        journal=journal,
        only=tuple(only),
        between=between,
        between_of=between_of,
        parameters={name: listed.parameters for name, listed in study.shapes.items()},
    )


def fullest_timing(evidence: ShapeEvidence, variants: Iterable[str]) -> TimedTogether | None:
    """The newest timing with the most of ``variants`` chained, of present sources; or None."""
    wanted = set(variants)
    held = [timing for timing in reversed(evidence.timings) if timing.chained & wanted]
    return max(held, key=lambda timing: len(timing.chained & wanted), default=None)


def _wanted(
    study: Study, table: str, steps: Sequence[Step], timed: Sequence[Step]
) -> Iterator[tuple[str, list[str], bool]]:
    """Shapes in the order of the study, the variants wanted at each, and whether with captures:
    those of a table. ``timed`` steps are wanted at all of them.
    """
    ladders = shapes_of(steps, table)
    references = [reference.name for reference in study.ladder.references]
    outcome_names = [step.variant for step in timed]
    for name, shape in study.shapes.items():
        if name in ladders:
            compared = _compared(steps, name, table)
            baseline = study.ladder.steps[0].variant
            yield name, [*compared, *outcome_names, baseline, *references], True
        elif shape.profiled and timed and table == study.default_shape:
            yield name, [*outcome_names, *references], False


def _compared(steps: Sequence[Step], shape: str, table: str) -> Iterator[str]:
    """Variants that the ladder at a shape shows and compares."""
    for step in steps if shape == table else shown_at(steps, shape, table):
        yield step.variant
        yield from step.chooses
        if step.parent:
            yield step.parent


def _against(record: F | None, fingerprint: str) -> Entry[F]:
    """Current where the record has this fingerprint, else stale; missing where there is none."""
    if record is None:
        return Status.MISSING, None
    if record.fingerprint != fingerprint:
        return Status.STALE, None
    return Status.CURRENT, record


@dataclass(frozen=True)
class _Common:
    """The parts of a variant's evidence that are the same at every shape."""

    build: Entry[Build]
    recorded: Mapping[str, Check]
    checks: Mapping[str, Entry[Check]]  # at the shapes of the study
    drawn: UnseenShapes | None
    front_ends: tuple[str, ...]
    texts: Mapping[str, str]


@dataclass(frozen=True)
class _EvidenceReader:
    """Reads a study's evidence on one GPU; it lives no longer than one call of ``load``."""

    study: Study
    folder: EvidenceFolder
    prints: Fingerprints
    samples: bool = True
    sources: bool = False
    from_tables: bool = True
    hashes: dict[str, tuple[str | None, bool]] = field(default_factory=dict)  # see report_sha256
    launches: dict[str, LaunchTables] = field(default_factory=dict)  # by report
    notes: dict[str, None] = field(
        default_factory=dict
    )  # what is wrong with a file and cost nothing
    common: dict[str, _Common] = field(default_factory=dict)

    def __post_init__(self) -> None:
        catalog()  # it is a file, too

    def shape(
        self,
        shape: str,
        names: Iterable[str] | None,
        *,
        captures: bool = False,
        study: Study | None = None,
    ) -> ShapeEvidence:
        """``study`` is another view of the same one, with shapes that were drawn."""
        study = study or self.study
        parameters = study.shapes[shape].parameters
        timings = store.timings_at(self.folder, shape)
        indexes = store.captures_at(self.folder, shape)
        prints = [timing.fingerprints for timing in timings.values()]
        if names is None:
            measured = {name for timed in prints for name in timed} | indexes.keys()
            names = [name for name in study.variants if name in measured]
        timed = timings.items() if self.samples else ()
        return ShapeEvidence(
            shape=shape,
            parameters=parameters,
            timings=tuple(
                TimedTogether(file, timing, self._current(timing, parameters))
                for file, timing in timed
            ),
            variants={
                name: self._variant(study, shape, name, prints, indexes.get(name), opened=captures)
                for name in dict.fromkeys(names)
            },
            work=study.work(shape)
            if study.shapes[shape].profiled and (captures or self.samples)
            else None,
        )

    def _current(self, timing: Timing, parameters: Mapping[str, Parameter]) -> frozenset[str]:
        """Name the variants of a timing whose sources have not changed since."""
        return frozenset(
            name
            for name, fingerprint in timing.fingerprints.items()
            if name in self.study.variants and self.prints.at_shape(name, parameters) == fingerprint
        )

    def _variant(
        self,
        study: Study,
        shape: str,
        name: str,
        prints: Sequence[Mapping[str, str]],
        index: CaptureIndex | None,
        *,
        opened: bool,
    ) -> VariantEvidence:
        fingerprint = self.prints.at_shape(name, study.shapes[shape].parameters)
        common = self._common(name)
        checks = common.checks
        if shape not in checks:  # a shape that was drawn
            checks = {**checks, **self._checks(name, common.recorded, study, [shape])}
        capture_state, current, damage = self._indexed(index, fingerprint)
        capture = None
        if opened and current:
            try:
                capture = self._capture(current)
            except BadCapture as error:  # it costs the variant its capture alone
                capture_state, damage = Status.DAMAGED, error.message
        kept = None if damage else current
        missing = [
            other
            for other, (_, check) in checks.items()
            if check is None and other != shape and other not in study.derived
        ]
        always = [other for other in missing if study.shapes[other].always_checked]
        timed = [timing[name] for timing in prints if name in timing]
        timing_state = Status.CURRENT if fingerprint in timed else Status.STALE
        newest = common.recorded.get(shape)
        _, traced = _against(store.timeline_at(self.folder, shape, name), fingerprint)
        return VariantEvidence(
            variant=name,
            title=study.variants[name].title,
            state={
                "build": common.build[0],
                "check": checks[shape][0],
                "timing": timing_state if timed else Status.MISSING,
                "capture": capture_state,
            },
            correct=newest is not None and newest.status == CheckResult.CORRECT,
            build=common.build[1],
            checks={where: check for where, (_, check) in checks.items() if check},
            check_states={where: state for where, (state, _) in checks.items()},
            due=tuple(always),
            unchecked=tuple(other for other in missing if other not in always),
            index=kept,
            capture=capture,
            figures=figures(capture.metrics) if capture else {},
            texts=common.texts if opened else {},
            damage=damage,
            tables_only=bool(capture and kept and not self.hashes[kept.report][1]),
            front_ends=common.front_ends,
            unseen=self._unseen(name) if shape not in study.derived else None,
            timeline=call_timeline(traced.launches) if traced else None,
        )

    def _common(self, name: str) -> _Common:
        if name not in self.common:
            study, step = self.study, self.study.ladder.step(name)
            variant = study.variants[name]
            is_drawn_for = step is not None and step.parent and self.samples
            record = store.variant_record(self.folder, name)
            self.common[name] = _Common(
                build=_against(record.build, self.prints.of_sources(name)),
                recorded=record.checks,
                checks=self._checks(name, record.checks, study, study.shapes),
                drawn=unseen_shapes(study, name) if is_drawn_for else None,
                front_ends=front_ends_of(source_files(study, variant)) if self.samples else (),
                texts=source_texts(study, variant) if self.sources else {},
            )
        return self.common[name]

    def _capture(self, index: CaptureIndex) -> Capture:
        """Raises BadCapture for what cannot be read, or has no such launch."""
        name, path = index.report, self.folder.reports / index.report
        if name not in self.launches:
            kept = self.folder.tables(name) if self.from_tables else None
            self.launches[name] = tables_of(path, kept, index.sha256, self.notes.setdefault)
        return Capture(path, tuple(wanted_of(self.launches[name], index.range, path)))

    def _checks(
        self, name: str, recorded: Mapping[str, Check], study: Study, shapes: Iterable[str]
    ) -> dict[str, Entry[Check]]:
        """The checks of a variant at some ``shapes`` of a study."""
        prints = {s: self.prints.at_shape(name, study.shapes[s].parameters) for s in shapes}
        return {shape: _against(recorded.get(shape), mark) for shape, mark in prints.items()}

    def _indexed(
        self, index: CaptureIndex | None, fingerprint: str
    ) -> tuple[Status, CaptureIndex | None, str]:
        """Missing without the report and its tables; damaged where they are of another report."""
        state, current = _against(index, fingerprint)
        if current is None:
            return state, None, ""
        report = current.report
        if report not in self.hashes:  # variants share reports
            self.hashes[report] = store.report_sha256(self.folder, report)
        sha256, _ = self.hashes[report]
        if sha256 is None:
            return Status.MISSING, None, ""
        if sha256 != current.sha256:
            return Status.DAMAGED, None, f"{report} {store.EXCHANGED}"
        return state, current, ""

    def _unseen(self, name: str) -> UnseenEvidence | None:
        drawn, step = self._common(name).drawn, self.study.ladder.step(name)
        if step is None or step.parent is None or drawn is None or not drawn.names:
            return None
        checks = self._checks(name, self._common(name).recorded, drawn.study, drawn.names)
        first = self.shape(drawn.names[0], [step.parent, name], study=drawn.study)
        return UnseenEvidence({s: check for s, (_, check) in checks.items()}, drawn.seed, first)
