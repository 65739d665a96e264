"""What a step was expected to do, beside what it did. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from workbench.derive.figures import Figure, figure_label, known_figures
from workbench.errors import UsageError, nearest
from workbench.study.model import Ladder, Prediction
from workbench.words import PredictionResult


@dataclass(frozen=True)
class PredictionOutcome:
    """A prediction, and the values of parent and variant; None is not collected."""

    figure: str
    label: str
    unit: str
    expected: str
    before: float | None
    after: float | None
    result: PredictionResult


@dataclass(frozen=True)
class Score:
    """How the predictions of a ladder came out."""

    confirmed: int
    refuted: int
    not_measurable: int

    @property
    def total(self) -> int:
        """All predictions."""
        return self.confirmed + self.refuted + self.not_measurable


def check_figures(ladder: Ladder) -> None:
    """Raises UsageError for a prediction of a figure that there is none of."""
    known = known_figures()
    for step in ladder.steps:
        for prediction in step.predictions:
            if prediction.figure not in known:
                raise UsageError(
                    f"{ladder.path}: step '{step.variant}' predicts '{prediction.figure}', "
                    "which is no figure",
                    hint=nearest(prediction.figure, known),
                )


def score(outcomes: Iterable[PredictionOutcome]) -> Score:
    """Count outcomes by their result."""
    counts = Counter(outcome.result for outcome in outcomes)
    return Score(
        confirmed=counts[PredictionResult.CONFIRMED],
        refuted=counts[PredictionResult.REFUTED],
        not_measurable=counts[PredictionResult.NOT_MEASURABLE],
    )


def judge_prediction(
    prediction: Prediction, before: Figure | None, after: Figure | None
) -> PredictionOutcome:
    """confirmed where the value, or its factor over the parent's, lies in the predicted range."""
    old = before.value if before else None
    new = after.value if after else None
    label, unit = figure_label(prediction.figure)
    return PredictionOutcome(
        figure=prediction.figure,
        label=label,
        unit=unit,
        expected=_bounds(prediction, unit),
        before=old,
        after=new,
        result=_result(prediction, old, new),
    )


def _range(prediction: Prediction) -> tuple[float, float]:
    bounds = prediction.factor or prediction.range
    assert bounds is not None  # a prediction has one of them
    return bounds


def _bounds(prediction: Prediction, unit: str) -> str:
    low, high = _range(prediction)
    return f"{low:g} to {high:g}{'x' if prediction.factor else f' {unit}'}"


def _result(prediction: Prediction, old: float | None, new: float | None) -> PredictionResult:
    measured = new
    if prediction.factor:
        measured = new / old if new is not None and old else None
    if measured is None:
        return PredictionResult.NOT_MEASURABLE
    low, high = _range(prediction)
    inside = low <= measured <= high
    return PredictionResult.CONFIRMED if inside else PredictionResult.REFUTED
