"""What is compiled and imported ahead of the processes that need it."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
import torch

from answers import Capsys, Patch
from made_records import sessions_job
from workbench.cli.main import main
from workbench.cuda import compiler as nvrtc
from workbench.cuda.compiler import CUBIN_FOLDER, Compiled, Source
from workbench.run import compilation
from workbench.run.compilation import compilers, scratch_folder
from workbench.run.machine import Gpu
from workbench.run.process import worker_environment
from workbench.run.protocol import EVENTS, PARENT, decode, write_job, write_turn
from workbench.run.worker import startup
from workbench.run.worker.startup import import_ahead, is_driver_in_use
from workbench.study.front_ends import imported_by
from workbench.study.workspace import find_workspace
from workspaces import GOOD, make

JOB = sessions_job(sources={"baseline": ("baseline.py",)}, sessions=1)
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
def measured(self, variants, alone):
    found = {name: name in sys.modules for name in ("quick", "torch._dynamo")}
    Path("found.json").write_text(json.dumps(found | {"arguments": sys.argv[2:]}))
    why = session_forks.ErrorText(kind="", message="as far as it goes")
    return session_forks.Answer(dict.fromkeys(variants, why))
session_forks.Server.measured = measured
def again(python, arguments):
    assert arguments[1:3] == ["-m", "workbench.run.worker.session_forks"]
    execv(python, [python, __file__, *arguments[3:]])
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


def test_triton_hashes_itself_once_for_all_forks(monkeypatch: Patch) -> None:
    hashed: list[bool] = []
    cache = SimpleNamespace(triton_key=lambda: hashed.append(True))
    monkeypatch.setitem(sys.modules, "triton.runtime.cache", cast(ModuleType, cache))
    import_ahead([])
    assert hashed == [True]


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


@pytest.mark.slow
@pytest.mark.parametrize(("does", "alone"), [("", False), (THREAD + PATCH, True)])
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
    write_turn(tmp_path, ["baseline"])
    path = os.pathsep.join([str(packages), worker_environment(tmp_path)["PYTHONPATH"]])
    environment = {**os.environ, "PYTHONPATH": path, PARENT: str(os.getpid())}
    session = tmp_path / "site-packages" / "session.py"  # what a user's file may not do, we may
    session.parent.mkdir()
    session.write_text(SESSION)
    subprocess.run(
        [sys.executable, str(session), "job.json"],
        cwd=tmp_path,
        env=environment,
        check=True,
        timeout=120,
    )
    found = json.loads((tmp_path / "found.json").read_text())
    events = [decode(line) for line in (tmp_path / EVENTS).read_text().splitlines()]
    assert len(events) == 3 + alone  # a greeting, why it failed, and the end
    assert found == {
        "quick": not alone,
        "torch._dynamo": not alone,
        "arguments": ["--alone"] if alone else [],
    }


# ---- compilers
H200 = Gpu("NVIDIA H200", "580", "9.0")
STUDY: Any = None  # no job is really made


class Recorded:
    """A worker that is only noted."""

    made: list[Recorded]

    def __init__(self, folder: Path, job: Any, cubins: Path) -> None:
        assert (folder / "kernels" / "study.py").is_file()
        self.job, self.cubins, self.killed = job, cubins, False
        self.made.append(self)

    def kill(self) -> None:
        self.killed = True


@pytest.fixture
def made(monkeypatch: Patch, tmp_path: Path) -> list[Recorded]:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "study.py").write_text("")
    Recorded.made = []
    monkeypatch.setattr(compilation, "Worker", Recorded)
    monkeypatch.setattr(compilation, "build_job", lambda study, *share: share)
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    monkeypatch.setattr("workbench.run.machine.find_gpu", lambda: H200)
    return Recorded.made


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
def test_every_variant_is_somebodys_and_the_last_come_first(
    arch: str, made: list[Recorded], monkeypatch: Patch, tmp_path: Path
) -> None:
    """Without a GPU an architecture is said."""
    names = [f"fix{n}" for n in range(14)]
    if is_said := arch == "sm_80":
        monkeypatch.setattr("workbench.run.machine.find_gpu", lambda: None)
    with compilers(tmp_path, STUDY, names, arch if is_said else "") as number:
        assert number == len(made) == 6
        assert sorted(name for one in made for name in one.job[0]) == sorted(names)
        assert [one.job[0][0] for one in made] == names[:-7:-1]
        assert {one.job[1] for one in made} == {arch}
        assert {one.cubins for one in made} == {tmp_path}
        assert not any(one.killed for one in made)
    assert all(one.killed for one in made)


@pytest.mark.parametrize(
    ("cores", "gpu", "variants"), [(2, H200, "abcdef"), (16, None, "abcdef"), (16, H200, "ab")]
)
def test_none_where_it_would_not_pay(
    cores: int,
    gpu: Gpu | None,
    variants: str,
    made: list[Recorded],
    monkeypatch: Patch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.setattr("workbench.run.machine.find_gpu", lambda: gpu)
    with compilers(tmp_path, STUDY, list(variants)) as number:
        assert (number, made) == (0, [])


def test_a_cubin_is_whole_or_not_there(monkeypatch: Patch, tmp_path: Path) -> None:
    """Two processes may build the same kernel: neither reads what the other has half written."""
    (tmp_path / "k.cu").write_text('extern "C" __global__ void k() {}\n')
    monkeypatch.setenv(CUBIN_FOLDER, str(tmp_path / "cubins"))
    (tmp_path / "cubins").mkdir()
    seen: list[list[str]] = []
    write = Path.write_bytes

    def watched(path: Path, data: bytes) -> int:
        size = write(path, data)
        seen.append([p.suffix for p in (tmp_path / "cubins").iterdir()])
        return size

    class Code:
        code, symbol_mapping = b"cubin", {"k": b"k"}

    monkeypatch.setattr(Path, "write_bytes", watched)
    monkeypatch.setattr(Source, "_compile", lambda *_: (Compiled("sm_90a", (), ()), Code()))
    monkeypatch.setattr(nvrtc, "_restore", lambda kept: kept.suffix)
    source = Source(tmp_path / "k.cu", "k", {}, ())
    source.compile("sm_90a")
    assert seen == [[f".{os.getpid()}"]]
    assert [p.suffix for p in (tmp_path / "cubins").iterdir()] == [".json"]
    again: Any = source.compile("sm_90a")
    assert again == ".json"


def test_extensions_of_torch_are_left_to_the_worker_that_is_not_ended(
    made: list[Recorded], tmp_path: Path
) -> None:
    folder = tmp_path / "kernels" / "scale"
    folder.mkdir()
    (folder / "ext.py").write_text("from torch.utils.cpp_extension import load_inline\n")
    (folder / "tried.py").write_text('FILE = "ext.py"\n')
    with compilers(tmp_path, STUDY, ["ext", "ext[a=1]", "tried", *"abcd"]):
        assert sorted(name for one in made for name in one.job[0]) == list("abcd")


def test_links_to_nothing_in_a_study_are_left_out(tmp_path: Path, capsys: Capsys) -> None:
    """Emacs locks a file by one while it is changed. Of another file the path and reason are
    reported.
    """
    make(tmp_path, {"baseline": GOOD})
    study = find_workspace(tmp_path).study()
    (study.folder / ".#baseline.py").symlink_to("user@host.1:2")
    with scratch_folder(study) as scratch:
        copied = {path.name for path in (scratch / "kernels" / study.name).iterdir()}
    assert copied == {"baseline.cu", "baseline.py", "study.py"}
    os.mkfifo(study.folder / "pipe")
    assert main(["build", "--project", str(tmp_path)]) == 3
    assert capsys.readouterr().err == f"error: `{study.folder / 'pipe'}` is a named pipe\n"
