"""How the predictions of a ladder came out, by when they were written. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from workbench.derive.sharpness import ALPHA
from workbench.judge.predictions import PredictionOutcome
from workbench.words import PredictionResult, Written


@dataclass(frozen=True)
class Tally:
    """The predictions that were written at one time; ``restated`` of them are not counted.

    ``scored`` of the others have an interval score; these are the means, theirs and that of "no
    change", which ``better`` of them beat.
    """

    written: Written
    confirmed: int
    refuted: int
    not_measurable: int
    restated: int
    scored: int
    better: int
    score: float | None
    no_change: float | None

    @property
    def total(self) -> int:
        """Those that count."""
        return self.confirmed + self.refuted + self.not_measurable

    @property
    def made(self) -> int:
        """All of them."""
        return self.total + self.restated


@dataclass(frozen=True)
class Score:
    """All predictions that count; ``restated`` do not, since they say again what another says.

    ``groups`` has those of each time of writing that there are any of; ``alpha`` is that of the
    interval score.
    """

    confirmed: int
    refuted: int
    not_measurable: int
    restated: int
    groups: tuple[Tally, ...]
    alpha: float = ALPHA

    @property
    def total(self) -> int:
        """All that count."""
        return self.confirmed + self.refuted + self.not_measurable


def score(outcomes: Iterable[PredictionOutcome]) -> Score:
    """Count outcomes by when they were written, and by their result."""
    known = list(outcomes)
    counted = [outcome for outcome in known if not outcome.restates]
    groups = [
        _tally(when, [outcome for outcome in known if outcome.written == when]) for when in Written
    ]
    results = Counter(outcome.result for outcome in counted)
    return Score(
        confirmed=results[PredictionResult.CONFIRMED],
        refuted=results[PredictionResult.REFUTED],
        not_measurable=results[PredictionResult.NOT_MEASURABLE],
        restated=len(known) - len(counted),
        groups=tuple(group for group in groups if group.made),
    )


def _tally(when: Written, outcomes: Sequence[PredictionOutcome]) -> Tally:
    counted = [outcome for outcome in outcomes if not outcome.restates]
    results = Counter(outcome.result for outcome in counted)
    scores = [outcome.sharpness for outcome in counted if outcome.sharpness is not None]
    return Tally(
        written=when,
        confirmed=results[PredictionResult.CONFIRMED],
        refuted=results[PredictionResult.REFUTED],
        not_measurable=results[PredictionResult.NOT_MEASURABLE],
        restated=len(outcomes) - len(counted),
        scored=len(scores),
        better=sum(each.is_better for each in scores),
        score=fmean(each.range for each in scores) if scores else None,
        no_change=fmean(each.no_change for each in scores) if scores else None,
    )
