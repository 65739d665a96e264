"""SASS: its costs are those of the lines."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from answers import Capsys, error_of, not_none
from workbench.derive.diff.costs import Listing, line_costs, listing
from workbench.ncu.capture import Capture, Decoded
from workbench.ncu.captures import KeptTables
from workbench.ncu.disassembly import packed, unpacked
from workbench.ncu.reader import actions
from workspaces import CAUSAL, FIXTURE, SHOWN, output_of, recorded_capture, recorded_report

LISTED = [
    *((SHOWN, variant) for variant in ("baseline", "fix4", "fix7", "fix11", "sdpa_flash")),
    *((CAUSAL, variant) for variant in ("fix9", "fix10", "sdpa")),
]


def listed(variant: str, shape: str = SHOWN) -> Listing:
    found = recorded_capture(shape, variant)
    return listing(found.code, found.metrics)


@pytest.mark.parametrize(("shape", "variant"), LISTED)
def test_the_instructions_of_a_line_cost_what_the_line_does(shape: str, variant: str) -> None:
    found = recorded_capture(shape, variant)
    costs = line_costs(found.lines, found.metrics, found.collected)
    mine = listing(found.code, found.metrics)
    assert mine.duration == costs.duration
    stalls = {
        place: sum((Counter(o.stalls) for o in ones), Counter())
        for place, ones in mine.by_line.items()
    }
    for place, cost in costs.lines.items():
        assert dict(stalls.get(place, {})) == dict(cost.stalls), place
        times = [one.microseconds or 0.0 for one in mine.by_line.get(place, ())]
        assert sum(times) == pytest.approx(cost.microseconds or 0.0)
        executed = [one.executed or 0.0 for one in mine.by_line.get(place, ())]
        assert sum(executed) == pytest.approx(cost.instructions or 0.0)


@pytest.mark.parametrize(("shape", "variant"), LISTED)
def test_executions_are_those_that_ncu_counted(shape: str, variant: str) -> None:
    metrics = recorded_capture(shape, variant).metrics
    name = "smsp__inst_executed.sum"
    counted = sum(value for metric, value in metrics.rows("metric", "value") if metric == name)
    found = listed(variant, shape).instructions
    # Counted in another pass: code that waits in a loop goes round it as often as it has to.
    assert sum(one.executed or 0.0 for one in found) == pytest.approx(counted, rel=0.05)


def test_what_is_kept_of_the_code_is_the_code() -> None:
    report = recorded_report(CAUSAL, "fix10")
    action = actions(report, f"workbench:attention/fix10/{CAUSAL}")[0]
    code = not_none(Decoded(action, report).code)
    assert unpacked(json.loads(json.dumps(packed(code)))) == code
    assert not any("0x7f" in sass and len(sass.split("0x7f")[1]) > 8 for sass in code.sass)


def test_tables_without_code_have_no_listing() -> None:
    bare = KeptTables("k", [("gpu__time_duration.sum", 1000.0, "ns")], [], [], frozenset())
    found = Capture(Path("x.ncu-rep"), (bare,))
    mine = listing(found.code, found.metrics)
    assert mine.instructions == ()


def test_show_lists_the_instructions_under_their_lines() -> None:
    told = output_of(f"show fix10 --shape {CAUSAL} --source --sass --top 3")
    assert "the 3 hottest lines" in told
    assert "MUFU.EX2" in told


def test_show_has_every_instruction_as_data() -> None:
    told = json.loads(output_of("show fix7 --source --sass --json"))["sass"]
    assert len(told) == len(listed("fix7").instructions)
    assert {"launch", "address", "sass", "place", "executed", "stalls"} <= set(told[0])


def test_a_library_kernel_has_its_hottest_instructions() -> None:
    told = output_of("show sdpa --source --sass --top 4")
    assert "no line is known; the 4 hottest instructions:" in told


def test_sass_is_of_source_lines(capsys: Capsys) -> None:
    assert "hint: " in error_of(capsys, "show", "fix7", "--sass", project=FIXTURE)
