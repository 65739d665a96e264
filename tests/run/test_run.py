"""The stage that starts processes, without a GPU: real workers that build, scripted ones beyond."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from answers import Capsys, Patch
from made_evidence import series, timing
from standin import played
from workbench.app.ablate import plan, settled
from workbench.cli.main import main
from workbench.cuda.compiler import parse_log
from workbench.cuda.programs import expand_includes
from workbench.errors import EnvironmentLacks, ToolFailed, UsageError, WorkbenchError
from workbench.evidence import journal, store
from workbench.evidence.records import Session, Timing
from workbench.evidence.store import EvidenceFolder
from workbench.load import ShapeEvidence, load
from workbench.ncu import command as ncu
from workbench.run import machine, measurement
from workbench.run.compilation import worker_stopped
from workbench.run.machine import Gpu
from workbench.run.measurement import Measurement, Plan
from workbench.run.process import WorkerEnd
from workbench.run.protocol import (
    Broken,
    Checked,
    Done,
    ErrorText,
    Event,
    Failed,
    SessionsDone,
    SessionsJob,
    Start,
    TimedSession,
)
from workbench.run.recording import Recorder, remove_superseded
from workbench.study.config import Config, Profiler
from workbench.study.files import write_bytes
from workbench.study.workspace import find_workspace
from workbench.words import CheckResult, Phase
from workspaces import GOOD, ROOT, make


def build(root: Path, capsys: Capsys, *names: str) -> tuple[int, dict[str, dict[str, Any]], str]:
    code = main(["build", *names, "--json", "--project", str(root)])
    out, err = capsys.readouterr()
    return code, {b["variant"]: b for b in json.loads(out)["builds"]}, err


def test_a_spill_is_reported_as_a_warning_and_in_bytes(tmp_path: Path, capsys: Capsys) -> None:
    body = "float r[32]; for (int j = 0; j < n; ++j) r[(j * n) % 32] = x[j]; out[i] = r[n % 32];"
    make(tmp_path, {"baseline": GOOD, "local": body})
    code, built, _ = build(tmp_path, capsys, "local")
    assert code == 0
    assert built["local"]["kernels"][0]["stack_bytes"] >= 128
    assert any("local memory" in w.lower() for w in built["local"]["warnings"])


@pytest.mark.slow
def test_the_flagship_compiles_without_a_warning_or_a_spill(capsys: Capsys) -> None:
    """The first kernel that its last step takes; all builds are on record, as their gate."""
    chosen = find_workspace(ROOT).study("attention").ladder.steps[-1].chooses
    assert len(chosen) > 5
    code, built, _ = build(ROOT, capsys, chosen[0])
    assert code == 0
    for found in built.values():
        assert found["warnings"] == []
        for kernel in found["kernels"]:
            assert kernel["spill_store_bytes"] == kernel["spill_load_bytes"] == 0


def test_the_compilers_log_is_read_kernel_by_kernel() -> None:
    log = """ptxas info    : Compiling entry function 'one' for 'sm_90a'
ptxas info    : Function properties for one
    48 bytes stack frame, 20 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 48 bytes cumulative stack size, 1024 bytes smem
ptxas warning : Registers are spilled to local memory in function 'one'
ptxas info    : Compiling entry function 'two' for 'sm_90a'
ptxas info    : Function properties for two
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 0 barriers
"""
    (one, two), warnings = parse_log(log)
    assert (one.registers, one.shared_bytes, one.stack_bytes) == (255, 1024, 48)
    assert (one.spill_store_bytes, one.spill_load_bytes) == (20, 24)
    assert (two.kernel, two.registers, two.shared_bytes) == ("two", 24, 0)
    assert warnings == ["ptxas warning : Registers are spilled to local memory in function 'one'"]


def test_local_headers_are_put_in_place_once_under_virtual_names(tmp_path: Path) -> None:
    folder = tmp_path / "scale"
    folder.mkdir()
    (folder / "a.cuh").write_text('#pragma once\n#include "b.cuh"\nint a;\n')
    (folder / "b.cuh").write_text("int b;\n")
    (folder / "k.cu").write_text('#include "a.cuh"\n#include "b.cuh"\n#include <math.h>\nint k;\n')
    text = expand_includes(folder / "k.cu")
    assert text.count("int b;") == 1
    assert '#line 1 "/workbench/kernels/scale/a.cuh"' in text
    assert '#line 2 "/workbench/kernels/scale/k.cu"' in text
    assert "#include <math.h>" in text
    assert str(tmp_path) not in text


def test_ncu_is_told_clocks_caches_and_source() -> None:
    command = ncu.command("ncu", Profiler(clock_control="base", cache_control="none"))
    text = " ".join(command)
    told = "--set full|--import-source yes|--clock-control base|--cache-control none"
    for part in (*told.split("|"), "--nvtx-include regex:workbench:.*/"):
        assert part in text


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    path = tmp_path / "old.json"
    path.write_bytes(b"old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(EnvironmentLacks, match="no space left"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


Script = list[Event]


class Scripted:
    """Stands in for workers, and for the process that forks sessions: each start plays the next
    list of events.
    """

    def __init__(self, *scripts: Script, **ends: Any) -> None:
        self.scripts = list(scripts)
        self.ends = ends
        self.jobs: list[Any] = []
        self.opened: list[list[str]] = []

    def run(self, scratch: Path, job: Any, limit: float, on_event: Any) -> WorkerEnd:
        self.jobs.append(job)
        return self.watch(limit, on_event)

    def start(self, scratch: Path, job: SessionsJob, prefix: None, cubins: Path) -> Scripted:
        self.jobs.append(job)
        assert (scratch / "kernels" / "scale" / "study.py").is_file()
        return self

    def give_turn(self, variants: list[str]) -> None:
        self.opened.append(variants)

    def watch(self, limit: float, on_event: Any) -> WorkerEnd:
        events = self.scripts.pop(0)
        *_, last = ("", *(event.variant for event in events if isinstance(event, Start | Checked)))
        at = "" if self.ends.get("interrupted") else last
        return played(events, on_event, at, **self.ends)

    def kill(self) -> None:
        pass


def checked(name: str, **changes: Any) -> Checked:
    own: Any = {"status": CheckResult.CORRECT, "why": "", "max_abs": 0.0, "relative": 0.0}
    return Checked(variant=name, shape="large", **own | changes)


def start(name: str) -> Start:
    return Start(variant=name, phase=Phase.CHECK)


BOTH = ("baseline", "bad")


def timed(number: int, *names: str, **changes: Any) -> TimedSession:
    found = tuple(series(name, 5.0) for name in names or BOTH)
    session = Session(number=number, instances=1, series=found, **changes)
    return TimedSession(session=session, nodes={})


def done(sessions: int, *before: Event) -> Script:
    """The end of a job that timed both in so many sessions."""
    return [*map(timed, range(sessions)), *before, SessionsDone(sessions=sessions), Done()]


Runner = Callable[..., tuple[Any, EvidenceFolder, Scripted]]
CHECKED = [start("baseline"), checked("baseline"), start("bad"), checked("bad"), Done()]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: Patch) -> Runner:
    def run(
        *scripts: Script, clock: Scripted | None = None, more: Any = (), **ends: Any
    ) -> tuple[Any, EvidenceFolder, Scripted]:
        make(tmp_path / "ws", {"baseline": GOOD, "bad": GOOD})
        study = find_workspace(tmp_path / "ws").study()
        folder = EvidenceFolder(tmp_path / "evidence" / "gpu")
        scripted = Scripted(*scripts, **ends)
        monkeypatch.setattr(measurement, "run_worker", scripted.run)
        clock = clock or Scripted([SessionsDone(sessions=0), Done()])
        monkeypatch.setattr(measurement, "Worker", clock.start)
        plan = Plan("large", timed=BOTH)
        answers = list(more)
        made = Measurement(
            study, Config(), folder, plan, lambda e: None, lambda timing: answers.pop(0)
        )
        return made.run(), folder, scripted

    return run


def only_timing(folder: EvidenceFolder) -> Timing:
    (path,) = folder.timing_files("large")
    return store.read_record(path, Timing)


def test_every_session_is_kept_as_it_comes(play: Runner) -> None:
    clock = Scripted([timed(0), timed(1), Start(variant="bad", phase=Phase.TIME)], [Done()])
    result, folder, _ = play(CHECKED, clock=clock)
    assert "crashed its process" in result.failures["bad"]
    assert clock.opened == [["baseline", "bad"], ["baseline"]]
    assert not folder.timing_files("large")  # the culprit was in all of them


def test_further_sessions_are_asked_for_while_a_verdict_is_open(play: Runner) -> None:
    further: Script = [*map(timed, range(5, 10)), SessionsDone(sessions=10), Done()]
    clock = Scripted([*done(5)[:-1], *further])
    result, folder, _ = play(CHECKED, clock=clock, more=[("bad", "baseline"), ()])
    assert clock.opened == [["baseline", "bad"], ["bad", "baseline"], []]
    assert result.failures == {}
    timing = only_timing(folder)
    assert list(result.seconds) == ["build and check", "timing", "ncu"]
    assert [session.number for session in timing.sessions] == list(range(10))
    assert (timing.planned, timing.is_complete) == (5, True)


@pytest.mark.parametrize(("sessions", "goes_on"), [(10, True), (11, False), (15, False)])
def test_sessions_end_when_there_are_enough(play: Runner, sessions: int, goes_on: bool) -> None:
    clock = Scripted([timed(0), SessionsDone(sessions=sessions), Done()])
    play(CHECKED, clock=clock, more=[("bad",)])
    assert clock.opened[-1] == (["bad"] if goes_on else [])


def test_what_a_killed_workbench_left_of_a_timing_does_not_count(play: Runner) -> None:
    _, folder, _ = play(CHECKED, clock=Scripted(done(5)), more=[()])
    (path,) = folder.timing_files("large")
    study = find_workspace(folder.root.parents[1] / "ws").study()
    assert load(study, folder, {"large": []})["large"].timings
    whole = store.read_record(path, Timing)
    store.write(path, structs.replace(whole, sessions=whole.sessions[:3]))
    assert not load(study, folder, {"large": []})["large"].timings


@pytest.mark.parametrize(("sessions", "kept"), [(2, False), (6, True)])
def test_a_timing_that_was_cut_short_does_not_replace_a_whole_one(
    sessions: int, kept: bool, play: Runner
) -> None:
    clock = Scripted([*map(timed, range(sessions))], interrupted=True)
    result, folder, _ = play(CHECKED, clock=clock)
    assert result.interrupted
    assert bool(folder.timing_files("large")) == kept
    (entry,) = journal.load_journal(folder).sessions
    assert (entry.sessions, entry.cut_short) == (sessions, not kept)
    assert entry.medians.keys() == {"baseline", "bad"}


def test_a_timing_that_an_error_cut_short_does_not_replace_a_whole_one(
    play: Runner, tmp_path: Path
) -> None:
    broken = Broken(error=ErrorText(kind="RuntimeError", message="no such card"))
    clock = Scripted([timed(0), timed(1), broken])
    with pytest.raises(ToolFailed, match="no such card"):
        play(CHECKED, clock=clock)
    folder = EvidenceFolder(tmp_path / "evidence" / "gpu")
    assert not folder.timing_files("large")
    (entry,) = journal.load_journal(folder).sessions
    assert (entry.sessions, entry.cut_short) == (2, True)


def test_references_by_themselves_are_no_timing(play: Runner) -> None:
    error = ErrorText(kind="NotTimed", message="launches nothing on the stream")
    failed = [Failed(variant=name, phase=Phase.TIME, error=error) for name in BOTH]
    script: Script = [timed(0, "bad", alone=True), *failed, Done()]
    _, folder, _ = play(CHECKED, clock=Scripted(script))
    assert not folder.timing_files("large")
    assert not journal.load_journal(folder).sessions


def test_no_ncu_is_left_waiting_where_the_sessions_cannot_be_started(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    def full(*anything: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    killed: list[str] = []
    ahead = SimpleNamespace(kill=lambda: killed.append("ncu"))
    monkeypatch.setattr(Measurement, "start_capture", lambda *a, **k: ahead)
    monkeypatch.setattr(Measurement, "start_sessions", full)
    make(tmp_path / "ws", {"baseline": GOOD})
    study = find_workspace(tmp_path / "ws").study()
    folder = EvidenceFolder(tmp_path / "evidence" / "gpu")
    plan = Plan("large", timed=("baseline",), captured=("baseline",))
    with pytest.raises(EnvironmentLacks):
        Measurement(study, Config(), folder, plan, lambda event: None).run()
    assert killed == ["ncu"]


def test_a_variant_that_cannot_be_timed_is_recorded_as_failed(play: Runner) -> None:
    error = ErrorText(kind="NotTimed", message="launches nothing on the stream")
    failed = Failed(variant="bad", phase=Phase.TIME, error=error)
    clock = Scripted([failed, timed(0, "baseline"), SessionsDone(sessions=1), Done()])
    result, folder, _ = play(CHECKED, clock=clock, more=[()])
    assert "launches nothing" in result.failures["bad"]
    check = store.variant_record(folder, "bad").checks["large"]
    assert (check.status, check.why) == ("failed", "launches nothing on the stream")
    assert list(only_timing(folder).fingerprints) == ["baseline"]


def test_controls_and_references_are_those_of_the_ladder(play: Runner) -> None:
    clock = Scripted(done(1))
    play(CHECKED, clock=clock, more=[()])
    (job,) = clock.jobs
    assert (job.controls, job.references, job.sessions, job.instances) == (("baseline",), (), 5, 4)


def test_a_variant_that_crashes_costs_only_itself(play: Runner) -> None:
    first = [start("baseline"), checked("baseline"), start("bad")]
    clock = Scripted([timed(0, "baseline"), SessionsDone(sessions=1), Done()])
    result, folder, scripted = play(first, clock=clock, more=[()])
    assert len(scripted.jobs) == 1
    assert "crashed its process" in result.failures["bad"]
    assert store.variant_record(folder, "bad").checks["large"].status == "crashed"
    assert clock.opened == [["baseline"], []]
    assert list(only_timing(folder).fingerprints) == ["baseline"]


LOST_CONTEXT = Failed(
    variant="bad",
    phase=Phase.CHECK,
    error=ErrorText(kind="AcceleratorError", message="an illegal memory access"),
)


@pytest.mark.parametrize(
    ("end", "ends", "why", "status"),
    [
        ([LOST_CONTEXT], {}, "an illegal memory access", "failed"),
        ([], {"silent_for": 120.0}, "hangs: nothing came for 120 s", "hung"),
    ],
)
def test_who_hangs_or_breaks_the_cuda_context_is_recorded_so(
    end: Script, ends: dict[str, Any], why: str, status: str, play: Runner
) -> None:
    """Its worker ends, and another one goes on."""
    again = [start("baseline"), checked("baseline"), Done()]
    result, folder, scripted = play([start("bad"), *end], again, **ends)
    assert [job.variants for job in scripted.jobs] == [BOTH]
    assert list(result.failures) == ["bad"]
    assert why in result.failures["bad"]
    assert store.variant_record(folder, "bad").checks["large"].status == status


def test_a_newer_session_replaces_the_ones_it_covers(tmp_path: Path) -> None:
    folder = EvidenceFolder(tmp_path / "evidence" / "gpu")
    for name, variants in (("1", ["a", "b"]), ("2", ["c"]), ("3", ["a", "b", "d"])):
        made = timing("large", dict.fromkeys(variants, 5.0))
        store.write(folder.timings("large") / f"{name}.json.zst", made)
    remove_superseded(folder, "large", "3.json", {"a", "b", "d"})
    assert [path.name for path in folder.timing_files("large")] == ["2.json.zst", "3.json.zst"]


def test_a_gpu_without_ncu_or_packages_is_named(monkeypatch: Patch) -> None:
    monkeypatch.setattr(machine, "find_gpu", lambda: Gpu("NVIDIA H200", "580", "9.0"))
    monkeypatch.setattr(machine, "find_ncu", lambda: None)
    assert not machine.can_measure()
    assert "ncu was not found" in machine.why_not_measuring().message
    assert "PATH" in machine.why_not_measuring().hint
    monkeypatch.setattr(machine, "find_ncu", lambda: "/usr/bin/ncu")
    monkeypatch.setattr(machine, "missing_packages", lambda: ["torch"])
    assert not machine.can_measure()
    assert "torch" in machine.why_not_measuring().message
    assert "[gpu]" in machine.why_not_measuring().hint


def test_who_is_wrong_at_another_shape_is_not_measured_again_each_time(tmp_path: Path) -> None:
    make(tmp_path / "ws", {"baseline": GOOD, "bad": GOOD})
    study = find_workspace(tmp_path / "ws").study()
    folder = EvidenceFolder(tmp_path / "evidence" / "gpu")
    recorder = Recorder(study, "odd", folder, ["baseline", "bad"])
    for name in ("baseline", "bad"):
        recorder.build(name)
        recorder.check(name, "odd", status=CheckResult.CORRECT, why="")
    names = ["baseline", "bad"]

    def odd() -> ShapeEvidence:
        return load(study, folder, {"odd": names})["odd"]

    assert plan(study, odd(), names, fresh=False).timed == ("baseline", "bad")
    recorder.check("bad", "large", status=CheckResult.UNSUPPORTED, why="too large")
    assert not settled(study, "odd", odd().variants["bad"])
    recorder.check("bad", "large", status=CheckResult.WRONG, why="max error 1")
    assert plan(study, odd(), names, fresh=False).timed == ("baseline",)
    assert plan(study, odd(), names, fresh=True).timed == ("baseline", "bad")


def broken(kind: str, message: str, hint: str = "") -> dict[str, Any]:
    return {"events": [Broken(error=ErrorText(kind=kind, message=message, hint=hint))]}


SILENT = {"silent_for": 60.0, "log": "a\nb\n"}
BY_ITSELF = {"current": "x.py:f", "returncode": 0}
DOCTOR = "`workbench doctor` may say why"
ALONE = "fix it, or run the file alone"


@pytest.mark.parametrize(
    ("end", "kind", "message", "hint"),
    [
        (broken("UsageError", "no", "yes"), UsageError, "the worker stopped: no", "yes"),
        (broken("OSError", "gone"), ToolFailed, "the worker stopped: gone", DOCTOR),
        (SILENT, ToolFailed, "the worker stopped: nothing came any more\na\nb", DOCTOR),
        ({}, ToolFailed, "the worker stopped: exit -9", DOCTOR),
        (BY_ITSELF, UsageError, "x.py:f ended its process (exit 0)", ALONE),
    ],
)
def test_a_worker_that_stopped_says_why_and_what_to_do(
    end: dict[str, Any], kind: type[WorkbenchError], message: str, hint: str
) -> None:
    told = worker_stopped(replace(WorkerEnd(events=[], returncode=-9), **end))
    assert (type(told), told.message, told.hint) == (kind, message, hint)


def test_an_interrupt_keeps_what_was_finished(play: Runner) -> None:
    result, folder, _ = play([start("baseline"), checked("baseline")], interrupted=True)
    assert result.interrupted
    assert result.failures == {}
    assert store.variant_record(folder, "baseline").checks["large"].status == "correct"
    assert not folder.timings("large").exists()
