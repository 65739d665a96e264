"""What is changed since the evidence, what measuring has cost, and one process at a time."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from answers import Capsys, Patch, both_of, error_of, json_of, text_of
from remote_gpus import card, install
from standin import measured_by
from workbench.app.executor import Local, Reporter
from workbench.cli.main import main
from workbench.evidence import store
from workbench.evidence.journal import SpentEntry
from workbench.judge.findings import sentence
from workbench.judge.open_verdicts import NextRun, by_kind, expected_seconds, over_budget
from workbench.run import gpu
from workbench.run.gpu import Gpu, locked
from workbench.run.measurement import MeasuredPlan
from workbench.study.config import Budget
from workspaces import GOOD, make

H200 = "NVIDIA H200"


def test_a_damaged_line_of_the_ledger_is_told(tmp_path: Path, capsys: Capsys) -> None:
    """What it cost would otherwise be gone from the budget without a word."""
    root = make(tmp_path, {"baseline": GOOD})
    whole = '{"schema_version": 1, "date": "2026", "verb": "ablate", "study": "scale", '
    text = f'{whole}"gpu": "x", "seconds": 2.0}}\n{whole}\n'
    (root / "ablations" / "ledger.jsonl").write_text(text)
    told = both_of(capsys, "status", "--json", project=root)
    assert [one["seconds"] for one in json.loads(told.out)["spent"]] == [2.0]
    assert "line 2 of ledger.jsonl is passed over" in told.err


def test_two_commands_measure_one_after_the_other(tmp_path: Path, monkeypatch: Patch) -> None:
    """Side by side they would be in each other's times."""
    install(tmp_path, monkeypatch, [card(0)])
    entered, told = threading.Event(), threading.Event()

    class Waits(Reporter):
        def note(self, text: str) -> None:
            if H200 in text:
                told.set()

    def other() -> None:
        with Local(reporter=Waits()).alone_on_the_gpu():
            entered.set()

    with gpu.locked([card(0)]):
        waiting = threading.Thread(target=other, daemon=True)
        waiting.start()
        assert told.wait(60)
        assert not entered.is_set()
    assert entered.wait(60)
    waiting.join(60)
    with Local().alone_on_the_gpu():  # it was given back
        pass


def test_without_a_card_nobody_waits() -> None:
    with Local().alone_on_the_gpu(), Local().alone_on_the_gpu():
        pass


def spent(seconds: float, verb: str = "ablate", **known: Any) -> SpentEntry:
    plain = {"date": "2026", "study": "scale", "gpu": H200, "shape": "large", "rate": 3.6}
    return SpentEntry(**{**plain, "verb": verb, "seconds": seconds, **known})


RUN = NextRun(verb="ablate", study="scale", shape="large", gpu=H200)


# ---- the ledger ----------------------------------------------------------------------------
def test_what_was_spent_is_added_up_by_kind() -> None:
    entries = [spent(10), spent(30), spent(5, "check"), spent(5, study="other")]
    found = by_kind(entries)
    assert [(s.verb, s.study, s.runs, s.seconds) for s in found] == [
        ("ablate", "scale", 2, 40),
        ("ablate", "other", 1, 5),
        ("check", "scale", 1, 5),
    ]
    assert found[0].cost == pytest.approx(0.04)  # 3.6 an hour


def test_what_a_run_will_take() -> None:
    entries = [spent(10), spent(30), spent(20), spent(500, shape="long"), spent(1, "check")]
    assert expected_seconds(entries, RUN) == 20
    assert expected_seconds(entries[3:], RUN) == 500  # of the same kind elsewhere
    assert expected_seconds([], RUN) == 0


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        (Budget(), ""),
        (Budget(max_gpu_seconds=200), ""),
        (Budget(max_gpu_seconds=100), "all of the budget is spent: 100 of 100 GPU seconds"),
        (Budget(max_gpu_seconds=140), "this run would pass the budget: 100 of 140 GPU seconds"),
    ],
)
def test_a_run_that_would_pass_a_limit(budget: Budget, why: str) -> None:
    found = over_budget([spent(50), spent(50)], budget, RUN)
    assert (found is not None) == bool(why)
    if found is not None:
        assert why in sentence(found)


class Bench:
    """Stands in for a measurement that finds nothing."""

    begun = 0

    def __init__(self, *given: Any, **named: Any) -> None:
        pass

    def run(self) -> MeasuredPlan:
        Bench.begun += 1
        return MeasuredPlan()


@pytest.fixture
def bench(monkeypatch: Patch) -> type[Bench]:
    measured_by(monkeypatch, Bench)
    Bench.begun = 0
    return Bench


def test_a_run_is_put_on_the_ledger_and_the_next_one_stopped(
    tmp_path: Path, bench: type[Bench], capsys: Capsys
) -> None:
    config = "[budget]\nrate_per_hour = 3.6\nmax_gpu_seconds = 60\n"
    root = make(tmp_path, {"baseline": GOOD}, config=config)
    project = ["--project", str(root)]
    assert main(["check", *project]) == 0
    ledger = root / "ablations" / "ledger.jsonl"
    (entry,) = (json.loads(line) for line in ledger.read_text().splitlines())
    assert (entry["verb"], entry["study"], entry["gpu"]) == ("check", "scale", H200)
    assert 0 <= entry["seconds"] < 60
    store.append(ledger, spent(60.1, "check"))
    capsys.readouterr()

    told = json_of(capsys, "status", *project)
    assert [(s["verb"], s["runs"]) for s in told["spent"]] == [("check", 2)]
    assert told["limits"][0]["left"] == 0
    printed = text_of(capsys, "status", *project)
    assert "max_gpu_seconds" in printed
    assert "| 2 |" in printed  # runs are counted, not measured

    for verb in (["check"], ["ablate"]):
        said = error_of(capsys, *verb, *project, code=1)
        assert "error: " in said
        assert "budget" in said
        assert "hint: raise budget.max_gpu_seconds in workbench.toml" in said
    assert bench.begun == 1


def test_a_run_that_fails_is_paid_for(
    tmp_path: Path, bench: type[Bench], monkeypatch: Patch
) -> None:
    def broken(self: Bench) -> MeasuredPlan:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Bench, "run", broken)
    root = make(tmp_path, {"baseline": GOOD})
    assert main(["check", "--project", str(root)]) != 0
    assert len((root / "ablations" / "ledger.jsonl").read_text().splitlines()) == 1


def test_reading_costs_nothing(tmp_path: Path, capsys: Capsys) -> None:
    root = make(tmp_path, {"baseline": GOOD})
    assert "nothing was spent yet" in text_of(capsys, "status", project=root)
    assert not (root / "ablations" / "ledger.jsonl").exists()


@pytest.mark.parametrize(
    "line", ["max_gpu_seconds = -1", "max_gpu = 1", 'max_gpu_seconds = "all"', "max_cost = 1"]
)
def test_a_budget_that_is_none(tmp_path: Path, capsys: Capsys, line: str) -> None:
    root = make(tmp_path, {"baseline": GOOD}, config=f"[budget]\n{line}\n")
    assert "budget.max" in error_of(capsys, "status", project=root)


# ---- the lock
def test_a_card_is_held_by_one_at_a_time(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("WORKBENCH_FOLDER", str(tmp_path / "own"))
    both: Sequence[Gpu] = [card(0), card(1)]

    def gives_up(text: str) -> None:
        raise TimeoutError(text)

    def second_command() -> None:
        with locked(both) as other:
            assert {one, other} == set(both)
            in_a_thread(third_command)

    def third_command() -> None:
        with pytest.raises(TimeoutError, match="waiting: another"), locked(both, gives_up):
            pass

    def in_a_thread(command: Callable[[], None]) -> None:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(command).result()

    with locked(both) as one:
        in_a_thread(second_command)
    with locked(both) as again:
        assert again == both[0]
