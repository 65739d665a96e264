"""Jobs of a worker that time no variants: a call of what is tried, checks on the CPU, a package."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from workbench import bounds
from workbench.cuda.compiler import TOOLKIT
from workbench.cuda.programs import virtual_name
from workbench.errors import EnvironmentLacks, GateFailed, ToolFailed, UsageError, WorkbenchError
from workbench.run import machine
from workbench.run.compilation import scratch_folder, worker_stopped
from workbench.run.measurement import Plan, variants_job
from workbench.run.process import E, Worker, WorkerEnd, run_worker
from workbench.run.protocol import (
    Broken,
    Checked,
    Event,
    Failed,
    Learned,
    Packable,
    ShipJob,
    TrialJob,
)
from workbench.study.model import Study
from workbench.words import INSTALL, Phase


def try_once(study: Study, job: TrialJob, builds: Path | None = None) -> Learned:
    """Call a variant once, in a process of its own. ``builds`` keeps what is compiled for a later
    measurement by this process.

    Raises what the study's own code is wrong with, KeyboardInterrupt when it was stopped, and
    EnvironmentLacks without torch.
    """
    require_torch()
    with scratch_folder(study, builds) as scratch:
        outcome = run_worker(scratch, job, bounds.TRIAL_SECONDS, lambda event: None)
        outcome = located(scratch, job, outcome)
    if outcome.silent_for and not outcome.of(Learned):
        raise GateFailed(
            f"nothing came back for {bounds.TRIAL_SECONDS:g} s ({outcome.line or job.called})",
            hint="does it wait for something?",
        )
    if outcome.too_large and not outcome.of(Learned):
        raise GateFailed(f"it {outcome.why()}", hint="does it call itself, or keep all it makes?")
    folder_name = virtual_name(study.name, "")  # a file is called as the user's is
    return answer_of(outcome, Learned, lambda text: text.replace(folder_name, ""), UsageError)


LARGEST_ON_CPU = 1 << 23  # see Shape.size


def require_torch() -> None:
    if "torch" in machine.missing_to_run():
        why = "torch is not installed, so nothing can be called"
        raise EnvironmentLacks(why, hint=f"pip install torch, or {INSTALL}")


def check_on_cpu(
    study: Study, variants: Sequence[str], on_event: Callable[[Event], None]
) -> tuple[list[Checked], list[Failed]]:
    """At the smallest shapes first, until one takes long; and what cannot be called without a GPU.

    Raises EnvironmentLacks without torch, KeyboardInterrupt when it was stopped.
    """
    require_torch()
    plan = Plan(study.default_shape, everywhere=True)
    job = variants_job(study, plan, variants, (Phase.CHECK,))
    sizes = {name: study.shapes[name].size for name in job.check_shapes}
    shapes = tuple(sorted((n for n in sizes if sizes[n] <= LARGEST_ON_CPU), key=sizes.__getitem__))
    job = structs.replace(job, on_cpu=True, check_shapes=shapes)
    with scratch_folder(study) as scratch:
        outcome = run_worker(scratch, job, bounds.TRIAL_SECONDS, on_event)
    if outcome.interrupted:
        raise KeyboardInterrupt
    if not outcome.finished:
        raise worker_stopped(outcome)
    return outcome.of(Checked), outcome.of(Failed)


def packable(study: Study, job: ShipJob) -> Packable:
    """Raises what is wrong with the variant or the study, EnvironmentLacks without torch,
    KeyboardInterrupt when it was stopped.
    """
    require_torch()
    with scratch_folder(study) as scratch:
        outcome = run_worker(scratch, job, bounds.SHIP_SECONDS, lambda event: None)
    return answer_of(outcome, Packable, lambda text: f"{job.variant} cannot be shipped: {text}")


def answer_of(
    outcome: WorkerEnd,
    kind: type[E],
    worded: Callable[[str], str],
    default: type[WorkbenchError] = ToolFailed,
) -> E:
    """The answer of a worker. Raises KeyboardInterrupt when it was stopped, and its own error with
    the message as it is ``worded`` for the user, as ``default`` where that is of no known class.
    """
    if outcome.interrupted:
        raise KeyboardInterrupt
    if broken := outcome.of(Broken):
        error, where = broken[0].error, f" ({outcome.line})" if outcome.line else ""
        raise structs.replace(error, message=worded(error.message) + where).error(default)
    if not (answers := outcome.of(kind)):
        raise worker_stopped(outcome)
    return answers[0]


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
