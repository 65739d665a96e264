"""Starts a worker, and becomes one. ssh and Dask send the text of this file to a machine without a
workbench. ``exchange`` talks to a worker, and ``run`` does so on a Dask cluster. ``main`` unpacks
the workbench into the user's cache, finds or makes an environment for it, and is the worker then.

stdin brings the workbench and a job. If stdin ends, nobody wants the result any more, and the
worker stops as at Ctrl-C. stdout is the result. stderr has an event a line, among other output.
"""

import fcntl
import hashlib
import importlib.metadata
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import venv
import warnings
import zipfile
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

NOTE = "workbench: "  # before a line for the user
HELLO = "workbench:"  # the first line, before anything takes long
NO_PACKAGES, SILENT = 98, 96  # exit codes where pip fails, and where no line came
FIRST_SECONDS = 120.0  # for the first line: ssh itself notices a connection that ends later
KEPT_SECONDS = 7 * 86400.0  # for other versions of the workbench
LONGEST_LINE = 1 << 26  # bytes of an event: a session of many variants
MAX_BYTES = 1 << 30  # of a zip, and of all files in it
POLL_SECONDS = 0.2
LISTEN_SECONDS = 10.0  # for the last lines: whatever ssh has started may keep its stderr open
STOP_SECONDS = 60.0  # for ncu to write its report
END_SECONDS = STOP_SECONDS + 15.0  # for the result of a stopped worker to arrive
WANTED = ("executing", "long-running", "resumed")  # states of a Dask task that is not cancelled


def exchange(
    command: Sequence[str],
    data: bytes,
    take: Callable[[str], bool] = lambda line: False,
    is_wanted: Callable[[], bool] = lambda: True,
) -> tuple[bytes, int, str]:
    """Send ``data`` to a worker. Return its result, or b"", its exit code, and the last lines that
    it printed and ``take`` did not.

    After Ctrl-C, or when the job is not wanted any more, the result is what was finished. A second
    Ctrl-C kills the worker, and so does one before the job was sent: nothing is measured then.
    """
    lines: deque[str] = deque(maxlen=20)
    heard, silent = threading.Event(), threading.Event()
    with tempfile.TemporaryFile() as out:  # a buffer of this process might lose data at Ctrl-C
        process = subprocess.Popen(
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process, which ends the worker in order
        )
        assert process.stdin is not None

        def give_up() -> None:
            if not heard.wait(FIRST_SECONDS):
                silent.set()
                os.kill(process.pid, signal.SIGKILL)

        arguments = process.stderr, take, lines, heard
        listener = threading.Thread(target=listen, args=arguments, daemon=True)
        listener.start()
        threading.Thread(target=give_up, daemon=True).start()
        try:
            with process.stdin as stdin, suppress(OSError):  # it has ended, and says why
                left = memoryview(data)
                while left:
                    left = left[stdin.write(left) :]
                with suppress(KeyboardInterrupt):
                    while not has_ended(process.pid) and is_wanted():
                        time.sleep(POLL_SECONDS)
            last = time.monotonic() + END_SECONDS
            while not has_ended(process.pid) and time.monotonic() < last:
                time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            pass
        heard.set()
        code = killed(process)
        listener.join(LISTEN_SECONDS)
        result = out.read(MAX_BYTES) if zipfile.is_zipfile(out) and not out.seek(0) else b""
    return result, SILENT if silent.is_set() else code, "\n".join(lines)


def has_ended(pid: int) -> bool:
    """Popen would take a lock, which Ctrl-C may leave locked (see ``children.exit_code``)."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def killed(process: subprocess.Popen[bytes]) -> int:
    """Kill a child that may have ended, and return its exit code."""
    os.kill(process.pid, signal.SIGKILL)
    process.returncode = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
    return process.returncode


def listen(
    stderr: io.RawIOBase, take: Callable[[str], bool], lines: deque[str], heard: threading.Event
) -> None:
    with io.BufferedReader(stderr) as pipe:
        while line := pipe.readline(LONGEST_LINE):
            heard.set()
            text = line.decode(errors="replace").rstrip()
            if text not in ("", HELLO) and not take(text):
                lines.append(text)


def run(program: str, data: bytes) -> bytes:
    """Return the result of a job on a Dask worker. It belongs to a task, which may be cancelled."""
    from distributed import get_worker

    worker = get_worker()
    key, states = worker.get_current_task(), worker.state.tasks
    result, code, said = exchange(
        [sys.executable, "-c", program],
        data,
        is_wanted=lambda: key in states and states[key].state in WANTED,
    )
    if not result:
        raise RuntimeError(f"the worker process ended with exit code {code}: {said}")
    return result


def main(size: int, requirements: list[str]) -> None:
    """``size`` of the workbench's zip in bytes; ``requirements`` as pip takes them."""
    print(HELLO, file=sys.stderr, flush=True)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = cache / "workbench" / "remote"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    stdin = io.BufferedReader(io.FileIO(0, closefd=False), 1)  # the job behind it is the worker's
    code = unpacked(root, stdin.read(size))
    lacking = [text for text in requirements if not is_met(text)]
    python = environment(root, requirements, lacking) if lacking else sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(code), os.environ.get("PYTHONPATH", "")])
    os.execv(python, [python, "-P", "-m", "workbench.remote.worker"])


def unpacked(root: Path, data: bytes) -> Path:
    """Unpack all or nothing, as several jobs may come at once. Delete old versions."""
    folder = root / f"code-{hashlib.sha256(data).hexdigest()[:16]}"
    if not folder.is_dir():
        half = tempfile.mkdtemp(dir=root)
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            packed.extractall(half)
        with suppress(OSError):
            Path(half).rename(folder)
    os.utime(folder)
    for other in root.glob("code-*"):
        if other.stat().st_mtime < time.time() - KEPT_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
    return folder


def is_met(requirement: str) -> bool:
    """Whether this Python has the package. Without pip to compare versions, any will do."""
    try:
        version = importlib.metadata.version(re.split(r"[^\w.-]", requirement)[0])
        with warnings.catch_warnings():  # setuptools warns at an import of pip
            warnings.simplefilter("ignore")
            from pip._vendor.packaging.requirements import Requirement
    except importlib.metadata.PackageNotFoundError:
        return False
    except ImportError:
        return True
    return bool(Requirement(requirement).specifier.contains(version, prereleases=True))


def environment(root: Path, requirements: list[str], lacking: list[str]) -> str:
    """Return the Python of an environment with the requirements, on top of the packages that are
    there already. An installation that stops half-way is deleted, at the latest by the next one.
    """
    text = repr((sys.version, sys.executable, requirements))
    folder = root / f"venv-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    python, done = str(folder / "bin" / "python"), folder / "complete"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return python
        say(f"installing {', '.join(lacking)} into {folder}; delete it to undo that")
        try:
            venv.create(folder, clear=True, with_pip=True)
            paths = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
            (packages,) = folder.glob("lib/python*/site-packages")
            (packages / "inherited.pth").write_text("\n".join(paths))
            command = [python, "-m", "pip", "install", "-q", *requirements]
            pip = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
            try:
                while not has_ended(pip.pid):
                    time.sleep(POLL_SECONDS)
            finally:
                code = killed(pip)
            if code:
                sys.exit(NO_PACKAGES)
            done.touch()
        finally:
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                say(f"the installation failed; {folder} is deleted again")
    return python


def say(text: str) -> None:
    print(f"{NOTE}{text}", file=sys.stderr, flush=True)
