"""``workbench calibrate`` without a GPU: its kernels are compiled, its workers are scripted."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec import structs

import standin
from answers import Capsys, Patch, both_of
from workbench.cli.main import main
from workbench.errors import EnvironmentLacks, ToolFailed
from workbench.evidence import store
from workbench.evidence.records import CeilingsFile, Environment
from workbench.evidence.store import EvidenceFolder
from workbench.run import machine, side_jobs
from workbench.run.gpu import Gpu
from workbench.run.process import WorkerEnd
from workbench.run.protocol import (
    Broken,
    CeilingFailed,
    CeilingMeasured,
    CeilingsJob,
    DeviceFound,
    Done,
    ErrorText,
    Event,
)
from workbench.run.worker.benchmarks import BENCHMARKS, Bench, warm_up
from workspaces import FIXTURE, GOOD, ROOT, make

CEILINGS = ROOT / "profiler" / "workbench" / "run" / "worker" / "ceilings"
ENVIRONMENT = DeviceFound(environment=Environment(gpu="NVIDIA H200", driver="580"))
CEILING = structs.replace(standin.ceiling(19), best=2e13, ran="scripted")


def ceiling(name: str) -> CeilingMeasured:
    return CeilingMeasured(id=name, ceiling=CEILING)


def failed(name: str, why: str) -> CeilingFailed:
    return CeilingFailed(id=name, error=ErrorText(kind="RuntimeError", message=why))


# ---- kernels ---------------------------------------------------------------------------------
class Launch:
    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def __getitem__(self, where: tuple[Any, ...]) -> Callable[..., None]:
        return lambda *args: self.seen.append((where, args))


def bench(capability: tuple[int, int], kernel: Any = None) -> Any:
    """All that the benchmarks ask of a GPU but running on it."""
    found: Any = object.__new__(Bench)
    found.properties = SimpleNamespace(L2_cache_size=60 * 2**20)
    found.sms, found.capability = 132, capability
    found.clocks = found.sink = torch.zeros(2)
    found.buffer = torch.zeros(2**20, dtype=torch.int64)
    if kernel is not None:
        found.kernel = kernel
    return found


@pytest.mark.parametrize(
    ("arch", "capability", "lacks"),
    [("sm_90a", (9, 0), set()), ("sm_80", (8, 0), {"tensor fp8"}), ("sm_89", (8, 9), set())],
)
def test_kernels_compile_without_warnings_and_spills(
    arch: str, capability: tuple[int, int], lacks: set[str]
) -> None:
    kernels: dict[Any, Any] = {}

    def kernel(*args: Any, **defines: Any) -> Any:
        made = Bench.kernel(found, *args, **defines)
        return kernels.setdefault((made.source.path, str(made.source.defines)), made)

    found = bench(capability, kernel)
    missing = set()
    for name, settings in BENCHMARKS.items():
        try:
            assert settings(found)
        except EnvironmentLacks:
            missing.add(name)
    assert missing == lacks
    assert {path.name for path, _ in kernels} == {"memory.cu", "arithmetic.cu", "tensor.cu"}
    for made in kernels.values():
        report, _ = made.compile(arch)
        assert report.warnings == ()
        for build in report.kernels:
            assert build.stack_bytes == build.spill_store_bytes == build.spill_load_bytes == 0


def test_every_launch_has_the_arguments_of_its_kernel() -> None:
    source = "".join(path.read_text() for path in CEILINGS.glob("*.cu"))
    signatures = {
        name: {text.count(",") + 1 for text in re.findall(rf"\n{name}\(([^)]*)\)", source)}
        for name in re.findall(r"\n(\w+)\((?:const|float|double|unsigned|int) ", source)
    }
    assert len(signatures) == 9
    for capability in ((9, 0), (8, 9)):
        launches: list[tuple[str, Launch]] = []

        def kernel(
            file: str, name: str, into: list[tuple[str, Launch]] = launches, **defines: Any
        ) -> Launch:
            into.append((name, Launch()))
            return into[-1][1]

        for settings in BENCHMARKS.values():
            for setting in settings(bench(capability, kernel)):
                assert setting.work > 0
                setting.launch(3)
        for name, launch in launches:
            assert launch.seen
            assert {len(args) for _, args in launch.seen} == signatures[name]


def test_the_work_of_a_launch_by_hand() -> None:
    found = bench((9, 0), lambda *args, **defines: Launch())
    work = {name: settings(found)[0].work for name, settings in BENCHMARKS.items()}
    assert work["fp32"] == 132 * 512 * 8 * 64 * 2
    assert work["half"] == 2 * work["fp32"]
    # Two warpgroups of 16 wgmma of 64 x 256 x 16, two operations each.
    assert work["tensor fp16"] == 132 * 2 * 16 * 64 * 256 * 16 * 2
    assert work["tensor fp8"] == 2 * work["tensor fp16"] == 4 * work["tensor tf32"]
    assert work["l1"] == 132 * 4 * 512 * 16
    assert work["dram"] == 2**23
    found.capability = (8, 0)
    # 16 warps, 8 turns of 8 tiles of 16 x 8 x 16
    assert BENCHMARKS["tensor bf16"](found)[0].work == 132 * 16 * 8 * 8 * 16 * 8 * 16 * 2


# ---- warming up --------------------------------------------------------------------------------
class Card:
    """Rates of rounds of 8 ms, one after another, and a clock that they take along."""

    def __init__(self, rate: Callable[[float], float]) -> None:
        self.rate, self.seconds = rate, 0.0

    def round(self) -> float:
        self.seconds += 0.008
        return self.rate(self.seconds)

    def warmed_up(self) -> list[float]:
        return warm_up(self.round, lambda: self.seconds)


def test_a_card_that_lowers_its_clock_is_measured_only_after_it_did() -> None:
    """Its first rounds agree as well, at a clock that does not last."""
    card = Card(lambda seconds: 1.0 if seconds < 0.2 else max(0.9, 1.2 - seconds))
    assert card.warmed_up()[-8:] == [0.9] * 8
    assert 0.4 <= card.seconds < 0.5


def test_a_steady_card_is_warm_after_less_than_half_a_second() -> None:
    card = Card(lambda seconds: 1.0)
    card.warmed_up()
    assert card.seconds == pytest.approx(0.408, abs=0.01)


def test_a_card_that_is_never_steady_is_waited_for_no_longer_than_a_second() -> None:
    card = Card(lambda seconds: 1 + round(seconds / 0.008) % 2)
    card.warmed_up()
    assert card.seconds == pytest.approx(1.0, abs=0.01)


# ---- the parent ------------------------------------------------------------------------------
class Scripted:
    """Workers that do what their scripts say, one after another."""

    def __init__(self, *scripts: WorkerEnd) -> None:
        self.scripts, self.asked = list(scripts), list[list[str]]()

    def __call__(self, scratch: Path, job: CeilingsJob) -> Scripted:
        self.asked.append(list(job.ceilings))
        return self

    def watch(self, limit: float, on_event: Callable[[Event], None]) -> WorkerEnd:
        outcome = self.scripts.pop(0)
        for event in outcome.events:
            on_event(event)
        return outcome


def ended(*events: Event, **how: Any) -> WorkerEnd:
    return WorkerEnd(events=list(events), returncode=1, **how)


Play = Callable[..., tuple[EvidenceFolder, Scripted]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: Patch) -> Play:
    folder = EvidenceFolder(tmp_path / "nvidia-h200")

    def run(*scripts: WorkerEnd) -> tuple[EvidenceFolder, Scripted]:
        scripted = Scripted(*scripts)
        monkeypatch.setattr(side_jobs, "Worker", scripted)
        side_jobs.calibrate(folder, lambda event: None)
        return folder, scripted

    return run


def test_a_benchmark_that_fails_crashes_or_hangs_costs_only_itself(play: Play) -> None:
    names = list(side_jobs.CEILINGS)
    folder, scripted = play(
        ended(ENVIRONMENT, ceiling("dram"), failed("l2", "no L2"), current="l1"),
        ended(ENVIRONMENT, ceiling("fp32"), current="fp64", silent_for=60.0),
        ended(ENVIRONMENT, *map(ceiling, names[5:]), Done()),
    )
    assert scripted.asked == [names, names[3:], names[5:]]
    found = store.read_record(folder.ceilings, CeilingsFile)
    assert set(found.ceilings) == {"dram", "fp32", *names[5:]}
    assert found.not_collected == {
        "l2": "no L2",
        "l1": "crashed its process (exit 1)",
        "fp64": "hangs: nothing came for 60 s",
    }
    assert found.provenance.gpu == "NVIDIA H200"
    assert found.provenance.date


def test_a_lost_context_goes_on_with_the_rest(play: Play) -> None:
    names = list(side_jobs.CEILINGS)
    lost = failed("dram", "illegal address")
    _, scripted = play(ended(lost), ended(*map(ceiling, names[1:]), Done()))
    assert scripted.asked == [names, names[1:]]


def test_what_is_on_record_stays_when_nothing_new_is_complete(play: Play) -> None:
    names = list(side_jobs.CEILINGS)
    folder, _ = play(ended(*map(ceiling, names), Done()))
    before = folder.ceilings.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        play(ended(ceiling("dram"), interrupted=True))
    every = [failed(name, "broken") for name in names]
    with pytest.raises(ToolFailed, match="no ceiling could be measured: broken"):
        play(ended(*every, Done()))
    with pytest.raises(ToolFailed, match="did not start: no driver"):
        play(ended(Broken(error=ErrorText(kind="RuntimeError", message="no driver"))))
    assert folder.ceilings.read_bytes() == before


def test_without_a_gpu_it_says_so(monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setattr(machine, "find_gpu", lambda: None)
    out, err = both_of(capsys, "calibrate", project=FIXTURE, code=3)
    assert out == ""
    assert "error: no NVIDIA GPU was found" in err
    assert "hint: ceilings are measured on the GPU itself" in err


def test_without_the_packages_it_says_so(monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setattr(machine, "find_gpu", lambda: Gpu("NVIDIA H200", "580", "9.0"))
    monkeypatch.setattr(machine, "missing_packages", lambda: ["torch", "nvidia-ml-py"])
    assert main(["calibrate", "--project", str(FIXTURE)]) == 3
    assert "Python packages are missing: torch\n" in capsys.readouterr().err


def test_it_writes_and_shows_what_was_measured(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    root = make(tmp_path, {"baseline": GOOD})
    monkeypatch.setattr(machine, "find_gpu", lambda: Gpu("NVIDIA H200", "580", "9.0"))
    monkeypatch.setattr(machine, "missing_packages", list)
    found = map(ceiling, side_jobs.CEILINGS[:-1])
    last = failed(side_jobs.CEILINGS[-1], "no FP8 here")
    monkeypatch.setattr(side_jobs, "Worker", Scripted(ended(ENVIRONMENT, *found, last, Done())))
    out, err = both_of(capsys, "calibrate", project=root)
    assert "| FP32 " in out
    assert "19.0 TFLOP/s" in out
    assert "no FP8 here" in out
    assert "no capture of this GPU is recorded" in err
    path = root / "ablations" / "scale" / "evidence" / "nvidia-h200" / "ceilings.json"
    assert store.read_record(path, CeilingsFile).ceilings["fp32"].value == 1.9e13
