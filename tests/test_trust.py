"""What docs/trust.md says of the recorded ladder and of the gates is so."""

from __future__ import annotations

import json
import math
import random
import re
from functools import cache
from pathlib import Path

import pytest
from benchmarks import controls

from answers import not_none
from workbench.derive.speedup import over_sessions
from workbench.judge.cross_checks import CLOCKS
from workbench.judge.sessions import TimingFacts
from workbench.render.document.sentences import sentence
from workbench.study.config import Config
from workbench.study.workspace import find_workspace
from workbench.words import Regime, Verdict
from workspaces import ROOT, copy_of_fixture, recorded_ladder

PAGE = (Path(__file__).parents[1] / "docs" / "trust.md").read_text()
DURATION = re.compile(r"a call adds ([\d.]+) µs, and its launches took ([\d.]+) µs")


def test_the_cross_checks_have_the_names_of_gates() -> None:
    gates = {gate.name for row in recorded_ladder().rows for gate in row.gates}
    first = PAGE.partition("## Error rates")[0]
    rows = [line.split("|")[3] for line in first.splitlines() if line.count("|") == 4][2:]
    assert len(rows) == 6
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert named <= {*gates, CLOCKS}  # the fixture was timed with one clock


@pytest.mark.slow
def test_what_the_controls_of_the_ladder_say_is_told() -> None:
    timing = not_none(recorded_ladder(ROOT).timing)
    assert len(timing.controls) == 6
    (out,) = (control for control in timing.controls if not _interval_holds(control.ratio))
    end = f"that of `{out.variant}` {out.regime} ends at {out.ratio.high:.4f}"
    assert f"chained: five of six intervals hold 1, and {end}." in PAGE
    for control in timing.controls:
        if control.regime == Regime.CHAINED:
            ratio = control.ratio
            told = f"`{control.variant}` {ratio.ratio:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
            assert told in PAGE


def _interval_holds(ratio: object) -> bool:
    low, high = getattr(ratio, "low", None), getattr(ratio, "high", None)
    return low is not None and high is not None and low <= 1 <= high


@cache
def every_timing() -> tuple[TimingFacts, ...]:
    """Of all timings on record in the repository, of whatever study and shape."""
    workspace = find_workspace(ROOT)
    return tuple(f for name in workspace.studies() for f in controls.facts_of(workspace, name))


@pytest.mark.slow
def test_no_recorded_control_is_off() -> None:
    assert not any(control.is_off for facts in every_timing() for control in facts.controls)


@pytest.mark.slow
def test_no_recorded_reference_is_disturbed_by_its_company() -> None:
    companies = [facts.interference for facts in every_timing() if facts.interference is not None]
    assert len(companies) > 50
    assert not any(company.is_off for company in companies)


def test_a_step_that_was_not_checked_where_every_one_is_has_no_verdict(tmp_path: Path) -> None:
    root = copy_of_fixture(tmp_path, "transpose")
    path = root / "ablations/transpose/evidence/nvidia-h200/checks/chosen.json"
    record = json.loads(path.read_text())
    del record["shapes"]["edges"]
    path.write_text(json.dumps(record))
    row = recorded_ladder(root, "transpose").row("chosen")
    (correct,) = (gate for gate in row.gates if gate.name == "correct")
    assert (correct.passed, sentence(correct.why)) == (None, "not collected at edges")
    assert row.verdict == Verdict.INCONCLUSIVE


@pytest.mark.slow
def test_captures_account_for_the_times_as_told() -> None:
    why = [
        sentence(gate.why)
        for row in recorded_ladder(ROOT).rows
        for gate in row.gates
        if gate.name == "duration"
    ]
    found = [float(m[1]) / float(m[2]) for text in why if (m := DURATION.match(text))]
    assert f"adds {min(found):.2f} to {max(found):.2f} times what its launches take" in PAGE


def test_looking_again_has_the_price_that_is_told() -> None:
    """A step that is exactly at the gate, by sessions that differ as those of the H200 do."""
    timing, draw, gate = Config().timing, random.Random(0), math.log(1.03)
    kept = {"once": 0, "again": 0}
    for _ in range(20_000):
        drawn = [draw.gauss(gate, 0.004) for _ in range(timing.max_sessions)]
        for number in range(timing.sessions, timing.max_sessions + 1, timing.sessions):
            interval = over_sessions(drawn[:number], again=number > timing.sessions)
            assert interval.low is not None
            kept["once"] += number == timing.sessions and interval.low >= math.exp(gate)
            if interval.low >= math.exp(gate):
                kept["again"] += 1
                break
            if not_none(interval.high) < math.exp(gate):
                break
    assert 2.3 < kept["once"] / 200 < 2.7
    assert 2.8 < kept["again"] / 200 < 3.3
    assert "is kept in 3.1 % of cases instead of 2.5" in PAGE
