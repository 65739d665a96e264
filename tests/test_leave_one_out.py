"""What each switch of a variant is worth at the end, beside what it was worth when it came."""

from __future__ import annotations

from pathlib import Path

import pytest

from answers import Capsys, Patch, Told, error_of, text_of
from standin import Run, StandIn
from workspaces import GOOD, make, step

MODULE = """import torch
from workbench import cuda

params = cuda.params(stagger=0, early=False, terms=0)
kernel = cuda.kernel("baseline.cu", "scale", defines=params)


def run(x):
    return x
"""
ALL = "fix[stagger=1,early=1,terms=3]"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = make(tmp_path / "ws", {"baseline": GOOD}, {"fix": MODULE})
    ladder = made / "ablations" / "scale" / "ablation.toml"
    steps = [
        step("fix[stagger=1]", "fix"),
        step("fix[stagger=1,early=1]", "fix[stagger=1]"),
        step("fix[terms=4]", "fix"),
    ]
    ladder.write_text(ladder.read_text() + "".join(steps))
    return made


LEAVE_OUT = ("ablate", "--leave-one-out")


def time(run: Run) -> float:
    """Stagger gains a quarter, but nothing where terms do a part of its work; early gains 10 %."""
    on = {name for name, value in run.params.items() if value}
    stagger = 1.0 if "stagger" not in on else 0.98 if "terms" in on else 0.8
    return 20 * stagger * (0.9 if "early" in on else 1) * (0.7 if "terms" in on else 1)


def test_each_switch_is_put_back_in_the_same_sessions(monkeypatch: Patch, told: Told) -> None:
    gpu = StandIn(monkeypatch, time)
    found = told(*LEAVE_OUT, ALL)
    (timed,) = gpu.timed
    assert set(timed) == {
        "fix",
        ALL,
        "fix[early=1,terms=3]",
        "fix[stagger=1,terms=3]",
        "fix[stagger=1,early=1]",
        "fix[stagger=1]",
    }
    assert gpu.captured == []
    worth = {each["switch"]["name"]: each for each in found["switches"]}
    stagger = worth["stagger"]["switch"]
    assert stagger["without"] == "fix[early=1,terms=3]"
    assert worth["stagger"]["at_the_end"]["ratio"] == pytest.approx(1 / 0.98, rel=0.01)
    assert worth["stagger"]["when_it_came"]["ratio"] == pytest.approx(1 / 0.8, rel=0.01)
    assert (stagger["step"], stagger["parent"]) == ("fix[stagger=1]", "fix")
    assert worth["early"]["at_the_end"]["ratio"] == pytest.approx(1 / 0.9, rel=0.01)
    assert worth["early"]["switch"]["parent"] == "fix[stagger=1]"
    assert worth["terms"]["switch"]["step"] == ""  # with 4 it came, and not with 3
    assert worth["terms"]["when_it_came"] is None
    assert found["together"]["ratio"] == pytest.approx(1 / (0.98 * 0.9 * 0.7), rel=0.01)


def test_what_cannot_be_put_back_is_said(monkeypatch: Patch, told: Told) -> None:
    StandIn(monkeypatch, time, wrong=lambda run: run.variant == "fix[stagger=1,terms=3]")
    found = told(*LEAVE_OUT, ALL, code=1)
    (early,) = (each for each in found["switches"] if each["switch"]["name"] == "early")
    assert early["at_the_end"] is None
    assert "wrong" in early["why"]["message"]
    assert found["product"] is None


def test_the_table_says_whether_the_switches_are_independent(
    monkeypatch: Patch, root: Path, capsys: Capsys
) -> None:
    StandIn(monkeypatch, time)
    name = "fix[stagger=1,early=1]"
    out = text_of(capsys, "ablate", "--leave-one-out", name, project=root)
    assert "| `stagger=1` | 0 " in out
    assert "multiplies to" in out


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["fix"], "'fix' has no switches"),
        (["baseline"], "none is declared"),
        ([], "takes one variant"),
        ([ALL, "fix"], "takes one variant"),
    ],
)
def test_without_switches_there_is_nothing_to_leave_out(
    names: list[str], said: str, root: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    StandIn(monkeypatch, time)
    error = error_of(capsys, "ablate", "--leave-one-out", *names, project=root)
    assert said in error
    assert "hint: " in error
