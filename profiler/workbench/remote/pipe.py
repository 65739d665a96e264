"""A worker behind pipes, on this machine or over ssh: the job goes in, events and a result out."""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO

from workbench.errors import ToolFailed
from workbench.remote.job import MOST_BYTES
from workbench.run.protocol import WorkerEvent, decode

RESULT = "workbench-result"
LONGEST_LINE = 1 << 26  # of an event: a session of many variants
POLL_SECONDS = 0.2
END_SECONDS = 75.0  # for a worker that is not wanted any more to hand over what it has finished


def framed(data: bytes) -> bytes:
    return f"{len(data)}\n".encode() + data


def exchange(
    process: subprocess.Popen[bytes],
    parts: Sequence[bytes],
    hear: Callable[[WorkerEvent], None] = lambda event: None,
    is_wanted: Callable[[], bool] = lambda: True,
) -> bytes:
    """The result of the job that is the last of ``parts``; b"" where the process ends without one.

    After Ctrl-C, or when the job is not wanted any more, its stdin ends, and the result is what was
    finished. A second Ctrl-C kills the process.
    """
    found: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    sent = threading.Event()
    threading.Thread(target=_talk, args=(process, parts, hear, sent, found), daemon=True).start()
    last: float | None = None
    while True:
        try:
            result = _awaited(process, found, last, is_wanted)
            break
        except KeyboardInterrupt:
            if last is not None or not sent.is_set():  # nothing is measured before
                process.kill()
            else:
                _end(process)
            last = time.monotonic() + END_SECONDS
    _end(process)
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    return result


def _awaited(
    process: subprocess.Popen[bytes],
    found: queue.SimpleQueue[bytes],
    last: float | None,
    is_wanted: Callable[[], bool],
) -> bytes:
    """Raises KeyboardInterrupt when the job is not wanted any more; after ``last`` it is killed."""
    while True:
        if last is None and not is_wanted():
            raise KeyboardInterrupt
        if last is not None and time.monotonic() > last:
            process.kill()
        with suppress(queue.Empty):
            return found.get(timeout=POLL_SECONDS)


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with suppress(OSError, ValueError):
        process.stdin.close()


def _talk(
    process: subprocess.Popen[bytes],
    parts: Sequence[bytes],
    hear: Callable[[WorkerEvent], None],
    sent: threading.Event,
    found: queue.SimpleQueue[bytes],
) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    result = b""
    try:
        with suppress(OSError, ValueError):  # it has ended, and says why
            for part in parts:
                process.stdin.write(part)
            process.stdin.flush()
            sent.set()
        result = _result(process.stdout, hear)
    finally:
        found.put(result)


def _result(lines: IO[bytes], hear: Callable[[WorkerEvent], None]) -> bytes:
    while line := lines.readline(LONGEST_LINE):
        word, _, size = line.decode(errors="replace").strip().partition(" ")
        if word == RESULT and size.isdigit() and int(size) <= MOST_BYTES:
            data = lines.read(int(size))
            return data if len(data) == int(size) else b""
        with suppress(ToolFailed):  # a login may print lines of its own
            hear(decode(line.decode(errors="replace")))
    return b""
