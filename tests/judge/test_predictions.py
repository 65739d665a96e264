"""Predictions, and shapes that a step has not seen."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from answers import Capsys, Patch
from made_evidence import step as bare_step
from standin import Run, StandIn
from workbench.app.executor import Local
from workbench.app.target import find_target
from workbench.cli.main import main
from workbench.derive.figures import Figure
from workbench.errors import UsageError
from workbench.evidence.journal import Journal, PredictionEntry
from workbench.judge.ladder import judge
from workbench.judge.predictions import judge_predictions, restated, score, written
from workbench.render.document.printed_ladder import results
from workbench.run.protocol import SessionsJob, VariantsJob
from workbench.study.model import Prediction, Step
from workbench.study.params import DRAWN, unseen_shapes
from workbench.study.workspace import find_workspace
from workbench.words import GateState, Known, PredictionResult, Written
from workspaces import GOOD, ROOT, make

FIRST, LATER = "2026-01-02T03:04:05Z", "2026-01-02T04:00:00Z"


def prediction(
    figure: str = "time",
    factor: tuple[float, float] | None = (0.4, 0.6),
    bounds: tuple[float, float] | None = None,
    when: Written | None = None,
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
        (None, Written.BEFORE),
        (Written.BEFORE, Written.BEFORE),
        (Written.AFTER, Written.AFTER),
    ],
)
def test_what_was_met_before_any_evidence_is_before_where_its_author_says_nothing(
    own: Written | None, told: Written
) -> None:
    asked = prediction(when=own)
    assert written(step(asked), asked, noted(step(asked), Known.NOTHING)) == told


def test_what_came_when_the_journal_had_recorded_its_step_is_after() -> None:
    asked = prediction(when=Written.BEFORE)
    journal = noted(step(asked), Known.TIMED, LATER, {"fix1": FIRST})
    assert written(step(asked), asked, journal) == Written.AFTER
    older = noted(step(asked), Known.TIMED, FIRST, {"fix1": LATER})
    assert written(step(asked), asked, older) == Written.BEFORE
    other = noted(step(asked), Known.TIMED, LATER, {"fix2": FIRST})
    assert written(step(asked), asked, other) == Written.BEFORE
    merged = noted(
        step(asked), Known.NOTHING, LATER, {"fix1": FIRST}
    )  # with a journal from elsewhere
    assert written(step(asked), asked, merged) == Written.AFTER
    for known in (Known.TIMED, Known.CAPTURED, Known.UNKNOWN):
        silent = prediction()
        assert written(step(silent), silent, noted(step(silent), known)) == Written.AFTER


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
    assert written(moved, new, journal) == Written.AFTER
    assert written(Step("fix1", "baseline", "in other words"), asked, journal) == Written.BEFORE


def ladder_with(root: Path, text: str) -> tuple[Step, ...]:
    make(root, {"baseline": GOOD, "fix1": GOOD})
    path = root / "ablations" / "scale" / "ablation.toml"
    path.write_text(path.read_text().rstrip() + "\n" + text)
    return find_workspace(root).study().ladder.steps


TWO = """
[[step.prediction]]
figure = "time"
factor = [0.4, 0.6]
written = "after"

[[step.prediction]]
figure = "registers"
factor = [1, 2]
"""


def test_an_author_says_when_of_a_step_or_of_one_prediction(tmp_path: Path) -> None:
    steps = ladder_with(tmp_path, 'written = "before"\n' + TWO)
    told = [prediction.written for prediction in steps[1].predictions]
    assert told == [Written.AFTER, Written.BEFORE]


def test_without_a_word_the_journal_says_it(tmp_path: Path) -> None:
    steps = ladder_with(tmp_path, TWO)
    assert steps[1].predictions[1].written is None


@pytest.mark.parametrize("word", ['"prior"', '"after measuring"', "true", "[1]"])
def test_another_word_is_refused(word: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'step 'fix1'\.written': ") as caught:
        ladder_with(tmp_path, f"written = {word}\n{TWO}")
    assert "null" not in caught.value.message, "TOML has none"


SIGNS = {Written.BEFORE: "p", Written.AFTER: "t", None: "j"}  # none: the journal knows
HISTORY = {
    "fix1": "pppp",
    "fix2": "ppppp",
    "fix2[warps=12]": "pp",
    "fix3": "ppp",
    "fix4": "tttt",
    "fix5": "ttt",
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
        prediction(when=Written.AFTER),
        prediction("tensor_pipe", (1.7, 2.2), when=Written.BEFORE),
        prediction("registers", (1, 2), when=Written.BEFORE),
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
    assert (counted.before, counted.confirmed_before) == (1, 0)
    assert results(counted) == (
        "1 confirmed, 1 refuted, 0 not measurable (of 1 written before the first measurement, "
        "0 confirmed; 1 that restate another do not count)"
    )


# ---- unseen shapes
RANGES = "\nranges = {'n': range(1, 100001)}\n"
TIMES = {"baseline": 20.0, "fix": 10.0}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = make(tmp_path / "ws", dict.fromkeys(TIMES, GOOD))
    with (made / "kernels" / "scale" / "study.py").open("a") as file:
        file.write(RANGES)
    return made


def drawn(root: Path) -> tuple[str, ...]:
    return unseen_shapes(find_workspace(root).study("scale"), "fix").names


def test_a_replay_draws_the_same_and_an_edit_others(root: Path) -> None:
    first = drawn(root)
    assert len(first) == DRAWN
    assert drawn(root) == first
    study = find_workspace(root).study("scale")
    assert not set(first) & set(study.shapes)
    source = root / "kernels" / "scale" / "fix.cu"
    source.write_text(source.read_text().replace("2 *", "2.0f *"))
    assert not set(drawn(root)) & set(first)


def test_times_are_compared_at_a_large_shape(root: Path) -> None:
    """An honest step may be slower than its parent where the launch takes all of the time."""
    path = root / "kernels" / "scale" / "fix.cu"
    sizes = []
    for number in range(20):
        path.write_text(path.read_text() + f"\nint unused_{number};\n")
        study = unseen_shapes(find_workspace(root).study("scale"), "fix")
        sizes.append([study.study.shapes[name].size for name in study.names])
    least = math.sqrt(1 * 100_000)
    assert min(first for first, *_ in sizes) >= 0.99 * least
    assert min(size for _, *others in sizes for size in others) < least


def test_without_ranges_nothing_is_drawn(tmp_path: Path) -> None:
    made = make(tmp_path / "ws", dict.fromkeys(TIMES, GOOD))
    assert drawn(made) == ()


REFUSED = ["(9, -9, -1)", "(1, 10**30)", "(0)"]


def test_a_range_is_not_counted_through(root: Path) -> None:
    path = root / "kernels" / "scale" / "study.py"
    path.write_text(path.read_text().replace(RANGES, "\nranges = {'n': range(2**48, 0, -1)}\n"))
    assert len(drawn(root)) == DRAWN


@pytest.mark.parametrize(
    "text", ["{'m': range(1, 9)}", "{'n': (1, 9)}", "[1]", *(f"{{'n': range{x}}}" for x in REFUSED)]
)
def test_ranges_that_are_none_are_refused(root: Path, text: str) -> None:
    path = root / "kernels" / "scale" / "study.py"
    path.write_text(path.read_text().replace(RANGES, f"\nranges = {text}\n"))
    with pytest.raises(UsageError, match="ranges"):
        drawn(root)


def states(root: Path) -> dict[str, GateState]:
    target = find_target(Local(), root, "scale", None)
    (row,) = [r for r in judge(target.load_ladder(), target.workspace.config).rows
              if r.variant == "fix"]  # fmt: skip
    return {gate.name: gate.state for gate in row.gates}


def test_a_step_is_checked_at_all_of_them_and_timed_at_one(root: Path, monkeypatch: Patch) -> None:
    gpu = StandIn(monkeypatch, lambda run: TIMES[run.variant])
    assert main(["ablate", "fix", "--project", str(root)]) == 0
    assert states(root)["unseen"] == GateState.PASSED
    timed = {job.shape for job in gpu.jobs if hasattr(job, "sessions")}
    assert timed & set(drawn(root)) == {drawn(root)[0]}
    (unseen,) = [job for job in gpu.jobs if isinstance(job, VariantsJob) and job.derived]
    assert unseen.check_shapes == drawn(root)  # in one process, and not at the study's own again
    jobs = len(gpu.jobs)
    assert main(["ablate", "fix", "--project", str(root)]) == 0
    assert len(gpu.jobs) == jobs


def test_a_step_that_gains_only_in_later_sessions_is_checked_at_them_then(
    root: Path, monkeypatch: Patch
) -> None:
    def time(run: Run) -> float:
        return TIMES[run.variant] if len(gpu.timed) > 1 else TIMES["baseline"]

    gpu = StandIn(monkeypatch, time)
    main(["ablate", "fix", "--brief", "--project", str(root)])
    assert [job.sessions for job in gpu.jobs if isinstance(job, SessionsJob)] == [3, 5, 5]
    assert states(root)["unseen"] == GateState.PASSED


def test_a_step_without_a_gain_is_told_where_it_is_wrong(
    root: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    StandIn(monkeypatch, lambda run: 20.0, wrong=lambda run: run.shape in drawn(root))
    main(["ablate", "fix", "--brief", "--project", str(root)])
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "no_gain"
    why = {gate["gate"]: gate["why"] for gate in told["failed"]}
    assert why.keys() == {"faster", "unseen"}
    assert any(shape in why["unseen"] for shape in drawn(root))


@pytest.mark.parametrize("fault", ["wrong", "inaccurate", "slower"])
def test_a_step_that_is_good_only_where_it_was_shown(
    fault: str, root: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    known = set(find_workspace(root).study("scale").shapes)

    def hidden(run: Run) -> bool:
        return run.variant == "fix" and run.shape not in known

    StandIn(
        monkeypatch,
        lambda run: 30.0 if fault == "slower" and hidden(run) else TIMES[run.variant],
        wrong=lambda run: fault == "wrong" and hidden(run),
        error=lambda run: 3.0 if fault == "inaccurate" and hidden(run) else 1.0,
    )
    main(["ablate", "fix", "--brief", "--project", str(root)])
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "unseen_shape"
    assert [gate["gate"] for gate in told["failed"]] == ["unseen"]
