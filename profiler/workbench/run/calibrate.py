"""Measures the card's ceilings in a worker and writes them to ``ceilings.json``.

A benchmark that fails, hangs or takes the process along costs only itself: the others go on in a
fresh worker, and its ceiling is written down as not collected, with the reason. Where nothing was
measured, or the run was interrupted, the file on record stays as it is.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import convert

from workbench.errors import ToolFailed
from workbench.evidence import store
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.records import Ceiling, CeilingsFile, Environment
from workbench.run.process import Event, Worker, WorkerEnd
from workbench.run.recording import provenance

MODULE = "workbench.run.worker.benchmarks"
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


def calibrate(
    folder: EvidenceFolder, on_event: Callable[[Event], None], limit: float = SECONDS
) -> CeilingsFile:
    """Measure all ceilings; returns what was written.

    Raises ToolFailed where none could be measured, KeyboardInterrupt when it was stopped.
    """
    measured: dict[str, dict[str, Any]] = {}
    absent: dict[str, str] = {}
    environment: dict[str, Any] = {}
    scratch = Path(tempfile.mkdtemp(prefix="workbench-"))
    try:
        while left := [name for name in CEILINGS if name not in {*measured, *absent}]:
            worker = Worker(scratch, {"ceilings": left}, module=MODULE)
            outcome = worker.watch(limit, on_event)
            for event in outcome.events:
                found = {key: value for key, value in event.items() if key != "event"}
                if event["event"] == "environment":
                    environment = found
                elif event["event"] == "ceiling":
                    measured[found.pop("id")] = found
                elif event["event"] == "failed":
                    absent[event["id"]] = event["message"].partition("\n")[0]
            if outcome.interrupted:
                raise KeyboardInterrupt
            if not outcome.finished:
                _blame(outcome, absent, limit)
    except OSError as error:
        raise store.disk_full(scratch, error) or error from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if not measured:
        raise ToolFailed(
            f"no ceiling could be measured: {next(iter(absent.values()))}",
            hint="`workbench doctor` checks the GPU, the driver and the packages",
        )
    file = CeilingsFile(
        ceilings=convert(measured, dict[str, Ceiling]),
        not_collected=absent,
        provenance=provenance(convert(environment, Environment)),
    )
    store.write(folder.ceilings, file)
    return file


def _blame(outcome: WorkerEnd, absent: dict[str, str], limit: float) -> None:
    """Write down the ceiling that ended the worker; raise ToolFailed where it was none of them."""
    name = outcome.current
    if name:
        absent[name] = (
            f"hangs: nothing came for {limit:g} s"
            if outcome.timed_out
            else f"crashed its process (exit {outcome.returncode})"
        )
    elif not any(event["event"] == "failed" for event in outcome.events):
        broken = next((e["message"] for e in outcome.events if e["event"] == "broken"), None)
        raise ToolFailed(
            f"the benchmarks did not start: {broken or outcome.log[-500:].strip()}",
            hint="`workbench doctor` checks the GPU, the driver and the packages",
        )
