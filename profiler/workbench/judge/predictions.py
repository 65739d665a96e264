"""Hold what a step was expected to do beside what it did. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import starmap

from workbench.derive.figures import Figure
from workbench.evidence.journal import Journal
from workbench.ncu.catalog import TIME, catalog, figure_label
from workbench.study.model import Prediction, Step
from workbench.words import Known, PredictionResult, Written

Bounds = tuple[float, float]


@dataclass(frozen=True)
class PredictionOutcome:
    """A prediction with the values of parent and variant; None is not collected. It does not count
    if it ``restates`` another prediction of the step, named by its label.
    """

    figure: str
    label: str
    unit: str
    expected: str
    before: float | None
    after: float | None
    result: PredictionResult
    written: Written = Written.AFTER
    restates: str = ""


def written(step: Step, prediction: Prediction, journal: Journal | None) -> Written:
    """Say whether a prediction was written before the measurement.

    Its author's word counts, and without one the journal: before, if nothing of the step was
    recorded when it first met the prediction. If the step was recorded before that, it is after,
    whatever the author says, and also if nobody can say.
    """
    digest = step.digest(prediction)
    noted = journal.predictions if journal else ()
    first = next((entry for entry in noted if digest in entry.predictions), None)
    if journal is None or first is None:
        return prediction.written or Written.AFTER
    measured = journal.measured.get(step.variant)
    if measured is not None and measured < first.date:
        return Written.AFTER
    return prediction.written or (Written.BEFORE if first.known == Known.NOTHING else Written.AFTER)


@dataclass(frozen=True)
class Score:
    """How predictions came out; ``restated`` ones do not count, since they say again what another
    says. Of ``before`` that were written before the first measurement, ``confirmed_before`` were.
    """

    confirmed: int
    refuted: int
    not_measurable: int
    restated: int
    before: int
    confirmed_before: int

    @property
    def total(self) -> int:
        return self.confirmed + self.refuted + self.not_measurable


def score(outcomes: Iterable[PredictionOutcome]) -> Score:
    every = list(outcomes)
    counted = [outcome for outcome in every if not outcome.restates]
    results = Counter(outcome.result for outcome in counted)
    before = [outcome.result for outcome in counted if outcome.written == Written.BEFORE]
    return Score(
        confirmed=results[PredictionResult.CONFIRMED],
        refuted=results[PredictionResult.REFUTED],
        not_measurable=results[PredictionResult.NOT_MEASURABLE],
        restated=len(every) - len(counted),
        before=len(before),
        confirmed_before=before.count(PredictionResult.CONFIRMED),
    )


def judge_predictions(
    step: Step, figure: Callable[[str | None, str], Figure | None], journal: Journal | None = None
) -> tuple[PredictionOutcome, ...]:
    """Judge a step's predictions in order; ``figure`` gives a variant's figure by its id."""
    before = [figure(step.parent, prediction.figure) for prediction in step.predictions]
    after = [figure(step.variant, prediction.figure) for prediction in step.predictions]
    written_when = [written(step, prediction, journal) for prediction in step.predictions]
    said_before = restated(list(zip(step.predictions, before, strict=True)))
    every = zip(step.predictions, before, after, written_when, said_before, strict=True)
    return tuple(starmap(judge_prediction, every))


def judge_prediction(
    prediction: Prediction,
    before: Figure | None,
    after: Figure | None,
    written: Written = Written.AFTER,
    restates: str = "",
) -> PredictionOutcome:
    """confirmed where the value, or its factor over the parent's, lies in the predicted range."""
    old, new = (figure.value if figure else None for figure in (before, after))
    label, unit = figure_label(prediction.figure)
    low, high = _range(prediction)
    measured = new
    if prediction.factor:
        measured = new / old if new is not None and old else None
    result = PredictionResult.NOT_MEASURABLE
    if measured is not None:
        inside = low <= measured <= high
        result = PredictionResult.CONFIRMED if inside else PredictionResult.REFUTED
    return PredictionOutcome(
        figure=prediction.figure,
        label=label,
        unit=unit,
        expected=f"{low:g} to {high:g}{'x' if prediction.factor else f' {unit}'}",
        before=old,
        after=new,
        result=result,
        written=written,
        restates=restates,
    )


def restated(predictions: Sequence[tuple[Prediction, Figure | None]]) -> list[str]:
    """Give for each prediction the label of another that says the same, or "".

    Two say the same if they are of the same figure, or of one that follows from the time and their
    ranges agree on some time. The time comes first, then the first in order. The parent's figure
    comes with each prediction.
    """
    same = [""] * len(predictions)
    order = sorted(range(len(predictions)), key=lambda i: predictions[i][0].figure != TIME)
    figures: dict[str, str] = {}
    times: list[tuple[Bounds, str]] = []
    for index in order:
        prediction, before = predictions[index]
        label = figure_label(prediction.figure)[0]
        said = _of_time(prediction, before.value if before else None)
        meets = [name for (low, high), name in times if said and low <= said[1] and said[0] <= high]
        same[index] = figures.get(prediction.figure) or (meets[0] if meets else "")
        figures.setdefault(prediction.figure, label)
        if said and not same[index]:
            times.append((said, label))
    return same


def _of_time(prediction: Prediction, before: float | None) -> Bounds | None:
    """The factors of the time that a prediction amounts to; None where it speaks of none."""
    low, high = _range(prediction)
    kind = restates(prediction.figure)
    if not kind or not (prediction.factor or before):
        return None
    if before and not prediction.factor:
        low, high = low / before, high / before
    if kind == TIME:
        return low, high
    return (1 / high if high else math.inf), (1 / low if low else math.inf)


def _range(prediction: Prediction) -> Bounds:
    bounds = prediction.factor or prediction.range
    assert bounds is not None  # a prediction has one of them
    return bounds


def restates(name: str) -> str:
    """``time`` or ``1/time`` for what follows from the time, and the time itself; "" for others."""
    if name == TIME:
        return TIME
    spec = catalog().get(name)
    return spec.restates if spec else ""
