"""Several runs at once, a card for each, that take their steps from one list."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from benchmarks.card_run import INTERRUPTED_CODE, Run, code_of
from benchmarks.card_steps import Step


@dataclass
class Lanes:
    """``runs`` take the ``steps`` in the order in which they are given."""

    runs: Sequence[Run]
    steps: Sequence[Step]
    taken: dict[str, int] = field(default_factory=dict)  # step to the number of its lane

    def __post_init__(self) -> None:
        self.turn = threading.Lock()
        self.over = False

    def run(self) -> int:
        """The exit code."""
        with ThreadPoolExecutor(len(self.runs)) as pool:
            lanes = [pool.submit(self.work, number) for number in range(len(self.runs))]
            try:
                for lane in lanes:
                    lane.result()
            except KeyboardInterrupt:
                self.interrupt()
        return INTERRUPTED_CODE if self.over else code_of(self.runs[0].ended)

    def work(self, number: int) -> None:
        while (step := self.next(number)) is not None:
            self.runs[number].one(step)

    def next(self, number: int) -> Step | None:
        """The next one for a lane: what comes ``after`` another one is the same lane's."""
        with self.turn:
            chosen = {step.name for step in self.steps}
            for step in self.steps:
                free = step.after not in chosen or self.taken.get(step.after) == number
                if step.name not in self.taken and free and not self.over:
                    self.taken[step.name] = number
                    return step
        return None

    def interrupt(self) -> None:
        """As Ctrl-C does for a single run: who does not listen is killed after a while."""
        with self.turn:
            self.over = True
        for run in self.runs:
            run.interrupted = True
        commands = [run.running for run in self.runs if run.running is not None]
        for started in commands:
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGINT)
        until = time.monotonic() + self.runs[0].grace
        for started in commands:
            with suppress(subprocess.TimeoutExpired):
                started.wait(max(0.0, until - time.monotonic()))
            with suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
