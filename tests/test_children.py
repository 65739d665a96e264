"""Everything that a command starts ends with it, whatever ended it, and so do its folders."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from answers import Patch, not_none
from workbench import children
from workbench.cuda.compiler import ran
from workspaces import GOOD, make

SECONDS = 120.0  # at most; a busy machine takes its time
MARK = "WORKBENCH_TEST_MARK"
# A child that leaves processes of four kinds behind: one of its own, one in a session of its own,
# one that its parent has left, and one that SIGTERM does not end. It says when all have begun.
COMMAND = """
import os, signal, subprocess, sys, time
from pathlib import Path
from workbench import children

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup would have ignored

if (status := children.kept()) is not None:
    sys.exit(children.end_like(status))
children.unblock()
with children.temporary_folder() as folder:
    sleep, stubborn = f"echo > {folder}/$$; sleep 600", "trap '' TERM; "
    subprocess.Popen(["sh", "-c", sleep])
    subprocess.Popen(["sh", "-c", sleep], start_new_session=True)
    subprocess.run(["sh", "-c", f"setsid sh -c '{sleep}' &"])
    subprocess.Popen(["sh", "-c", stubborn + sleep], start_new_session=True)
    while len(os.listdir(folder)) < 4:
        time.sleep(0.01)
    print(os.getppid(), os.getpid(), folder, flush=True)
    time.sleep(float(sys.argv[1]))
"""


def marked(mark: str) -> set[int]:
    """The processes that have the mark in their environment, and run."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found.add(int(folder.name))
    return found


def until(condition: Callable[[], object]) -> bool:
    last = time.monotonic() + SECONDS
    while not condition() and time.monotonic() < last:
        time.sleep(0.02)
    return bool(condition())


@pytest.mark.parametrize(
    ("who", "how"),
    [
        ("", None),
        *((who, signal.SIGKILL) for who in ("waiting", "supervisor", "child", "group")),
        ("waiting", signal.SIGTERM),
    ],
)
def test_nothing_outlives_a_command(who: str, how: signal.Signals | None) -> None:
    mark = uuid.uuid4().hex
    command = [sys.executable, "-c", COMMAND, "600" if who else "0"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, MARK: mark},
        start_new_session=True,
    ) as started:
        supervisor, child, name = not_none(started.stdout).readline().split()
        folder = Path(name)
        if who:
            assert folder.is_dir()
            assert len(marked(mark)) >= 7
        if how is not None:
            ids = {"waiting": started.pid, "supervisor": int(supervisor), "child": int(child)}
            os.killpg(started.pid, how) if who == "group" else os.kill(ids[who], how)
        code = started.wait(SECONDS)
    assert until(lambda: not marked(mark)), marked(mark)
    assert until(lambda: not folder.exists())
    assert (code == 0) == (how is None)


def test_a_worker_takes_those_in_other_sessions_along() -> None:
    mark = uuid.uuid4().hex
    sleeps = "setsid sleep 600 & setsid sh -c 'setsid sleep 600; true' & wait"
    process = subprocess.Popen(
        ["sh", "-c", sleeps], env={**os.environ, MARK: mark}, start_new_session=True
    )
    assert until(lambda: len(marked(mark)) >= 4)
    children.kill_tree(process.pid)
    assert children.exit_code(process) == -signal.SIGKILL
    assert until(lambda: not marked(mark)), marked(mark)


def test_a_lock_that_an_interrupt_left_locked_stops_nobody(monkeypatch: Patch) -> None:
    """Popen's own ``wait`` would never return."""

    class Locked(subprocess.Popen[bytes]):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self._waitpid_lock.acquire()  # type: ignore[attr-defined]

    monkeypatch.setattr(subprocess, "Popen", Locked)
    process = subprocess.Popen(["sleep", "600"])
    assert children.exit_code(process, 0.0) is None
    os.kill(process.pid, signal.SIGKILL)
    assert children.exit_code(process) == -signal.SIGKILL
    assert process.wait() == -signal.SIGKILL
    assert ran(["sh", "-c", "echo a; exit 3"], "/") == (3, "a\n")
    assert ran(["sleep", "600"], "/", 0.1) == (None, "sleep timed out after 0.1 seconds")
    with subprocess.Popen(["sh", "-c", "exit 3"]) as other:
        assert children.exit_code(other, SECONDS) == 3


def test_children_are_waited_for_in_one_place() -> None:
    """But by what runs without a workbench, or forks by itself."""
    itself = re.compile(
        r"subprocess\.(run|call|check_)|\.communicate\(|process\.wait\(|os\.wait(?!status)"
    )
    engine = Path(children.__file__).parent
    found = {path.name for path in engine.rglob("*.py") if itself.search(path.read_text())}
    forks = {"forking_worker.py", "session_forks.py", "referee.py"}
    assert found == {"children.py", "bootstrap.py", *forks}
    assert not re.search(
        r"subprocess\.run|\.wait\(\)", (engine / "remote/bootstrap.py").read_text()
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, None])
def test_a_verb_ends_with_the_server_that_runs_it(
    how: signal.Signals | None, tmp_path: Path
) -> None:
    """However the server ends, by a signal or by the end of its stdin: the verb hangs."""
    root, mark = make(tmp_path, {"baseline": GOOD}), uuid.uuid4().hex
    begun = tmp_path / "begun"
    with (root / "kernels/scale/study.py").open("a") as file:
        file.write(f"import time\nopen({str(begun)!r}, 'w').close()\ntime.sleep(600)\n")
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
    hello |= {"clientInfo": {"name": "a", "version": "1"}}
    call = {"name": "step", "arguments": {"name": "baseline"}}
    with subprocess.Popen(
        [sys.executable, "-m", "workbench", "mcp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=root,
        env={**os.environ, MARK: mark},
    ) as server:
        stdin, stdout = not_none(server.stdin), not_none(server.stdout)

        def send(**message: object) -> None:
            print(json.dumps({"jsonrpc": "2.0", **message}), file=stdin, flush=True)

        send(id=1, method="initialize", params=hello)
        stdout.readline()
        send(method="notifications/initialized")
        send(id=2, method="tools/call", params=call)
        assert until(begun.exists)
        assert len(marked(mark)) >= 6
        server.send_signal(how) if how is not None else stdin.close()
        server.wait(SECONDS)
    assert until(lambda: not marked(mark)), marked(mark)


def test_what_a_child_leaves_behind_is_ended_and_no_other() -> None:
    if worker := os.fork():
        assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 0
        return
    try:  # this process adopts until its end
        earlier, here = sleeping(), os.getpid()
        children.adopt()
        ours, theirs = os.pipe()
        if (child := os.fork()) == 0:
            os.write(theirs, b"%d" % sleeping())
            os._exit(0)
        os.waitpid(child, 0)
        stray, kept = int(os.read(ours, 20)), sleeping()
        children.end_strays([kept])
        assert children._parents().get(stray) is None
        assert {children._parents()[pid] for pid in (earlier, kept)} == {here}
        for pid in (earlier, kept):
            os.kill(pid, signal.SIGKILL)
        os._exit(0)
    finally:
        os._exit(1)


def sleeping() -> int:
    """Fork a process that is there for a minute."""
    if (pid := os.fork()) == 0:
        time.sleep(60)
        os._exit(0)
    return pid
