"""Shares of stall samples have an error, within which captures differ in their top stall.

Of three captures of one variant on record the top stall differed for 4 of 27 rows.
Their tables are kept in ``recorded/repeats``: the evidence has one capture a variant now.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from answers import not_none
from synthetic import ablation, with_row
from workbench.derive.figures import (
    ISSUING,
    SAMPLES,
    Figure,
    figures,
    stall_shares,
    standard_error,
    top_stall,
)
from workbench.evidence import frames
from workbench.ncu.capture import Capture
from workbench.ncu.captures import KeptTables
from workbench.render.document.limits import share
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


def test_of_an_unknown_number_of_samples_there_is_no_error() -> None:
    found = not_none(top_stall({"wait": 0.5, "barrier": 0.5}, None))
    assert (found.reason, found.error) == ("barrier", None)
    assert top_stall({"selected": 1.0}, 100) is None
    assert top_stall({}, 100) is None


def test_the_ladder_has_the_error_of_its_top_stall() -> None:
    known = {SAMPLES: Figure(SAMPLES, "Warp state samples", 400.0, "sample", "")}
    stalls = {"wait": 0.34, "barrier": 0.33, "selected": 0.33}
    row = with_row(ablation(1), "fix1", stalls=stalls, figures=known).row("fix1")
    found = not_none(top_stall_of(row))
    assert found.reason == "wait"
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


def test_captures_differ_in_their_top_stall_within_its_error() -> None:
    """Where they do, at least one of them has another reason that is as near."""
    differing = 0
    for name, captures in recorded():
        tops, near = set(), False
        for capture in captures:
            shares = stall_shares(capture.metrics)
            top = top_stall(shares, figures(capture.metrics)[SAMPLES].value)
            assert top is not None, name
            others = [v for k, v in shares.items() if k not in (top.reason, ISSUING)]
            near |= max(others) + 2 * not_none(top.error) >= top.share
            tops.add(top.reason)
        differing += len(tops) > 1
        assert near or len(tops) == 1, (name, tops)
    assert differing >= 3
