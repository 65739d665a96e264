"""What docs/trust.md says of the recorded ladder and of the gates is so."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

from test_ladders import recorded
from workbench.derive.intervals import over_sessions
from workbench.study.config import Config
from workbench.words import Regime

PAGE = (Path(__file__).parents[1] / "docs" / "trust.md").read_text()
DURATION = re.compile(r"a call adds ([\d.]+) µs, and its launches took ([\d.]+) µs")


def test_the_witnesses_have_the_names_of_gates() -> None:
    gates = {gate.name for row in recorded().rows for gate in row.gates}
    first = PAGE.partition("## What the figures are")[0]
    rows = [line.split("|")[3] for line in first.splitlines() if line.count("|") == 4][2:]
    assert len(rows) == 5
    assert {name for row in rows for name in re.findall(r"`([^`]+)`", row)} <= gates


def test_twins_that_leave_out_one_are_told() -> None:
    timing = recorded().timing
    assert timing is not None
    off = [(t.variant, t.regime) for t in timing.twins if not _interval_holds(t.ratio)]
    assert off == [("sdpa", Regime.CHAINED), ("sdpa", Regime.BACK_TO_BACK)]
    assert "of its six intervals two leave out 1, those of `sdpa` chained and back to back" in PAGE
    (sdpa,) = (t.ratio for t in timing.twins if (t.variant, t.regime) == off[0])
    assert f"`sdpa` {sdpa.ratio:.3f} [{sdpa.low:.4f}, {sdpa.high:.4f}]" in PAGE


def _interval_holds(ratio: object) -> bool:
    low, high = getattr(ratio, "low", None), getattr(ratio, "high", None)
    return low is not None and high is not None and low <= 1 <= high


def test_captures_account_for_the_times_as_told() -> None:
    why = [gate.why for row in recorded().rows for gate in row.gates if gate.name == "duration"]
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
            assert interval.high is not None
            kept["once"] += number == timing.sessions and interval.low >= math.exp(gate)
            if interval.low >= math.exp(gate):
                kept["again"] += 1
                break
            if interval.high < math.exp(gate):
                break
    assert 2.3 < kept["once"] / 200 < 2.7
    assert 2.8 < kept["again"] / 200 < 3.3
    assert "is kept in 3.1 % of cases instead of 2.5" in PAGE
