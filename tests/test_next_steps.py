"""Steps that wait for a GPU fit the ladder as it is, and go there where one records them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from benchmarks.next_steps import move

from workbench.study.ladder import read_ladder
from workspaces import ROOT

LAST = {"attention": "fix30", "moe": "fix26"}


@pytest.mark.parametrize("study", LAST)
def test_what_is_not_recorded_yet_can_go_behind_the_last_step(study: str, tmp_path: Path) -> None:
    ladder, folder = ROOT / "ablations" / study, ROOT / "kernels" / study
    if not (ladder / "next.toml").is_file():
        pytest.skip("no step waits")
    for name in ("ablation.toml", "next.toml"):
        shutil.copy(ladder / name, tmp_path)
    recorded = read_ladder(ladder / "ablation.toml", study, folder)
    moved = move(tmp_path)
    assert move(tmp_path) == [], "a second time there is nothing to do"
    found = read_ladder(tmp_path / "ablation.toml", study, folder)
    assert found.references == recorded.references
    assert found.steps[: len(recorded.steps)] == recorded.steps
    waiting = found.steps[len(recorded.steps) :]
    assert [step.variant for step in waiting] == moved
    assert waiting[-1].variant == LAST[study]
    for step in waiting:
        assert step.predictions
        assert step.kind is not None
        assert (folder / f"{step.variant.partition('[')[0]}.py").is_file()
        assert step.variant not in {one.variant for one in recorded.steps}
