"""Input that is too large, too deep or impossible is refused with its file and its limit; what a
killed run left goes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from answers import Capsys, Patch, error_of, text_of
from workbench import bounds
from workbench.app.executor import Reporter
from workbench.children import kill_tree, memory_of
from workbench.errors import BadCapture, EnvironmentLacks, UsageError
from workbench.evidence import store
from workbench.evidence.journal import JournalEntry
from workbench.problems import detect
from workbench.problems.problem import Request
from workbench.remote import remote_target
from workbench.run.process import Worker
from workbench.study.files import check_compressed, compressed, read_toml
from workbench.study.sources import Fingerprints
from workbench.study.workspace import find_workspace
from workspaces import CAUSAL, GOOD, make, recorded_report


@pytest.mark.parametrize("part", ["a", '"a b"', "'a.b'", '"a\\"b"', "é"])
def test_settings_are_neither_deep_nor_large(part: str, tmp_path: Path) -> None:
    """A key of 60,000 parts took 6 GB to read."""
    path = tmp_path / "workbench.toml"
    for text in ("{} = 1\n", "[{}]\n", "x = {{ {} = 1 }}\n"):
        path.write_text(text.format(" . ".join([part] * 33)))
        with pytest.raises(UsageError, match=r"workbench\.toml has a key of more than 32 parts"):
            read_toml(path)
    path.write_text("#" * (5 << 20))
    with pytest.raises(UsageError, match=r"workbench\.toml is larger than 4 MiB"):
        read_toml(path)


def test_prose_has_dots(tmp_path: Path) -> None:
    path = tmp_path / "ablation.toml"
    path.write_text(f'summary = "{"It is 1.5 times as fast. " * 100}{"." * 200}"\n')
    assert str(read_toml(path)["summary"]).count("fast") == 100


def large(path: Path) -> None:
    path.touch()
    os.truncate(path, 2 << 30)


def test_a_source_of_gigabytes_is_not_read(tmp_path: Path) -> None:
    root = make(tmp_path, {"baseline": GOOD})
    large(root / "kernels/scale/baseline.cu")
    study = find_workspace(root).study()
    with pytest.raises(UsageError, match=r"baseline\.cu is larger than 16 MiB"):
        Fingerprints(study).of_sources("baseline")


@pytest.mark.parametrize("name", ["a.cu", "a.py", "a.json"])
def test_no_endless_or_large_file_is_tried(name: str, tmp_path: Path) -> None:
    """A pipe made ``try`` wait for ever, and a file of 2 GB filled the memory."""
    path, given = tmp_path / name, () if name == "a.json" else ("x=randn(4)",)
    os.mkfifo(path)
    with pytest.raises(UsageError, match=f"{name} is no regular file"):
        detect.read_problem(Request(path, inputs=given))
    path.unlink()
    large(path)
    with pytest.raises(UsageError, match=f"{name} is larger than (16|64) MiB"):
        detect.read_problem(Request(path, inputs=given))


def test_a_header_beside_a_tried_file_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text('#include "b.cuh"\n__global__ void k(float *x) {}\n')
    large(tmp_path / "b.cuh")
    with pytest.raises(UsageError, match=r"b\.cuh is larger than 16 MiB"):
        detect.read_problem(Request(tmp_path / "a.cu", inputs=("x=randn(4)",)))


def test_a_journal_of_damage_alone_is_not_read_to_its_end() -> None:
    """Three million such lines took more than a minute."""
    began = time.process_time()
    found, notes = store.decode_lines(Path("journal.jsonl"), b"{}\n" * 500_000, JournalEntry)
    assert time.process_time() - began < 5
    assert (found, len(notes)) == ([], bounds.BAD_LINES + 1)
    assert notes[-1] == "journal.jsonl is not read from line 1001 on: too many are damaged"


def test_a_report_of_empty_frames_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.ncu-repz"
    path.write_bytes(compressed(b"") * (bounds.FRAMES + 1))
    with pytest.raises(BadCapture, match="more than 100000 frames"):
        check_compressed(path)


def test_tls_without_certificates_is_refused_at_once() -> None:
    pytest.importorskip("distributed")
    with pytest.raises(EnvironmentLacks, match="needs certificates"):
        remote_target.DaskCluster("tls://127.0.0.1:1", Reporter()).client()


def test_a_report_whose_path_is_not_utf8_is_read(tmp_path: Path, capsys: Capsys) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.ncu-repz"))
    shutil.copy(recorded_report(CAUSAL, "fix10"), path)
    assert "udcff.ncu-repz" in text_of(capsys, "show", path, "--launch", "0", "--source")


def test_a_folder_that_was_deleted_is_named(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setenv("PWD", str(gone))
    gone.rmdir()
    for verb in ("list", "init"):
        assert f"the folder {gone} was deleted" in error_of(capsys, verb, code=3)


def test_the_memory_of_a_session_is_that_of_its_worker() -> None:
    """Sessions are forks, and run what is judged."""
    text = "import os, time; os.fork() or (x := b'x' * (1 << 28)); print(1, flush=True); "
    command = [sys.executable, "-c", f"{text}time.sleep(600)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"1\n"] * 2
        worker = Worker.__new__(Worker)
        worker.process, worker.events = process, []
        assert memory_of(process.pid) < 1 << 28 < worker.memory()[0]
        kill_tree(process.pid)


HOARD = """\
import time
def f(x, kept=[]):
    while True:
        kept.append((time.sleep(0.02), b'x' * (1 << 24)))
"""


@pytest.mark.slow
def test_a_tried_file_that_fills_the_memory_is_stopped_with_its_line(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.setattr("workbench.run.process.memory_of_a_worker", lambda: 3 << 28)
    monkeypatch.setattr("property_cases.MOST_BYTES", 4 << 30)  # it grows until somebody looks
    (tmp_path / "a.py").write_text(HOARD)
    given = ("--input", "x=randn(8)", "--vs", "torch.relu")
    told = error_of(capsys, "try", tmp_path / "a.py", *given, code=1)
    assert "it takes more than 0.8 GiB of memory (a.py:4)" in told
