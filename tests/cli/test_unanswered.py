"""A verb that a user's code ends has no answer, and its exit code is never 0."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from answers import not_none, python, ran
from workspaces import GOOD, ROOT, executable, make

STUDY = "kernels/scale/study.py"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make(tmp_path, {"baseline": GOOD})


def append(root: Path, text: str) -> None:
    with (root / STUDY).open("a") as file:
        file.write(text)


def workbench(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "workbench", *words, "--project", root)


EXITS = "import os; os._exit(0)"
HELPER = "import sys; sys.path.insert(0, __file__.rpartition('/')[0]); import helper"


@pytest.mark.parametrize(
    ("verb", "ends", "why"),
    [
        ("list", "raise SystemExit", "SystemExit"),
        ("ablate", "raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("list", "import ctypes; ctypes.string_at(0)", "crashed this command: Segmentation fault"),
        ("ablate", "import os; os.abort()", "crashed this command: Aborted"),
    ],
)
def test_what_ends_the_process_has_its_file_and_line(
    verb: str, ends: str, why: str, root: Path
) -> None:
    """In ``study.py``, and in a module that it imports."""
    number = (root / STUDY).read_text().count("\n") + 1
    place = f"error: {root / STUDY}:{number}"
    if verb == "ablate":
        (root / STUDY).with_name("helper.py").write_text(f"\n{ends}\n")
        ends, place = HELPER, f"{place} (helper.py:2)"
    append(root, f"{ends}\n")
    done = workbench(root, verb)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(place)
    assert why in done.stderr
    assert "\nhint: " in done.stderr


# No handler of a signal interrupts a sum.
SECONDS = "bounds.STUDY_SECONDS = 0.1; bounds.STUDY_LAST_SECONDS = 0.9"
MEMORY = "bounds.STUDY_MEMORY = 1 << 28"
DEEP = "import sys; sys.setrecursionlimit(10**9)\n\ndeep = lambda: deep()\ndeep()\n"


@pytest.mark.parametrize(
    ("text", "line", "limits", "why"),
    [
        ("sum(range(10**15))\n", 1, SECONDS, "it takes longer than 0.1 s"),
        (DEEP, 3, MEMORY, "it takes more than 0.2 GiB of memory"),
        ("import itertools\nlist(itertools.count())\n", 2, MEMORY, "it takes more than 0.2 GiB of"),
    ],
)
def test_code_that_does_not_come_back_has_its_line(
    text: str, line: int, limits: str, why: str, root: Path
) -> None:
    number = (root / STUDY).read_text().count("\n") + line
    append(root, text)
    program = f"from workbench import bounds; {limits}; "
    program += "from workbench.__main__ import main; raise SystemExit(main())"
    done = python("-c", program, "list", "--project", root)
    assert done.returncode == 2
    assert f"{root / STUDY}:{number}: {why}" in done.stderr


@pytest.mark.parametrize("ends", [EXITS, "import os; os.execvp('true', ['true'])"])
def test_what_ends_the_process_without_an_error_has_its_file(ends: str, root: Path) -> None:
    append(root, f"{ends}\n")
    done = workbench(root, "list")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{root / STUDY} ended this command with exit code 0" in done.stderr
    assert "hint: take out what ends the process" in done.stderr


def test_a_brief_answer_has_the_error(root: Path) -> None:
    append(root, f"{EXITS}\n")
    done = workbench(root, "check", "--brief")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "usage"


def test_what_runs_at_the_end_does_not_change_the_exit_code(root: Path) -> None:
    append(root, "import atexit, os\natexit.register(lambda: os._exit(0))\n")
    done = workbench(root, "diff", "baseline", "nothing")
    assert done.returncode == 2
    assert "unknown" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_process_that_waits_ends_the_verb_in_order(
    how: signal.Signals, root: Path
) -> None:
    # In short steps: Python hears a signal between two calls, not just ahead of a long one.
    waits = "while True:\n    time.sleep(0.01)\n"
    append(root, f"import time\nprint('here', flush=True)\n{waits}")
    command = [sys.executable, "-m", "workbench", "list", "--project", str(root)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        said = not_none(running.stderr)
        assert said.readline() == "here\n"
        running.send_signal(how)
        assert running.wait() == 130
        assert "Traceback" not in said.read()


def test_the_ci_script_wants_the_result(root: Path, tmp_path: Path) -> None:
    """Whatever the command returned: a file that is missing is no passed gate."""
    (folder := tmp_path / "bin").mkdir()
    executable(folder / "workbench", "#!/bin/sh\nexit 0\n")
    path = f"{folder}:{os.environ['PATH']}"
    done = ran("bash", ROOT / "docs/ci/gate.sh", cwd=tmp_path, PATH=path, BASE="HEAD")
    assert done.returncode == 4
    assert "wrote no gate-reports/gate.md" in done.stderr
