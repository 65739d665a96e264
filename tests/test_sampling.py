"""Shares of stall samples have an error, and a top stall that leads by less is a tie.

Of three captures of one variant on record the top stall differed for 4 of 27 rows, without a word.
Their tables are kept in ``recorded/repeats``: the evidence has one capture a variant now.
"""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path

import pytest

from synthetic import ablation, with_row
from workbench.derive.diff.costs import Cost
from workbench.derive.figures import (
    SAMPLES,
    Figure,
    figures,
    lead_error,
    stall_shares,
    standard_error,
    top_stall,
)
from workbench.evidence import frames
from workbench.ncu.capture import Capture
from workbench.ncu.captures import KeptTables
from workbench.render.document.limits import in_column, of_line, reasons, share
from workbench.render.document.limits import top_stall as top_stall_of

REPEATS = sorted((Path(__file__).parent / "recorded" / "repeats").glob("*.json.zst"))


def test_a_share_of_506_samples_is_known_to_within_some_points() -> None:
    """The review's example: 70 of 506 are 13.8 ± 1.5 %."""
    error = standard_error(70 / 506, 506)
    assert error == pytest.approx(0.01535, rel=1e-3)
    assert share(70 / 506, error) == "13.8 ± 1.5 %"
    assert standard_error(0.5, None) is None
    assert share(0.5, None) == "50 %"
    assert share(0.44, standard_error(0.44, 1e7)) == "44 %"


def test_the_error_of_a_lead_is_that_of_draws() -> None:
    draws = random.Random(1)
    leads = []
    for _ in range(4000):
        found = [draws.random() for _ in range(200)]
        first, second = sum(x < 0.4 for x in found), sum(0.4 <= x < 0.7 for x in found)
        leads.append((first - second) / 200)
    mean = sum(leads) / len(leads)
    spread = (sum((lead - mean) ** 2 for lead in leads) / len(leads)) ** 0.5
    assert lead_error(0.4, 0.3, 200) == pytest.approx(spread, rel=0.03)


def test_a_lead_within_its_error_is_a_tie() -> None:
    shares = {"wait": 0.24, "long_scoreboard": 0.26, "barrier": 0.1, "selected": 0.4}
    few, many = top_stall(shares, 400), top_stall(shares, 40_000)
    assert few is not None
    assert many is not None
    assert few.reasons == ("long_scoreboard", "wait")
    assert few.ties
    assert reasons(few.reasons) == "long scoreboard or wait"
    assert many.reasons == ("long_scoreboard",)
    assert not many.ties


def test_what_is_not_known_ties_with_nothing() -> None:
    found = top_stall({"wait": 0.5, "barrier": 0.5}, None)
    assert found is not None
    assert (found.reasons, found.error) == (("barrier",), None)
    assert top_stall({"selected": 1.0}, 100) is None
    assert top_stall({}, 100) is None


def test_a_tie_of_many_names_none() -> None:
    assert reasons(("a", "b", "c", "d")) == "4 reasons tie"


def test_a_line_s_reasons_tie_too() -> None:
    cost = Cost(samples=7.0, stalls={"wait": 3.0, "long_scoreboard": 4.0})
    assert cost.top_stall == "long_scoreboard"
    assert of_line(cost) == "long scoreboard or wait"
    assert in_column(cost.top_stalls, 16) == "long scoreboa +1"
    assert in_column(Cost(stalls={"wait": 9.0, "barrier": 1.0}).top_stalls, 16) == "wait"
    assert of_line(Cost()) == in_column((), 16) == ""


def test_the_ladder_says_that_it_is_a_tie() -> None:
    known = {SAMPLES: Figure(SAMPLES, "Warp state samples", 400.0, "sample", "")}
    stalls = {"wait": 0.34, "barrier": 0.33, "selected": 0.33}
    row = with_row(ablation(1), "fix1", stalls=stalls, figures=known).row("fix1")
    found = top_stall_of(row)
    assert found is not None
    assert found.reasons == ("wait", "barrier")
    assert found.error == pytest.approx(0.0237, rel=1e-2)


@cache
def recorded() -> list[tuple[str, list[Capture]]]:
    """The repeated captures of each variant, or of each of its kernels."""
    found: dict[str, list[Capture]] = {}
    for path in REPEATS:
        for launch in json.loads(frames.whole(path.read_bytes()))["launches"]:
            metrics = [tuple(row) for row in launch["metrics"]]
            tables = KeptTables(launch["kernel"], metrics, [], [], frozenset(launch["collected"]))
            name = f"{launch['ranges'][0]} {launch['kernel']}"
            found.setdefault(name, []).append(Capture(path, (tables,)))
    assert {len(captures) for captures in found.values()} == {3}
    assert len(found) == 28
    return sorted(found.items())


def test_captures_of_one_variant_do_not_contradict_each_other() -> None:
    """Where their top stalls differ, at least one of them says that it is a tie."""
    differing = 0
    for name, captures in recorded():
        tops = []
        for capture in captures:
            metrics = capture.metrics
            top = top_stall(stall_shares(metrics), figures(metrics)[SAMPLES].value)
            assert top is not None, name
            tops.append(top)
        if len({top.reasons[0] for top in tops}) > 1:
            differing += 1
            assert any(top.ties for top in tops), (name, tops)
    assert differing >= 3
