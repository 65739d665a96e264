"""Measures the card's ceilings in a worker and writes them to ``ceilings.json``.

A benchmark that fails, hangs or takes the process along costs only itself: the others go on in a
fresh worker, and its ceiling is written down as not collected, with the reason. Where nothing was
measured, or the run was interrupted, the file on record stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workbench.errors import ToolFailed
from workbench.evidence import store
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.records import Ceiling, CeilingsFile, Environment
from workbench.run.process import Worker, WorkerEnd
from workbench.run.protocol import (
    Broken,
    CeilingFailed,
    CeilingMeasured,
    CeilingsJob,
    DeviceFound,
    Event,
)
from workbench.run.recording import provenance
from workbench.run.scratch import empty_scratch

CEILINGS = (
    "dram",
    "l2",
    "l1",
    "fp32",
    "fp64",
    "half",
    "tensor fp16",
    "tensor bf16",
    "tensor tf32",
    "tensor fp8",
)
SECONDS = 60.0  # the longest one ceiling may take, its compilation included
HINT = "`workbench doctor` checks the GPU, the driver and the packages"


def calibrate(
    folder: EvidenceFolder,
    on_event: Callable[[Event], None],
    limit: float = SECONDS,
    wanted: Sequence[str] = CEILINGS,
) -> CeilingsFile:
    """Measure the ceilings that are ``wanted``; returns what was written.

    Raises ToolFailed where none could be measured, KeyboardInterrupt when it was stopped.
    """
    work = Calibrating(on_event, limit, wanted)
    with empty_scratch() as scratch:
        work.run(scratch)
    if not work.measured:
        first = next(iter(work.absent.values()))
        raise ToolFailed(f"no ceiling could be measured: {first}", hint=HINT)
    file = CeilingsFile(
        ceilings=work.measured,
        not_collected=work.absent,
        provenance=provenance(work.environment),
    )
    store.write(folder.ceilings, file)
    return file


@dataclass
class Calibrating:
    """Goes through the ceilings, in one worker after another where some break theirs."""

    on_event: Callable[[Event], None]
    limit: float
    wanted: Sequence[str]
    measured: dict[str, Ceiling] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    environment: Environment = field(default_factory=Environment)

    def run(self, scratch: Path) -> None:
        while left := [name for name in self.wanted if name not in {*self.measured, *self.absent}]:
            worker = Worker(scratch, CeilingsJob(ceilings=tuple(left)))
            outcome = worker.watch(self.limit, self.on_event)
            for event in outcome.events:
                self.take(event)
            if outcome.interrupted:
                raise KeyboardInterrupt
            if not outcome.finished:
                self.blame(outcome)

    def take(self, event: Event) -> None:
        match event:
            case DeviceFound():
                self.environment = event.environment
            case CeilingMeasured():
                self.measured[event.id] = event.ceiling
            case CeilingFailed():
                self.absent[event.id] = event.error.message.partition("\n")[0]

    def blame(self, outcome: WorkerEnd) -> None:
        """Write down the ceiling that ended the worker; ToolFailed where it was none of them."""
        if outcome.current:
            self.absent[outcome.current] = outcome.why(self.limit)
        elif not outcome.of(CeilingFailed):
            broken = outcome.of(Broken)
            why = broken[0].error.message if broken else outcome.log[-500:].strip()
            raise ToolFailed(f"the benchmarks did not start: {why}", hint=HINT)
