"""Shapes that a step has not seen: drawn by its sources, checked and timed before it is kept."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from answers import Capsys, Patch
from standin import Run, StandIn
from workbench.app.executor import Local
from workbench.app.judge import on_record
from workbench.app.target import find_target
from workbench.cli.main import main
from workbench.errors import UsageError
from workbench.run.protocol import SessionsJob, VariantsJob
from workbench.study.unseen import DRAWN, unseen_shapes
from workbench.study.workspace import find_workspace
from workbench.words import GateState
from workspaces import GOOD, make

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
    (row,) = [r for r in on_record(target.evidence(), target.workspace.config).rows
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


@pytest.mark.parametrize("fault", ["wrong", "slower"])
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
    )
    main(["ablate", "fix", "--brief", "--project", str(root)])
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "unseen_shape"
    assert [gate["gate"] for gate in told["failed"]] == ["unseen"]
