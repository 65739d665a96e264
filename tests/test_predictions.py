"""Predictions: when they were written, how sharp they were, and which count."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from snapshots import step as bare_step
from workbench.derive.figures import Figure
from workbench.derive.sharpness import interval_score, sharpness
from workbench.errors import UsageError
from workbench.evidence.journal import Journal
from workbench.evidence.records import PredictionEntry
from workbench.judge.predictions import judge_predictions, restated, written
from workbench.judge.scores import score
from workbench.render.document import step as predicted
from workbench.study.model import Prediction, Step
from workbench.study.workspace import find_workspace
from workbench.words import Known, PredictionResult, Written
from workspaces import GOOD, ROOT, make

FIRST, LATER = "2026-01-02T03:04:05Z", "2026-01-02T04:00:00Z"


def prediction(
    figure: str = "time",
    factor: tuple[float, float] | None = (0.4, 0.6),
    bounds: tuple[float, float] | None = None,
    when: Written = Written.UNKNOWN,
) -> Prediction:
    return Prediction(figure, None if bounds else factor, bounds, when)


def step(*predictions: Prediction) -> Step:
    found = bare_step("fix1", "baseline")
    return Step(found.variant, found.parent, found.key_change, predictions=predictions)


def figure(value: float) -> Figure:
    return Figure("x", "X", value, "", "")


def noted(
    found: Step, known: Known, date: str = FIRST, measured: Mapping[str, str] | None = None
) -> Journal:
    entry = PredictionEntry(
        date=date,
        variant=found.variant,
        parent=found.parent,
        predictions=tuple(map(found.digest, found.predictions)),
        known=known,
    )
    return Journal(predictions=(entry,), measured=measured or {})


# When


def test_without_a_journal_the_author_is_believed() -> None:
    for when in Written:
        own = prediction(when=when)
        assert written(step(own), own, None) == written(step(own), own, Journal()) == when


@pytest.mark.parametrize(
    ("own", "told"),
    [
        (Written.UNKNOWN, Written.PRIOR),
        (Written.POSSIBLY_PRIOR, Written.POSSIBLY_PRIOR),
        (Written.PROTOTYPE, Written.PROTOTYPE),
        (Written.EVIDENCE, Written.EVIDENCE),
    ],
)
def test_what_was_met_before_any_evidence_is_prior_where_its_author_says_nothing(
    own: Written, told: Written
) -> None:
    asked = prediction(when=own)
    assert written(step(asked), asked, noted(step(asked), Known.NOTHING)) == told


def test_what_came_when_the_journal_had_recorded_its_step_is_after_measuring() -> None:
    asked = prediction(when=Written.POSSIBLY_PRIOR)
    journal = noted(step(asked), Known.TIMED, LATER, {"fix1": FIRST})
    assert written(step(asked), asked, journal) == Written.LATER
    older = noted(step(asked), Known.TIMED, FIRST, {"fix1": LATER})
    assert written(step(asked), asked, older) == Written.POSSIBLY_PRIOR
    other = noted(step(asked), Known.TIMED, LATER, {"fix2": FIRST})
    assert written(step(asked), asked, other) == Written.POSSIBLY_PRIOR
    merged = noted(
        step(asked), Known.NOTHING, LATER, {"fix1": FIRST}
    )  # with a journal from elsewhere
    assert written(step(asked), asked, merged) == Written.LATER
    for known in (Known.TIMED, Known.CAPTURED, Known.UNKNOWN):
        silent = prediction()
        assert written(step(silent), silent, noted(step(silent), known)) == Written.UNKNOWN


@pytest.mark.parametrize("change", ["factor", "figure", "parent", "shape"])
def test_a_changed_prediction_is_another(change: str) -> None:
    asked = prediction()
    old = step(asked)
    journal = noted(old, Known.NOTHING)
    new = prediction(
        figure="registers" if change == "figure" else "time",
        factor=(0.45, 0.55) if change == "factor" else (0.4, 0.6),
    )
    moved = Step(
        "fix1",
        "another" if change == "parent" else "baseline",
        "",
        predictions=(new,),
        shape="large" if change == "shape" else "",
    )
    assert written(moved, new, journal) == Written.UNKNOWN
    assert written(Step("fix1", "baseline", "in other words"), asked, journal) == Written.PRIOR


def ladder_with(root: Path, text: str) -> tuple[Step, ...]:
    make(root, {"baseline": GOOD, "fix1": GOOD})
    path = root / "ablations" / "scale" / "ablation.toml"
    path.write_text(path.read_text().rstrip() + "\n" + text)
    return find_workspace(root).study().ladder.steps


TWO = """
[[step.prediction]]
figure = "time"
factor = [0.4, 0.6]
written = "after a prototype"

[[step.prediction]]
figure = "registers"
factor = [1, 2]
"""


def test_an_author_says_when_of_a_step_or_of_one_prediction(tmp_path: Path) -> None:
    steps = ladder_with(tmp_path, 'written = "possibly prior"\n' + TWO)
    told = [prediction.written for prediction in steps[1].predictions]
    assert told == [Written.PROTOTYPE, Written.POSSIBLY_PRIOR]


def test_without_a_word_it_is_unknown(tmp_path: Path) -> None:
    steps = ladder_with(tmp_path, TWO)
    assert steps[1].predictions[1].written == Written.UNKNOWN


@pytest.mark.parametrize("word", ['"prior"', '"after measuring"', '"before"', "true", "[1]"])
def test_no_author_can_say_what_only_the_journal_knows(word: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"step 'fix1'\.written"):
        ladder_with(tmp_path, f"written = {word}\n{TWO}")


SIGNS = {
    Written.POSSIBLY_PRIOR: "p",
    Written.PROTOTYPE: "t",
    Written.EVIDENCE: "e",
    Written.UNKNOWN: "j",  # the journal knows: nothing of the step was on record
}
HISTORY = {
    "fix1": "pppp",
    "fix2": "ppppp",
    "fix2[warps=12]": "pp",
    "fix3": "ppp",
    "fix4": "eeee",
    "fix5": "eee",
    "fix6": "ppp",
    "fix7": "pppp",
    "fix8": "tpp",
    "fix9": "tpp",
    "fix10": "tpp",
    "fix10[pingpong=1]": "tp",
    "fix10[polynomial=4]": "tpp",
    "fix10[groups=4,tile=64,stages=6]": "tpp",
    "fix11": "tpp",
    "fix11[early=1]": "tp",
    "fix12": "tpp",
    "fix13": "tppp",
    "fix14": "tpp",
}
NEXT = {"fix16[deep=0]": "tpp", "fix16": "tp", "fix16[first=1]": "t", "fix17": "tp"}
NEXT |= {"fix18": "tp", "fix20": "p", "fix22": "ppp", "fix23": "tp"}
NEXT |= {"fix26": "jj", "fix27": "t", "fix28": "jj", "fix29": "jj", "fix30": "j"}
# With another parent than in that history, or not in it: on what was timed when caches were cold.
SINCE = (
    "fix11[stagger=1]",
    "fix11[stagger=1,polynomial=3]",
    "fix11[stagger=1,early=1,polynomial=3]",
)


def test_the_predictions_of_the_repository_are_what_its_history_says() -> None:
    steps = find_workspace(ROOT).study().ladder.steps
    told = {
        step.variant: "".join(SIGNS[found.written] for found in step.predictions)
        for step in steps
        if step.parent is not None
    }
    assert told == {**HISTORY, **NEXT, **dict.fromkeys(SINCE, "tt")}


# How sharp


def test_the_interval_score_is_the_width_and_the_distance_times_two_over_alpha() -> None:
    assert interval_score(1, 3, 2, 0.2) == 2
    assert interval_score(1, 3, 0.5, 0.2) == pytest.approx(2 + 10 * 0.5)
    assert interval_score(1, 3, 4, 0.05) == pytest.approx(2 + 40 * 1)


def test_no_range_is_better_in_the_mean_than_the_quantiles() -> None:
    """Proper: of a uniform value on [0, 1] the central 80 % interval scores best."""
    values = [(i + 0.5) / 1000 for i in range(1000)]

    def mean(low: float, high: float) -> float:
        return sum(interval_score(low, high, value, 0.2) for value in values) / len(values)

    best = mean(0.1, 0.9)
    assert all(best < mean(low, high) for low, high in ((0, 1), (0.05, 0.95), (0.2, 0.8), (0, 0.8)))


def test_a_score_is_of_the_log_factor_and_stands_beside_no_change() -> None:
    found = sharpness((0.4, 0.6), before=10, after=5)
    assert found is not None
    assert found.range == pytest.approx(math.log(0.6 / 0.4))
    assert found.no_change == pytest.approx(10 * math.log(2))
    assert found.is_better
    still = sharpness((0.4, 0.6), before=10, after=10)
    assert still is not None
    assert (still.no_change, still.is_better) == (0, False)


@pytest.mark.parametrize(
    ("factors", "before", "after"), [((0, 1), 1, 1), ((1, 2), 0, 1), ((1, 2), 1, 0)]
)
def test_what_has_no_logarithm_has_no_score(
    factors: tuple[float, float], before: float, after: float
) -> None:
    assert sharpness(factors, before, after) is None


# What counts


@pytest.mark.parametrize(
    ("predictions", "same"),
    [
        ([prediction(), prediction()], ["", "Time"]),
        ([prediction(), prediction("tensor_pipe", (1.7, 2.2))], ["", "Time"]),
        ([prediction("tensor_pipe", (1.7, 2.2)), prediction()], ["Time", ""]),
        ([prediction(), prediction("tensor_pipe", (3, 4))], ["", ""]),
        ([prediction(), prediction("duration", (0.95, 1.05))], ["", ""]),
        ([prediction(), prediction("duration", (0.5, 0.8))], ["", "Time"]),
        ([prediction(), prediction("registers")], ["", ""]),
        ([prediction("duration"), prediction("cycles")], ["", "Duration under ncu"]),
        ([prediction(), prediction("tensor_pipe", bounds=(20, 22))], ["", "Time"]),
        ([prediction(), prediction("tensor_pipe", bounds=(10, 11))], ["", ""]),
        ([prediction(), prediction("tensor_pipe", bounds=(0, 22))], ["", "Time"]),
    ],
)
def test_a_figure_that_restates_another_is_found(
    predictions: list[Prediction], same: list[str]
) -> None:
    assert restated([(each, figure(10.0)) for each in predictions]) == same


def test_where_there_was_nothing_a_range_restates_nothing() -> None:
    pair = [prediction(), prediction("tensor_pipe", bounds=(20, 22))]
    assert restated([(each, figure(0.0)) for each in pair]) == ["", ""]
    assert restated([(each, None) for each in pair]) == ["", ""]


def test_what_is_restated_is_shown_and_not_counted() -> None:
    found = step(
        prediction(when=Written.PROTOTYPE),
        prediction("tensor_pipe", (1.7, 2.2), when=Written.POSSIBLY_PRIOR),
        prediction("registers", (1, 2), when=Written.POSSIBLY_PRIOR),
    )
    values = {
        ("baseline", "time"): 10.0,
        ("fix1", "time"): 5.0,
        ("baseline", "tensor_pipe"): 10.0,
        ("fix1", "tensor_pipe"): 20.0,
        ("baseline", "registers"): 100.0,
        ("fix1", "registers"): 50.0,
    }
    outcomes = judge_predictions(found, lambda name, of: figure(values[name or "", of]))
    assert [outcome.restates for outcome in outcomes] == ["", "Time", ""]
    assert outcomes[1].result == PredictionResult.CONFIRMED
    counted = score(outcomes)
    assert (counted.confirmed, counted.refuted, counted.total, counted.restated) == (1, 1, 2, 1)
    possibly, prototype = counted.groups
    assert (possibly.made, possibly.total, possibly.confirmed, possibly.scored) == (2, 1, 0, 1)
    assert (prototype.made, prototype.confirmed, prototype.better) == (1, 1, 1)
    assert prototype.score == pytest.approx(math.log(0.6 / 0.4))
    assert possibly.score == pytest.approx(math.log(2) + 10 * math.log(2))
    assert predicted.results(counted) == (
        "1 confirmed, 1 refuted, 0 not measurable (possibly prior 0 of 1, after a prototype 1 of "
        "1; 1 more restate another)"
    )
