"""What sessions find imported: packages of variants, unless a process could not be forked then."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from answers import Patch
from workbench.run.gpu import Gpu
from workbench.run.process import worker_environment
from workbench.run.protocol import EVENTS, PARENT, SessionsJob, decode, write_gate, write_job
from workbench.run.worker import startup
from workbench.run.worker.startup import import_ahead, is_driver_in_use
from workbench.study.front_ends import imported_by

JOB = SessionsJob(
    study="scale",
    shape="large",
    params={},
    sources={"baseline": ("baseline.py",)},
    references=(),
    controls=(),
    sessions=1,
    instances=4,
    rounds=6,
    graph_microseconds=150.0,
)
CARD = Gpu("NVIDIA H200", "580", "9.0", uuid="GPU-1")
THREAD = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""
PATCH = """
import torch
torch.cuda.Event.elapsed_time = lambda self, other: 1.0
"""
SESSION = """
import json, os, sys
from pathlib import Path
from workbench.run.worker import session_forks
def measured(self, variants, alone, sent):
    found = {name: name in sys.modules for name in ("quick", "torch._dynamo")}
    Path("found.json").write_text(json.dumps(found | {"arguments": sys.argv[2:]}))
    return session_forks.Answer(set(variants))
session_forks.Server.measured = measured
def again(python, arguments):
    assert arguments[1:3] == ["-m", session_forks.__name__]
    execv(python, [python, "session.py", *arguments[3:]])
execv, os.execv = os.execv, again
session_forks.main()
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import torch, math\nfrom workbench import cuda", ("torch",)),
        ("from flash_attn.cute import flash_attn_func", ("flash_attn.cute",)),
        ("from . import beside\nfrom .beside import f", ()),
        ("def run():\n    import triton.language as tl", ("triton.language",)),
        (
            "import torch\nrun = torch.compile(f)",
            ("torch", "torch._dynamo", "torch._inductor.compile_fx"),
        ),
        ("def run(:", ()),
    ],
)
def test_what_sources_import(tmp_path: Path, text: str, found: tuple[str, ...]) -> None:
    (tmp_path / "one.py").write_text(text)
    (tmp_path / "one.cu").write_text("import of no module")
    assert imported_by([tmp_path / "one.py", tmp_path / "one.cu"]) == found


def test_a_package_that_cannot_be_imported_is_left_to_who_wants_it(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "leaves.py").write_text("raise SystemExit(3)")
    (tmp_path / "breaks.py").write_text("1 / 0")
    (tmp_path / "goes_on.py").write_text("")
    one = tmp_path / "one.py"
    one.write_text("import leaves, breaks, not_there, goes_on")
    assert import_ahead([one])
    assert "goes_on" in sys.modules


def test_a_process_that_uses_the_driver_is_not_forked(monkeypatch: Patch) -> None:
    def driver(status: int) -> None:
        one = SimpleNamespace(cuCtxGetCurrent=lambda context: status)
        monkeypatch.setattr(ctypes, "CDLL", lambda name: one)

    driver(3)  # CUDA_ERROR_NOT_INITIALIZED
    assert not is_driver_in_use()
    assert import_ahead([])
    driver(0)
    assert is_driver_in_use()
    assert not import_ahead([])


def test_what_there_is_of_gpus_is_told_without_the_driver_and_nvml(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    """With NVML a thread starts, and a process that has one more is not forked."""
    monkeypatch.syspath_prepend(tmp_path)
    names = ("is_available", "device_count", "get_device_capability")
    asks = [f"{name} = torch.cuda.{name}\ntold_{name} = {name}()\n" for name in names]
    (tmp_path / "asks_at_once.py").write_text("import torch\n" + "".join(asks))
    own = dict(zip(names, (lambda: False, lambda: 7, lambda: (8, 0)), strict=True))
    for name, function in own.items():
        monkeypatch.setattr(torch.cuda, name, function)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    one = tmp_path / "one.py"
    one.write_text("import asks_at_once")
    assert import_ahead([one], [CARD, CARD])
    found = vars(sys.modules["asks_at_once"])
    assert [found[f"told_{name}"] for name in names] == [True, 2, (9, 0)]
    assert {name: getattr(torch.cuda, name) for name in names} == own
    # Who keeps a function gets torch's own answer as soon as the driver is in use.
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert [found[name]() for name in names] == [False, 7, (8, 0)]


def test_no_gpu_is_told_to_a_torch_without_cuda(monkeypatch: Patch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    with startup.answers_without_driver([CARD]):
        assert not torch.cuda.is_available()


@pytest.mark.parametrize(("does", "alone"), [("", False), (THREAD, True), (PATCH, True)])
def test_sessions_find_imported_what_may_be(tmp_path: Path, does: str, alone: bool) -> None:
    """With a package that starts a thread, sessions import for themselves: the thread would be
    missing in them, and what it holds be held for ever. So with one that changes torch, which they
    would take for torch's own.
    """
    packages, folder = tmp_path / "packages", tmp_path / "kernels" / JOB.study
    packages.mkdir()
    folder.mkdir(parents=True)
    (packages / "quick.py").write_text(does)
    compiles = (
        "" if alone else "\nrun = torch.compile(print)"
    )  # seconds, which one case is enough for
    (folder / "baseline.py").write_text(f"import quick, torch{compiles}")
    write_job(tmp_path / "job.json", JOB)
    write_gate(tmp_path, ["baseline"])
    path = os.pathsep.join([str(packages), worker_environment(tmp_path)["PYTHONPATH"]])
    environment = {**os.environ, "PYTHONPATH": path, PARENT: str(os.getpid())}
    (tmp_path / "session.py").write_text(SESSION)
    subprocess.run(
        [sys.executable, "session.py", "job.json"],
        cwd=tmp_path,
        env=environment,
        check=True,
        timeout=120,
    )
    found = json.loads((tmp_path / "found.json").read_text())
    events = [decode(line) for line in (tmp_path / EVENTS).read_text().splitlines()]
    assert len(events) == 2 + alone  # a greeting, and the end
    assert found == {
        "quick": not alone,
        "torch._dynamo": not alone,
        "arguments": ["--alone"] if alone else [],
    }
