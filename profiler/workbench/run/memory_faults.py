"""The kernel and the line of an illegal address: compute-sanitizer finds them in another call."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from workbench import bounds
from workbench.cuda.compiler import TOOLKIT
from workbench.run.process import Worker, WorkerEnd
from workbench.run.protocol import Broken, TrialJob

TOOL = "compute-sanitizer"
# Calls that fail are no faults of memory, and torch makes some that it expects to fail.
OPTIONS = ("--report-api-errors", "no", "--show-backtrace", "no", "--print-limit", "8")
# The call that launches a kernel waits for it; each tensor has memory of its own.
SETTINGS = ("CUDA_LAUNCH_BLOCKING=1", "PYTORCH_NO_CUDA_MEMORY_CACHING=1")
FAULT = re.compile(
    r"illegal (memory access|address|instruction)|misaligned address|unspecified launch failure|"
    r"ILLEGAL_(ADDRESS|INSTRUCTION)|MISALIGNED_ADDRESS|LAUNCH_FAILED"
)
FIRST = re.compile(  # "Invalid __global__ write of size 4 bytes", "at k(float *)+0x70 in k.cu:5"
    r"^=+ +(Invalid .+|Misaligned .+)\n=+ +at (.+?)(?:[+:]0x\w+)?(?: in (\S+):(\d+))?\s*$",
    re.MULTILINE,
)


def find_sanitizer() -> str:
    """On PATH, or beside nvcc; "" for none."""
    return shutil.which(TOOL) or shutil.which(TOOL, path=str(TOOLKIT.parent)) or ""


def located(scratch: Path, job: TrialJob, end: WorkerEnd) -> WorkerEnd:
    """The end of a trial; where that was an illegal address, with the kernel and its line, as far
    as the same call finds them once more.
    """
    broken = next((one for one in end.of(Broken) if FAULT.search(one.error.message)), None)
    if broken is None or end.interrupted:
        return end
    tool = find_sanitizer()
    prefix = ["env", *SETTINGS, *([tool, *OPTIONS] if tool else [])]
    again = Worker(scratch, job, prefix).watch(bounds.TRIAL_SECONDS, lambda event: None)
    if again.interrupted:
        return again
    hint = broken.error.hint if tool else f"install {TOOL}, of the CUDA toolkit: it names the line"
    message = next((one.error.message for one in again.of(Broken)), broken.error.message)
    if first := FIRST.search(again.log):
        what, kernel, file, line = first.groups()
        place = f" ({Path(file).name}:{line})" if file else ""
        message, hint = f"{job.called}: {what} in {kernel}{place}", f"fix this line: {TOOL} has it"
    error = structs.replace(broken.error, message=message, hint=hint)
    return replace(end, events=[Broken(error=error)])
