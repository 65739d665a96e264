"""Runs a user's program under ncu, and says what both printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from workbench.children import exit_code, kill_tree
from workbench.run.process import POLL_SECONDS, Tail

NCU_LOG, OUTPUT = "ncu.log", "output"  # in the folder of a run
KEPT = 1 << 16  # characters of the program's output, the last ones
TELL_SECONDS = 8.0  # between two lines that say how far it is
QUIET_SECONDS = 60.0  # without a new kernel, after which the likely reason is named
STOP_SECONDS = 20.0  # for ncu to write its report after Ctrl-C
PROFILED = "==PROF== Profiling "
WAITING = "no kernel has ended for a minute: kernels that wait for each other never end under ncu"


@dataclass(frozen=True)
class ProgramEnd:
    """``returncode`` is ncu's, which passes the program's on."""

    returncode: int
    log: str
    output: str
    interrupted: bool


def run_program(
    command: Sequence[str], folder: Path, tell: Callable[[str], None], *, echo: bool
) -> ProgramEnd:
    """Run a command of ncu whose log is NCU_LOG in ``folder``. ``echo`` passes the program's output
    to stderr. Ctrl-C reaches both as in a terminal: ncu then writes what it has.
    """
    with suppress(OSError, ValueError):
        os.lseek(0, 0, os.SEEK_SET)  # a file as its input is read anew by each run
    terminal = os.isatty(0)  # a session of its own may not read that
    with (folder / OUTPUT).open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if terminal else None,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    log, printed = Tail(folder / NCU_LOG), Tail(folder / OUTPUT, at_once=KEPT)
    texts, interrupted, launches, kept = [""], False, 0, ""
    told = changed = time.monotonic()

    def drain() -> None:
        nonlocal kept, launches, changed
        while text := printed.new_text():
            kept = (kept + text)[-KEPT:]
            if echo:
                sys.stderr.write(text)
                sys.stderr.flush()
        if text := log.new_text():
            texts.append(text)
            launches += text.count(PROFILED)
            changed = time.monotonic()

    try:
        while exit_code(process, POLL_SECONDS) is None:
            drain()
            if time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                count = f"{launches:,} launches so far" if launches else "no kernel so far"
                tell(WAITING if told - changed > QUIET_SECONDS else count)
    except KeyboardInterrupt:
        interrupted = True
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        exit_code(process, STOP_SECONDS)
    finally:
        kill_tree(process.pid)
        exit_code(process)
    drain()
    return ProgramEnd(process.returncode or 0, "".join(texts), kept, interrupted)
