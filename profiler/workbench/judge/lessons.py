"""What was learned: the steps of every ladder by the kind of change that they made. Pure.

Nothing is concluded here that a step does not bear out: a technique is its steps, with the ratio
over the parent at every place where both were timed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from workbench.derive.figures import STALL, stall_label
from workbench.derive.intervals import Ratio
from workbench.derive.stalls import StallTime
from workbench.derive.sums import added
from workbench.errors import UsageError, unknown
from workbench.judge.advice.changes import CATALOGUE, Kind
from workbench.judge.gates import by_speed, speed_verdict
from workbench.judge.inputs import Snapshot
from workbench.judge.rows import Ablation, Row
from workbench.judge.view import Views
from workbench.study.config import Config
from workbench.study.model import Step
from workbench.study.params import base_name
from workbench.words import HEADLINE, Change, Parameter, Regime, Role, Status, Verdict

SHOWN = 6
MOVED = 0.03  # of the parent's duration: a stall reason that changed by less is not named
UNTOLD = Kind("kind of change not told", "a step says it as its kind in ablation.toml")


@dataclass(frozen=True)
class Place:
    """How many times faster than its parent a step is at one shape and in one regime.

    ``verdict`` is the step's own where it is judged, and elsewhere what its interval would give.
    """

    shape: str
    regime: Regime
    ratio: Ratio
    verdict: Verdict


@dataclass(frozen=True)
class Lesson:
    """A step that changes another. ``row`` is its own at ``shape``, where it is judged; ``places``
    begin with the one that decided, if it was timed there.
    """

    study: str
    gpu: str
    shape: str
    parameters: Mapping[str, Parameter]
    row: Row
    step: Step
    places: tuple[Place, ...]

    @property
    def is_known(self) -> bool:
        """Whether it was measured as it is now, or failed: else there is nothing to learn yet."""
        return self.row.status in (Status.CURRENT, Status.FAILED)

    @property
    def deciding(self) -> Place | None:
        """Chained, where it is judged; None without a ratio there."""
        known = (p for p in self.places if p.shape == self.shape and p.regime == HEADLINE)
        return next(known, None)

    @property
    def elsewhere(self) -> tuple[Place, ...]:
        """All other places."""
        return tuple(place for place in self.places if place is not self.deciding)

    def where(self, verdict: Verdict) -> tuple[Place, ...]:
        """The places with this verdict: chained all of them, and of the other regimes those that
        judge otherwise than the chained one.
        """
        regimes = {HEADLINE, *(each.regime for each in self.row.elsewhere)}
        return tuple(p for p in self.places if p.verdict == verdict and p.regime in regimes)

    @property
    def stalls(self) -> tuple[StallTime, ...]:
        """The stall reasons that moved most; empty where a capture is missing."""
        times = self.row.against_parent.stall_times if self.row.against_parent else ()
        least = MOVED * added(time.before for time in times)
        return tuple(time for time in times if abs(time.change) >= least)[:SHOWN]


@dataclass(frozen=True)
class Technique:
    """The steps of one kind, in the order of their ladders; None is of those that tell none."""

    change: Change | None
    lessons: tuple[Lesson, ...]

    @property
    def kind(self) -> Kind:
        """Its title, and how it is done."""
        return CATALOGUE[self.change] if self.change else UNTOLD

    def count(self, verdict: Verdict) -> int:
        """Steps that ended so."""
        return sum(lesson.row.verdict == verdict for lesson in self.lessons)

    def where(self, verdict: Verdict) -> tuple[tuple[Lesson, tuple[Place, ...]], ...]:
        """The places where its steps are kept, rejected or open; no step without any."""
        every = ((lesson, lesson.where(verdict)) for lesson in self.lessons)
        return tuple((lesson, places) for lesson, places in every if places)


def lessons(snapshot: Snapshot, judged: Ablation, config: Config) -> tuple[Lesson, ...]:
    """Of a whole ladder; ``snapshot`` has the times of all steps at all shapes."""
    views = Views(snapshot, config, snapshot.names)
    rows = {
        row.variant: (ladder.shape, ladder.parameters, row)
        for ladder in judged.ladders
        for row in ladder.rows
        if row.role != Role.START
    }
    return tuple(
        Lesson(
            study=judged.study,
            gpu=judged.gpu,
            shape=shape,
            parameters=parameters,
            row=row,
            step=step,
            places=tuple(_places(views, step, row, shape)),
        )
        for step in snapshot.steps
        if step.parent is not None
        for shape, parameters, row in [rows[step.variant]]
    )


def _places(views: Views, step: Step, row: Row, judged_at: str) -> Iterator[Place]:
    if row.status != Status.CURRENT:
        return
    chained = row.chained.over_parent
    if chained is not None and step.corrects:  # kept or not, it is no faster than the interval says
        yield _place(views, row, judged_at, HEADLINE, chained)
    elif chained is not None:
        verdict = row.verdict or Verdict.INCONCLUSIVE
        yield Place(judged_at, HEADLINE, chained, verdict)
    for regime, known in row.regimes.items():
        if regime != HEADLINE and known.over_parent is not None:
            yield _place(views, row, judged_at, regime, known.over_parent)
    for shape in views.snapshot.shapes:
        ratio = (
            views.at(shape).times.ratio(step.parent, step.variant) if shape != judged_at else None
        )
        if ratio is not None:
            yield _place(views, row, shape, HEADLINE, ratio)


def _place(views: Views, row: Row, shape: str, regime: Regime, ratio: Ratio) -> Place:
    """What fails another gate than that of speed is rejected wherever it stands."""
    speed = speed_verdict(ratio, views.config.gates)
    return Place(shape, regime, ratio, speed if by_speed(row.gates) else Verdict.REJECTED)


def techniques(found: Iterable[Lesson]) -> tuple[Technique, ...]:
    """In the order of the catalogue; those of which there is no step are none."""
    by_kind: dict[Change | None, list[Lesson]] = {}
    for lesson in found:
        by_kind.setdefault(lesson.step.kind, []).append(lesson)
    return tuple(
        Technique(kind, tuple(by_kind[kind])) for kind in (*Change, None) if kind in by_kind
    )


def matching(found: Sequence[Lesson], word: str) -> tuple[Lesson, ...]:
    """Those of a step by its name (of all its parameters, where none are named), else of a kind of
    change by id or title, else those in whose figures or texts the word stands, whatever the
    hyphens. Raises UsageError where there is none.
    """
    for ways in (_is_step, _is_kind, _is_said):
        if kept := tuple(lesson for lesson in found if ways(lesson, word)):
            return kept
    untried = [kind for kind in Change if _stands(word, f"{kind} {CATALOGUE[kind].title}")]
    if untried:
        told = dict.fromkeys(str(lesson.step.kind) for lesson in found if lesson.step.kind)
        raise UsageError(
            f"no step is of the kind '{untried[0]}' ({CATALOGUE[untried[0]].title})",
            hint=f"kinds with steps: {', '.join(told)}" if told else "a step says its own kind",
        )
    named = [(lesson.step.kind, lesson.step.variant) for lesson in found]
    names = dict.fromkeys(str(name) for pair in named for name in pair if name)
    words = (each for lesson in found for each in re.findall(r"\w{4,}", lesson.step.key_change))
    near = difflib.get_close_matches(word, [*names, *words], n=1)
    raise unknown("technique, step, figure or word", word, near or names)


def _is_step(lesson: Lesson, word: str) -> bool:
    return word in (lesson.row.variant, base_name(lesson.row.variant))


def _kinds(lesson: Lesson) -> list[str]:
    kind = lesson.step.kind
    return [str(kind), CATALOGUE[kind].title] if kind else []


def _is_kind(lesson: Lesson, word: str) -> bool:
    return any(_stands(word, name) for name in _kinds(lesson))


def _is_said(lesson: Lesson, word: str) -> bool:
    step, pair = lesson.step, lesson.row.against_parent
    told = [step.variant, step.key_change, step.bottleneck, step.rationale, step.lesson]
    told += [text for p in lesson.row.predictions for text in (p.figure, p.label)]
    if pair is not None:
        moved = (*pair.standouts.top, *pair.standouts.launch)
        told += [text for m in moved for text in (m.id, m.label, *m.alike)]
        told += [f"{STALL}{time.reason} {stall_label(time.reason)}" for time in lesson.stalls]
    return any(_stands(word, text) for text in told)


def _stands(word: str, text: str) -> bool:
    """Whether some word of the text begins with it, hyphens, blanks and case apart."""
    parts = re.findall(r"[a-z0-9]+", text.casefold())
    wanted = "".join(re.findall(r"[a-z0-9]+", word.casefold()))
    return bool(wanted) and any("".join(parts[at:]).startswith(wanted) for at in range(len(parts)))
