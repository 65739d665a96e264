"""A verb that a user's code ends has no answer, and its exit code is never 0."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from answers import Capsys, error_of
from workspaces import GOOD, ROOT, make

STUDY = "kernels/scale/study.py"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make(tmp_path, {"baseline": GOOD})


def append(root: Path, text: str) -> None:
    with (root / STUDY).open("a") as file:
        file.write(text)


def workbench(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "workbench", *words, "--project", str(root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("verb", ["list", "ablate"])
@pytest.mark.parametrize(
    "ends",
    [
        "import posix; posix._exit(0)",
        "import ctypes; ctypes.CDLL(None)._exit(0)",
        "import os; os.execv('/bin/true', ['true'])",
        "import posix; posix._exit(3)",
    ],
)
def test_what_ends_the_process_is_named(ends: str, verb: str, root: Path) -> None:
    append(root, f"{ends}\n")
    done = workbench(root, verb)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{root / STUDY} ended this command with exit code" in done.stderr
    assert "hint: take out what ends the process" in done.stderr


def test_a_brief_answer_has_the_error(root: Path) -> None:
    append(root, "import posix; posix._exit(0)\n")
    done = workbench(root, "check", "--brief")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "usage"


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ("import os; os._exit(0)", "SystemExit: 0"),
        ("raise SystemExit", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ],
)
def test_what_python_can_refuse_has_its_line(
    ends: str, why: str, root: Path, capsys: Capsys
) -> None:
    """Also in the library, which has no process that waits."""
    number = (root / STUDY).read_text().count("\n") + 1
    append(root, f"{ends}\n")
    told = error_of(capsys, "list", project=root, code=2)
    assert f"study.py:{number} could not be imported: {why}" in told


def test_what_runs_at_the_end_does_not_change_the_exit_code(root: Path) -> None:
    append(root, "import atexit, os\natexit.register(lambda: os._exit(0))\n")
    done = workbench(root, "diff", "baseline", "nothing")
    assert done.returncode == 2
    assert "unknown" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_process_that_waits_ends_the_verb_in_order(
    how: signal.Signals, root: Path
) -> None:
    append(root, "import time\nprint('here', flush=True)\ntime.sleep(20)\n")
    command = [sys.executable, "-m", "workbench", "list", "--project", str(root)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "here\n"
        began = time.monotonic()
        running.send_signal(how)
        assert running.wait(15) == 130
        assert time.monotonic() - began < 10
        assert "Traceback" not in running.stderr.read()


def test_a_verb_dies_with_its_server(root: Path) -> None:
    """The server is killed: nothing may hold the GPU for nobody."""
    append(root, "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(20)\n")
    server = (
        "import os, subprocess, sys\n"
        "from workbench.answered import SERVER\n"
        "subprocess.run(sys.argv[1:], env={**os.environ, SERVER: str(os.getpid())})\n"
    )
    command = [sys.executable, "-m", "workbench", "list", "--project", str(root)]
    served = [sys.executable, "-c", server, *command]
    with subprocess.Popen(served, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        verb = Path("/proc", running.stderr.readline().strip())
        assert verb.is_dir()
        running.kill()
        last = time.monotonic() + 10
        while verb.is_dir() and time.monotonic() < last:
            time.sleep(0.05)
        assert not verb.is_dir()


def test_the_ci_script_wants_the_result(root: Path, tmp_path: Path) -> None:
    """Whatever the command returned: a file that is missing is no passed gate."""
    (folder := tmp_path / "bin").mkdir()
    (folder / "workbench").write_text("#!/bin/sh\nexit 0\n")
    (folder / "workbench").chmod(0o755)
    done = subprocess.run(
        ["bash", ROOT / "docs/ci/gate.sh"],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "BASE": "HEAD"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    assert "wrote no gate-reports/gate.xml" in done.stderr
