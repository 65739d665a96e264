"""Hold what a step was expected to do beside what it did. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workbench.derive.figures import Figure, figure_label
from workbench.evidence.journal import Journal
from workbench.study.model import Prediction, Step
from workbench.words import Known, PredictionResult, Written


@dataclass(frozen=True)
class PredictionOutcome:
    """A prediction with the values of parent and variant; None is not collected."""

    figure: str
    label: str
    unit: str
    expected: str
    before: float | None
    after: float | None
    result: PredictionResult
    written: Written = Written.AFTER


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


def judge_predictions(
    step: Step, figure: Callable[[str | None, str], Figure | None], journal: Journal | None = None
) -> tuple[PredictionOutcome, ...]:
    """Judge a step's predictions in order; ``figure`` gives a variant's figure by its id."""
    return tuple(
        judge_prediction(
            prediction,
            figure(step.parent, prediction.figure),
            figure(step.variant, prediction.figure),
            written=written(step, prediction, journal),
        )
        for prediction in step.predictions
    )


def judge_prediction(
    prediction: Prediction,
    before: Figure | None,
    after: Figure | None,
    *,
    written: Written = Written.AFTER,
) -> PredictionOutcome:
    """confirmed where the value, or its factor over the parent's, lies in the predicted range."""
    old, new = (figure.value if figure else None for figure in (before, after))
    label, unit = figure_label(prediction.figure)
    bounds = prediction.factor or prediction.range
    assert bounds is not None  # a prediction has one of them
    low, high = bounds
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
    )
