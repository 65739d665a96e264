"""What is compiled and imported ahead of the processes that need it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from answers import Capsys, Patch
from workbench.cli.main import main
from workbench.cuda import compiler as nvrtc
from workbench.cuda.compiler import CUBIN_FOLDER, Compiled, Source
from workbench.run import compilation
from workbench.run.compilation import compilers, scratch_folder
from workbench.run.gpu import Gpu
from workbench.run.worker import startup
from workbench.study.front_ends import imported_by
from workbench.study.workspace import find_workspace
from workspaces import GOOD, make


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


def test_what_is_imported_ahead_of_a_fork(tmp_path: Path, monkeypatch: Patch) -> None:
    """What others do when they are imported, nobody knows: start a thread, or use the GPU."""
    assert startup.AHEAD == ("torch", "triton")
    monkeypatch.setattr(startup, "AHEAD", ("quick",))
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "quick").mkdir()
    (tmp_path / "quick" / "__init__.py").write_text("")
    (tmp_path / "quick" / "breaks.py").write_text("1 / 0")
    (tmp_path / "quick" / "language.py").write_text("print('as a library may')")
    (tmp_path / "theirs.py").write_text("raise SystemExit(3)")
    source = tmp_path / "one.py"
    source.write_text("import theirs, quick.breaks, quick.language")
    startup.import_ahead([source])
    assert "quick.language" in sys.modules


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
