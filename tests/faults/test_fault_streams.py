"""Standard streams that are closed, full, cut short or of another encoding; users' files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from answers import Capsys, Patch, both_of, error_of, json_of
from faults.programs import program
from property_cases import examples
from workbench.app import show
from workbench.cli.main import main
from workbench.derive.matching import match
from workbench.run.machine import Gpu
from workspaces import CAUSAL, ROOT, copy_of_fixture, recorded_report

BENCH = f"{sys.executable} -m workbench"
REPORT = recorded_report(CAUSAL, "fix10")
BUILT_IN = "no workbench.toml here: built-in stud"  # y, or ies


def ended(
    here: Path, command: Sequence[str], stdout: int = subprocess.PIPE, /, **variables: str
) -> subprocess.CompletedProcess[str]:
    """With nothing in the environment but these variables and where programs are."""
    return subprocess.run(
        command,
        cwd=here,
        env={"PYTHONPATH": str(ROOT / "profiler"), "PATH": os.environ["PATH"], **variables},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        timeout=100,
        check=False,
    )


def shell(command: str, here: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    line = command.replace("workbench ", f"{BENCH} ", 1)
    return ended(here, ["bash", "-o", "pipefail", "-c", line], **variables)


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a small study alone."""
    return copy_of_fixture(tmp_path_factory.mktemp("ladder"), "transpose")


@pytest.mark.parametrize("verb", ["--help", "list --json", "ablate tiled"])
def test_a_reader_that_leaves_ends_it_with_141(verb: str, ladder: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = ended(ladder, [*BENCH.split(), *verb.split()], write)
    os.close(write)
    assert done.returncode == 141, done.stderr
    assert not [word for word in ("Traceback", "Broken") if word in done.stderr]


@pytest.mark.parametrize(
    ("verb", "variables"),
    [
        ("ablate tiled", {"PYTHONIOENCODING": "ascii"}),
        ("diff tiled padded --source", {"PYTHONIOENCODING": "latin-1:strict"}),
        ("report tiled", {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}),
    ],
    ids=["ascii", "latin-1", "C"],
)
def test_no_encoding_stops_a_verb(verb: str, variables: dict[str, str], ladder: Path) -> None:
    shutil.rmtree(ladder / "reports", ignore_errors=True)
    done = shell(f"workbench {verb}", ladder, **variables)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    plain = ladder / "reports/transpose/tiled/OPTIMIZATION_REPORT.md"
    assert verb[0] != "r" or "µs" in plain.read_text(encoding="utf-8")


def test_json_stays_json_without_a_stderr(ladder: Path) -> None:
    done = shell("workbench ablate tiled --json 2>&-", ladder)
    assert done.returncode == 0
    assert json.loads(done.stdout)["study"] == "transpose"


def test_closed_streams_are_no_fault(ladder: Path) -> None:
    assert shell("workbench ablate tiled >&-", ladder).returncode == 0
    assert shell("workbench list <&- >&- 2>&-", ladder).returncode == 0


@pytest.mark.parametrize("stderr", ["2>&-", "2</dev/null", "2>/dev/full", ">&- 2>&-"])
def test_what_stderr_cannot_take_changes_no_exit_code(stderr: str, ladder: Path) -> None:
    """Nor does a wrapper script, whose text may be stderr to what it starts."""
    assert shell(f"workbench show nonsense {stderr}", ladder).returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_stdout_is_said(tmp_path: Path) -> None:
    done = shell("workbench list > /dev/full", tmp_path)
    assert done.returncode == 3
    assert "error: the output could not be written: No space left" in done.stderr
    assert "Exception ignored" not in done.stderr


def test_reports_without_a_common_kernel_end_alike(monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setattr(show, "match", lambda before, _: match(before, ()))
    command = ["diff", str(REPORT), str(REPORT)]
    assert main(command) == main([*command, "--json"]) == 2
    told = capsys.readouterr()
    assert told.err.count("no kernel of one report matches one of the other") == 2
    assert json.loads(told.out[told.out.index("{") :])["kernels"] == []


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_outside_a_workspace_users_files_are_kept(outside: Path, capsys: Capsys) -> None:
    for name in ("OPTIMIZATION_REPORT.md", "report.html", "roofline-dark.svg"):
        (outside / name).write_text("mine")
    assert error_of(capsys, "report", "fix1", code=0).count(BUILT_IN) == 1
    assert {p.read_text() for p in outside.iterdir() if p.is_file()} == {"mine"}
    written = outside / "workbench-reports" / "attention" / "fix1"
    assert (written / "OPTIMIZATION_REPORT.md").is_file()
    assert main(["report", "fix1"]) == 0  # its own files may be written again
    shutil.rmtree(written)
    written.mkdir()
    (written / "roofline-dark.svg").write_text("mine")
    told = error_of(capsys, "report", "fix1")
    assert f"{written} was not written by the workbench" in told
    assert (written / "roofline-dark.svg").read_text() == "mine"


def test_a_folder_that_takes_nothing_costs_only_the_report(outside: Path, capsys: Capsys) -> None:
    (copy_of_fixture(outside) / "reports").write_text("a file where a folder is wanted")
    told = both_of(capsys, "ablate", "fix1", code=3)
    assert "| fix1" in told.out
    assert "error: no report could be written to reports/attention/fix1" in told.err
    assert "is the folder writable" not in told.err
    assert json_of(capsys, "ablate", "fix1", code=3)["study"] == "attention"


def test_outside_a_workspace_nothing_is_written_but_where_it_is_asked_for(
    outside: Path, capsys: Capsys
) -> None:
    first, *_, last = error_of(capsys, "ablate", "fix1", code=0).splitlines()
    assert BUILT_IN in first
    assert "`workbench report` writes workbench-reports/attention/fix1" in last
    assert list(outside.iterdir()) == []


def test_what_is_measured_outside_a_workspace_says_where_it_goes(
    outside: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("workbench.run.machine.can_measure", lambda: True)
    monkeypatch.setattr("workbench.run.machine.find_gpu", lambda: Gpu("NVIDIA H200", "1", "9.0"))
    first = error_of(capsys, "list", code=0).splitlines()[0]
    assert "what is measured goes to workbench-evidence" in first


@pytest.mark.parametrize("number", [1, 2, *range(3, 150, 70 if examples(1) == 1 else 1)])
def test_ctrl_c_while_it_imports_is_no_traceback(number: int, ladder: Path) -> None:
    words = [program("interrupts"), str(number), "ablate", "tiled"]
    done = ended(ladder, [sys.executable, "-c", *words])
    assert done.returncode in (0, 130)
    assert "Traceback" not in done.stderr
