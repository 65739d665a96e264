"""A variant costs only itself, whatever it does to the process that builds or profiles it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from answers import Capsys, Patch, both_of, error_of, json_of, text_of
from property_cases import examples
from standin import StandIn, played
from workbench.errors import EnvironmentLacks, ToolFailed
from workbench.evidence.store import EvidenceFolder
from workbench.ncu import command as ncu
from workbench.ncu.command import range_name
from workbench.run import compilation as building
from workbench.run import machine, measurement
from workbench.run.compilation import build_only
from workbench.run.measurement import MeasuredPlan, Measurement, Plan
from workbench.run.process import Worker, WorkerEnd
from workbench.run.protocol import (
    Broken,
    Built,
    Captured,
    Done,
    ErrorText,
    Event,
    Failed,
    Start,
    VariantsJob,
)
from workbench.study.config import Config
from workbench.study.model import Study
from workbench.study.workspace import find_workspace
from workbench.words import Phase
from workspaces import GOOD, make

RUN = "def run(x):\n    return x\n"


# ---- build ---------------------------------------------------------------------------------
def test_build_goes_on_after_a_crash_a_hang_and_an_exit(
    tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    """What does not hang has all the time that a busy machine takes."""
    allowed = Worker.allowed

    def patient(worker: Worker, limit: float) -> float:
        return allowed(worker, limit if "hangs" in str(worker.events[-1:]) else 300.0)

    monkeypatch.setattr(Worker, "allowed", patient)
    bad = {
        "dies": ("import os\nos._exit(9)\n", "crashed its process (exit 9)"),
        "exits": ("import sys\nsys.exit(0)\n", "exits.py:2 ends its process: SystemExit: 0"),
        "crashes": (
            "import ctypes\nctypes.string_at(0)\n",
            "crashed its process (crashes.py:2, exit -11)",
        ),
        "raises": ("raise BaseException('no')\n", "BaseException: no (raises.py:1)"),
        "norun": ("def runn(x):\n    return x\n", "norun.py defines no run()"),
        # Printing is no sign of life: it was waited for without end.
        "hangs": (
            "import time\nwhile True:\n    print('x' * 100); time.sleep(0.01)\n",
            "hangs: nothing came for 3 s (hangs.py:3)",
        ),
    }
    modules = {name: text for name, (text, _) in bad.items()}
    modules |= {"prints": "print('{}')\n" + RUN, "last": RUN}
    config = "[limits]\nseconds_per_step = 3\n"
    make(tmp_path, {"baseline": GOOD}, modules, config=config)
    out, err = both_of(capsys, "build", "--json", project=tmp_path, code=4)
    built = json.loads(out)["builds"]
    assert [b["variant"] for b in built] == ["baseline", *modules]
    for each in built:
        told = bad.get(each["variant"], ("", ""))[1]
        assert told in each["error"]
        assert bool(told) == bool(each["error"]) == (f"error: {each['variant']}: " in err)
    assert "hint: a variant is a module with run(...)" in err
    assert "hint: everything else was built" in err
    assert built[0]["kernels"][0]["registers"] > 0


def test_ctrl_c_in_a_check_is_no_answer(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    make(tmp_path, {}, {"baseline": RUN, "fix": RUN})
    StandIn(monkeypatch, lambda run: 1.0)
    end = WorkerEnd(events=[], returncode=-2, interrupted=True)
    monkeypatch.setattr(measurement, "run_worker", lambda *_: end)
    assert "interrupted" in error_of(capsys, "check", project=tmp_path, code=130)


class Breaking:
    """Stands in for workers: builds in order, and ends where a variant says so."""

    def __init__(self, fates: dict[str, str]) -> None:
        self.fates = fates
        self.started = 0

    def run(self, scratch: Path, job: VariantsJob, limit: float, on_event: Any) -> WorkerEnd:
        self.started += 1
        events: list[Event] = []
        for name in job.variants:
            events.append(Start(variant=name, phase=Phase.BUILD))
            fate = self.fates[name]
            if fate == "fails":
                error = ErrorText(kind="ValueError", message="no")
                events.append(Failed(variant=name, phase=Phase.BUILD, error=error))
            if fate.startswith("built"):
                events.append(Built(variant=name, arch="sm_90a", kernels=(), warnings=()))
            if fate not in ("fails", "built"):
                return played(events, current=name, silent_for=60.0 * (fate == "hangs"))
        return played([*events, Done()])


FATES = st.sampled_from(["built", "fails", "dies", "hangs", "built, then dies"])


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    names = dict.fromkeys("abcdefgh", RUN)
    return find_workspace(make(tmp_path_factory.mktemp("ws") / "ws", {}, names)).study()


@settings(max_examples=examples(20, many=1000))
@given(fates=st.lists(FATES, min_size=1, max_size=8))
def test_every_variant_has_its_own_result_whoever_breaks_the_worker(
    fates: list[str], study: Study
) -> None:
    by_name = dict(zip(study.variants, fates, strict=False))
    worker = Breaking(by_name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "run_worker", worker.run)
        patch.setattr(machine, "missing_to_run", list)
        told = build_only(study, list(by_name), "sm_90a", 8.0, lambda event: None)
    assert [event.variant for event in told] == list(by_name)
    for event, fate in zip(told, fates, strict=True):
        assert isinstance(event, Built) == (fate == "built")
    broken = sum(fate not in ("built", "fails") for fate in fates)
    assert worker.started <= 1 + broken


def test_a_worker_that_comes_to_no_variant_is_an_error(study: Study, monkeypatch: Patch) -> None:
    broken = Broken(error=ErrorText(kind="OSError", message="OSError: no such thing"))
    monkeypatch.setattr(building, "run_worker", lambda *given: played([broken]))
    with pytest.raises(ToolFailed, match="the worker stopped: OSError: no such thing"):
        build_only(study, ["a", "b"], "sm_90a", 8.0, lambda event: None)


def test_building_says_what_it_needs_and_why(
    tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    make(tmp_path, {"baseline": GOOD})
    monkeypatch.setattr(machine, "missing_to_run", lambda: ["torch"])
    err = error_of(capsys, "build", project=tmp_path, code=3)
    assert "building needs torch: a GPU it does not need, but variants are imported" in err


def test_kernels_of_one_name_are_told_apart(
    tmp_path: Path, builds_here: None, capsys: Capsys
) -> None:
    module = """from workbench import cuda

kernels = [cuda.kernel(f"{s}.cu", "scale", defines={"D": d}) for s in ("a", "b") for d in (1, 2)]


def run(x):
    return x
"""
    make(tmp_path, dict.fromkeys(("baseline", "a", "b"), GOOD), {"many": module})
    told = text_of(capsys, "build", "many", "--markdown", project=tmp_path)
    assert "static shared B" in told
    lines = [line for line in told.splitlines() if line.startswith("| many")]
    assert len(set(lines)) == len(lines) == 4
    for text in ("a.cu", "b.cu", "D=1", "D=2"):
        assert sum(text in line for line in lines) == 2
    (found,) = json_of(capsys, "build", "many", project=tmp_path)["builds"]
    assert found["defines"] == ["D=1", "D=2", "D=1", "D=2"]


# ---- ncu sees no kernel --------------------------------------------------------------------
FIRST = "each at its first kernel"


class Profiled:
    """Stands in for ncu around a worker: writes a report of who launches what it can see."""

    def __init__(self, unseen: set[str], log: str = "", ends_at: str = "") -> None:
        self.unseen, self.log, self.ends_at = unseen, log, ends_at
        self.jobs: list[tuple[str, ...]] = []

    def worker(self, scratch: Path, job: VariantsJob, prefix: Any, cubins: Path) -> Profiled:
        self.scratch = scratch
        self.variants = job.variants
        return self

    def give_turn(self, variants: list[str]) -> None:
        self.variants = tuple(variants)

    def kill(self) -> None:
        pass

    def watch(self, limit: float, on_event: Any) -> WorkerEnd:
        self.jobs.append(self.variants)
        done: tuple[str, ...] = () if self.ends_at == FIRST else self.variants
        if self.ends_at in done:
            done = done[: done.index(self.ends_at)]
        events: list[Event] = [Captured(variant=name) for name in done]
        seen = [name for name in done if name not in self.unseen]
        if seen and (self.ends_at or not self.log):
            (self.scratch / ncu.REPORT).write_text("\n".join(seen))
        if self.ends_at:
            last = self.variants[len(done)]
            start = Start(variant=last, phase=Phase.CAPTURE)
            current = last if self.ends_at == FIRST else ""
            return WorkerEnd([*events, start], returncode=9, current=current, log=self.log)
        for event in events:
            on_event(event)
        log = self.log or ("" if seen else "==WARNING== No kernels were profiled.\n")
        return WorkerEnd([*events, Done()], returncode=0, log=log)

    def launches(self, report: Path) -> dict[str, int]:
        return {range_name("scale", name, "large"): 1 for name in report.read_text().split()}


Play = Callable[..., tuple[MeasuredPlan, list[str], Profiled]]


@pytest.fixture
def held() -> list[str]:
    """The variants whose captures went on record in the last run."""
    return []


@pytest.fixture
def play(study: Study, tmp_path: Path, held: list[str]) -> Play:
    def run(
        unseen: set[str], log: str = "", ends_at: str = ""
    ) -> tuple[MeasuredPlan, list[str], Profiled]:
        tool = Profiled(unseen, log, ends_at)
        held.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(measurement, "Worker", tool.worker)
            patch.setattr(measurement, "launches_by_range", tool.launches)
            patch.setattr(machine, "find_ncu", lambda: "ncu")
            patch.setattr(machine, "ncu_version", lambda tool: "2026.1.0")
            plan = Plan("large", captured=tuple(study.variants))
            folder = EvidenceFolder(tmp_path / "gpu")
            made = Measurement(study, Config(), folder, plan, lambda event: None)
            kept = lambda report, found, *rest: held.extend(found)  # noqa: E731
            patch.setattr(made.recorder, "captures", kept)
            result = made.run()
            if result.unprofiled is not None:
                raise result.unprofiled.error()
            return result, held, tool

    return run


@settings(max_examples=examples(15, many=250))
@given(unseen=st.sets(st.sampled_from("abcdefgh")))
def test_a_variant_without_a_kernel_costs_only_itself(unseen: set[str], play: Play) -> None:
    result, held, tool = play(unseen)
    assert set(result.failures) == unseen
    for why in result.failures.values():
        assert "ncu saw no kernel" in why
        assert "current stream" in why
    assert held == [name for name in "abcdefgh" if name not in unseen]
    assert len(tool.jobs) == 1


def test_an_ncu_that_does_not_work_is_no_fault_of_the_variants(play: Play) -> None:
    with pytest.raises(EnvironmentLacks):
        play(set(), "==ERROR== ERR_NVGPUCTRPERM\n==WARNING== No kernels were profiled.")


UNKNOWN = (
    "==PROF== Connected\n==ERROR== Failed to prepare kernel for profiling\n"
    "==ERROR== Unknown Error on device 0.\n==WARNING== No kernels were profiled.\n"
)


@pytest.mark.parametrize("log", [UNKNOWN, "", "Segmentation fault"])
def test_where_every_variant_ends_under_ncu_the_machine_is_at_fault(log: str, play: Play) -> None:
    with pytest.raises(EnvironmentLacks) as failed:
        play(set(), log, FIRST)
    told = failed.value.message
    assert told.startswith("ncu ends at the first kernel of 3 of 8 variants")
    assert told.endswith(log.splitlines()[1] if log == UNKNOWN else log or "no error printed")


def test_an_error_of_ncu_outranks_that_it_saw_no_kernel() -> None:
    assert not ncu.saw_no_kernel(UNKNOWN)
    assert ncu.saw_no_kernel("==WARNING== No kernels were profiled.\n")
    assert "Failed to prepare kernel" in ncu.failure(UNKNOWN).message
    assert ncu.quoted(UNKNOWN) == "==ERROR== Failed to prepare kernel for profiling"
    assert ncu.quoted("mine\n==ERROR== The application returned an error code (1).") == (
        "==ERROR== The application returned an error code (1)."
    )
    assert ncu.quoted("all is well") == ""


BUSY = (
    "==ERROR== An error was reported by the driver:\n"
    "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other "
    "tool (like DCGM) is concurrently collecting profiling data.\n"
    '==ERROR== Failed to profile "kernel" in process 7\n==PROF== Trying to shutdown target\n'
)


def test_another_profiler_on_the_card_is_no_fault_of_the_variant(
    play: Play, held: list[str]
) -> None:
    """It ends the process at the first kernel that it does not get; the captures before it stay."""
    with pytest.raises(EnvironmentLacks, match="another profiler has them") as failed:
        play(set(), BUSY, "c")
    assert "dcgmi profile --pause" in failed.value.hint
    assert held == ["a", "b"]
