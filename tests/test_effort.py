"""What a capture did beside what the work needs: padding, traffic, idle SMs."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from synthetic import ablation
from workbench.judge.effort import Effort, effort
from workbench.ncu.capture import METRIC_COLUMNS, Launched, Table, load_capture
from workbench.render.document.rooflines import efforts
from workbench.study.model import Work
from workbench.study.workspace import find_workspace
from workspaces import FIXTURE, ROOT

EVIDENCE = ROOT / "ablations" / "attention" / "evidence"


def recorded(variant: str) -> Effort:
    study = find_workspace(FIXTURE).study("attention")
    (index,) = EVIDENCE.glob(f"*/{study.default_shape}/captures/{variant}.json")
    found = json.loads(index.read_text())
    report = index.parents[2] / "reports" / found["report"]
    return effort(load_capture(report, found["range"]), study.work(study.default_shape))


def test_of_a_recorded_kernel_with_fewer_blocks_than_sms() -> None:
    """64 blocks of two warpgroups with a query tile each, on 132 SMs."""
    found = recorded("fix8")
    assert found.balance == pytest.approx(64 / 132, abs=0.03)
    assert found.operations == pytest.approx(1.01, abs=0.01)
    assert found.l2 is not None
    assert 1 < found.l2 < 2
    assert found.dram == pytest.approx(0, abs=0.01)  # all of it stands in L2


def launched(l2_bytes: float | None) -> Launched:
    return Launched("k", (1, 1, 1), (1, 1, 1), l2_bytes)


@pytest.mark.parametrize(("second", "l2"), [(3e6, 2.5), (None, None)])
def test_launches_are_added_and_one_unknown_is_no_zero(
    second: float | None, l2: float | None
) -> None:
    nothing = Table([(0, "k", "none", 0.0, "")], METRIC_COLUMNS)
    both = (launched(2e6), launched(second))
    capture = cast(Any, SimpleNamespace(metrics=nothing, launched=both))
    found = effort(capture, Work(flops=8.0, bytes=2e6, dtype="float16"))
    assert found == Effort(needed=8.0, l2=l2)


def test_rates_are_over_the_chained_time() -> None:
    made = ablation(1)
    row = replace(made.rows[1], effort=Effort(needed=1e9, done=1.5e9, balance=0.25))
    assert row.time is not None
    shown = efforts(replace(made, rows=(made.rows[0], row)))
    cells = next(each.cells for each in shown.rows if each.key == row.variant)
    assert cells["useful"].data == pytest.approx(1e3 / row.time.value)
    assert cells["done"].data == pytest.approx(1.5e3 / row.time.value)
    assert cells["operations"].data == pytest.approx(1.5)


def test_what_only_moves_has_no_operations() -> None:
    made = ablation(1)
    rows = tuple(replace(row, effort=Effort(done=7.0, l2=1.0)) for row in made.everything)
    shown = efforts(replace(made, rows=rows, references=()))
    assert [column.key for column in shown.columns] == ["version", "dram", "l2", "balance"]
