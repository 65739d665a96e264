"""``workbench watch``: what a save changed, told once it has come to rest, until Ctrl-C."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import workspaces
from answers import Capsys, Patch, error_of
from handmade import built_kernel
from standin import measured_by, record_times
from workbench.app import watch as saving
from workbench.app.executor import Local
from workbench.cli import watch
from workbench.cli.options import WatchOptions
from workbench.cli.streams import Stderr
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.records import BuiltKernel
from workbench.render.document.environment import Save, saved_lines
from workbench.run import machine
from workbench.run.plan import MeasuredPlan as Result
from workbench.run.plan import Plan
from workbench.run.protocol import Built, ErrorText, Failed
from workbench.run.recording import Recorder
from workbench.study.config import Config
from workbench.study.model import Study
from workbench.words import CheckResult, Phase

HERE = Local("watch", Stderr())
KERNEL = built_kernel(kernel="scale", registers=96, source="baseline.cu")
FIRST = Save("baseline", "sm_90a", kernels=(KERNEL,))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return workspaces.make(tmp_path / "ws", {"baseline": workspaces.GOOD})


def script(*acts: Callable[[], object]) -> Callable[[float], None]:
    """A pause that does one thing after the other, and then is Ctrl-C."""
    left: Iterator[Callable[[], object]] = iter(acts)

    def pause(_: float) -> None:
        act = next(left, None)
        if act is None:
            raise KeyboardInterrupt
        act()

    return pause


def nothing() -> None:
    pass


def built_by(*results: Built | Failed, monkeypatch: Patch) -> list[str]:
    """In place of the compiler: one result a save. Returns the architectures asked for."""
    asked, left = [], iter(results)

    def build_only(study: object, names: object, arch: str, *_: object) -> list[Built | Failed]:
        asked.append(arch)
        return [next(left)]

    monkeypatch.setattr(saving, "build_only", build_only)
    monkeypatch.setattr(machine, "can_measure", lambda: False)
    return asked


def built(kernel: BuiltKernel, *warnings: str) -> Built:
    return Built(
        variant="baseline", arch="sm_90a", kernels=(kernel,), warnings=warnings, defines=("",)
    )


def replaced(kernel: BuiltKernel, **values: int) -> BuiltKernel:
    return BuiltKernel(**{**{n: getattr(kernel, n) for n in kernel.__struct_fields__}, **values})


def test_what_moved_is_told_as_before_and_after() -> None:
    spilled = replaced(KERNEL, registers=128, spill_store_bytes=16, spill_load_bytes=8)
    now = replace(FIRST, kernels=(spilled,), warnings=("w1", "w2"))
    assert saved_lines(now, FIRST) == [
        "built for sm_90a: registers 96 → 128, spills 0 → 24 bytes",
        "warning: w1",
        "warning: w2",
    ]
    assert saved_lines(FIRST, now) == [
        "built for sm_90a: registers 128 → 96, spills 24 → 0 bytes",
        "2 warnings gone",
    ]
    assert saved_lines(FIRST, None) == ["built for sm_90a: registers 96, spills 0"]


def test_check_and_time_are_told_where_there_is_a_gpu() -> None:
    before = replace(FIRST, check="correct", max_abs=0.001, microseconds=8.8)
    now = replace(before, microseconds=7.7, against="fix6", ratio=1.6)
    assert saved_lines(now, before)[1:] == [
        "check: correct, max error 0.001",
        "time, one session: 8.80 → 7.70 µs, 1.60x of fix6",
    ]


def test_kernels_of_one_name_are_each_compared_with_one() -> None:
    two = (KERNEL, replaced(KERNEL, registers=40))
    now = replace(FIRST, kernels=two)
    assert saved_lines(now, now) == [
        "built for sm_90a: scale registers 96, spills 0; scale registers 40, spills 0"
    ]


def test_a_save_is_told_with_the_save_before(
    root: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    source = root / "kernels" / "scale" / "baseline.cu"
    asked = built_by(built(KERNEL), built(replaced(KERNEL, registers=128)), monkeypatch=monkeypatch)
    edit = lambda: source.write_text(source.read_text() + "// once more\n")  # noqa: E731
    options = WatchOptions("baseline", arch="sm_80", project=root)
    watch.rounds(options, HERE, script(nothing, edit, nothing, nothing))
    shown = capsys.readouterr()
    first, second = shown.out.splitlines()
    assert first.endswith("baseline: built for sm_80: registers 96, spills 0")
    assert second.endswith("baseline: built for sm_80: registers 96 → 128, spills 0")
    assert asked == ["sm_80", "sm_80"]
    assert "stopped" in shown.err


def seen_of(file: Path, *acts: Callable[[], object]) -> list[str]:
    """What stood in a file at every save."""
    seen = []
    with suppress(KeyboardInterrupt):
        for _ in saving.saves(lambda: [file], script(*acts)):
            seen.append(file.read_text())
    return seen


def test_a_save_in_several_steps_is_one(tmp_path: Path) -> None:
    file = tmp_path / "a.cu"
    file.write_text("0")
    writes: list[Callable[[], object]] = [partial(file.write_text, str(n)) for n in range(1, 4)]
    assert seen_of(file, *writes, nothing, nothing) == ["0", "3"]


def test_a_file_that_is_touched_or_comes_back_is_no_save(tmp_path: Path) -> None:
    file = tmp_path / "a.cu"
    file.write_text("0")
    back = (file.touch, file.unlink, lambda: file.write_text("0"), nothing, nothing)
    assert seen_of(file, *back) == ["0"]


def test_what_does_not_compile_is_told_and_the_next_save_goes_on(
    root: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    source = root / "kernels" / "scale" / "baseline.cu"
    why = "/workbench/kernels/scale/baseline.cu(2): error: expected a ;"
    failed = Failed(variant="baseline", phase=Phase.BUILD, error=ErrorText(kind="", message=why))
    built_by(built(KERNEL), failed, built(KERNEL), monkeypatch=monkeypatch)
    acts: list[Callable[[], object]] = []
    for n in range(2):
        acts += [partial(source.write_text, f"// {n}"), nothing]
    watch.rounds(WatchOptions("baseline", project=root), HERE, script(*acts))
    shown = capsys.readouterr()
    first, second, third = (line.partition(": ")[2] for line in shown.out.splitlines())
    assert first == third == "built for sm_90a: registers 96, spills 0"
    assert second.startswith("does not compile (")
    assert "kernels/scale/baseline.cu(2): error: expected a ;" in shown.err
    assert "/workbench/kernels" not in shown.err


def test_a_study_that_cannot_be_read_meanwhile_ends_nothing(
    root: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    study = root / "kernels" / "scale" / "study.py"
    text = study.read_text()
    built_by(built(KERNEL), built(KERNEL), monkeypatch=monkeypatch)
    acts = [lambda: study.write_text("shapes = ("), nothing, lambda: study.write_text(text)]
    watch.rounds(WatchOptions("baseline", project=root), HERE, script(*acts, nothing))
    shown = capsys.readouterr()
    assert "error: " in shown.err
    assert "hint: " in shown.err
    assert len(shown.out.splitlines()) == 2


def test_each_save_is_an_object_a_line(root: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    built_by(built(KERNEL, "w"), monkeypatch=monkeypatch)
    watch.rounds(WatchOptions("baseline", project=root, json=True), HERE, script())
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert found["schema_version"] == 1
    assert found["kernels"][0]["registers"] == 96
    assert found["microseconds"] is None


def test_it_really_compiles(root: Path, capsys: Capsys) -> None:
    source = root / "kernels" / "scale" / "baseline.cu"
    wider = workspaces.KERNEL.format(
        body="__shared__ float s[256]; s[threadIdx.x] = x[i];\n"
        "__syncthreads(); if (i < n) out[i] = s[255 - threadIdx.x];"
    )
    options = WatchOptions("baseline", project=root)
    watch.rounds(options, HERE, script(lambda: source.write_text(wider), nothing))
    first, second = capsys.readouterr().out.splitlines()
    assert "registers " in first
    assert "shared memory 0 → 1024 bytes" in second


@pytest.mark.parametrize(
    "arguments", [["fix99"], ["sdpa["], ["fix6", "--shape", "x"], ["fix6", "--arch", "hopper"]]
)
def test_what_is_wrong_at_the_start_ends_it(arguments: list[str], capsys: Capsys) -> None:
    assert "hint: " in error_of(capsys, "watch", *arguments)


class Measured:
    """In place of the GPU: writes what a measurement would."""

    def __init__(
        self, study: Study, config: Config, folder: EvidenceFolder, plan: Plan, *_: object
    ) -> None:
        assert config.timing == saving.QUICK
        self.study, self.folder, self.plan = study, folder, plan

    def run(self) -> Result:
        shape, names = self.plan.shape, self.plan.timed
        recorder = Recorder(self.study, shape, self.folder, list(names))
        for name in names:
            recorder.build(name, arch="sm_90a", kernels=(KERNEL,))
            recorder.check(name, shape, status=CheckResult.CORRECT, why="", max_abs=1e-3)
        times = {name: 10.0 - n for n, name in enumerate(names)}
        record_times(self, times, sessions=1)
        return Result()


def test_with_a_gpu_it_is_checked_and_timed_beside_its_parent(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    kernels = {"baseline": workspaces.GOOD, "fix1": workspaces.GOOD}
    root = workspaces.make(tmp_path / "ws", kernels)
    measured_by(monkeypatch, Measured)
    watch.rounds(WatchOptions("fix1", project=root), HERE, script())
    built_, check, time_ = capsys.readouterr().out.splitlines()
    assert built_.endswith("fix1: built for sm_90a: registers 96, spills 0")
    assert check == "  check: correct, max error 0.001"
    assert re.fullmatch(r"  time, one session: 9\.0\d µs, 1\.1\dx of baseline", time_)
    assert not list(root.glob("ablations/scale/evidence/**/*.json*"))
