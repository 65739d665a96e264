"""What this machine really does: it allocates, compiles, launches, runs torch and profiles, each
once, in processes of their own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.cuda.build import arch_of
from workbench.errors import BadCapture
from workbench.ncu import command as ncu
from workbench.ncu.reader import actions, without_number
from workbench.ncu.support import known_error
from workbench.run.process import worker_environment

KERNEL = "add_one"
SOURCE = f'extern "C" __global__ void {KERNEL}(float* x) {{ x[threadIdx.x] += 1; }}'
SECONDS = {"torch": 120.0, "ncu": 180.0}
ONE_COUNTER = "gpu__time_duration.sum"
KERNEL_STEPS = ("compilation", "allocation", "launch")


@dataclass(frozen=True)
class Outcome:
    """``error`` is what the failing tool printed, "" where it worked; ``hint`` the way out."""

    step: str
    error: str = ""
    hint: str = ""
    told: str = "works"


def outcomes(tool: str | None, arch: str, *, has_gpu: bool) -> Iterator[Outcome]:
    """Of each step, up to the first of a process that fails. ``tool`` is ncu's path; without a GPU
    a kernel is only compiled, for ``arch``.
    """
    with tempfile.TemporaryDirectory(prefix="workbench-self-test-") as folder:
        own = [sys.executable, "-m", "workbench.run.self_test"]
        failed = False
        for outcome in _of_kernel([*own, "kernel" if has_gpu else arch], Path(folder)):
            failed |= bool(outcome.error)
            yield outcome
        if not has_gpu:
            return
        code, log = _ran([*own, "torch"], Path(folder), SECONDS["torch"])
        yield _outcome("torch on this GPU", code, log)
        if tool is None or failed:
            return
        asked = [tool, "--metrics", ONE_COUNTER, "--csv", "--page", "raw"]
        code, log = _ran([*asked, *own, "kernel"], Path(folder), SECONDS["ncu"])
        yield _profiled("ncu, one counter", code, log)
        report = Path(folder, "full.ncu-rep")
        asked = [tool, "--set", "full", "--export", str(report)]
        code, log = _ran([*asked, *own, "kernel"], Path(folder), SECONDS["ncu"])
        yield _profiled("ncu, full set", code, log, report)


def _of_kernel(command: Sequence[str], folder: Path) -> Iterator[Outcome]:
    code, log = _ran(command, folder, SECONDS["torch"])
    done = [line.removeprefix("done ") for line in log.splitlines() if line.startswith("done ")]
    yield from (Outcome(step) for step in done)
    if code != 0:
        step = next((one for one in KERNEL_STEPS if one not in done), KERNEL_STEPS[-1])
        yield _outcome(step, code, log)


def _outcome(step: str, code: int | None, log: str) -> Outcome:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    if code == 0:
        return Outcome(step, told=lines[-1] if lines else "works")
    said = lines[-1] if lines else "nothing was printed"
    ended = "came to no end" if code is None else f"exit code {code}"
    entry = known_error(log)
    hint = f"{entry.means}: {entry.hint}" if entry else "the message is the tool's own"
    return Outcome(step, f"{said[: ncu.QUOTED]} ({ended})", hint)


def _profiled(step: str, code: int | None, log: str, report: Path | None = None) -> Outcome:
    """Whether ncu saw the kernel; and of a report, how many counters came without a number."""
    try:
        if code == 0 and report is not None and report.is_file():
            missing, every = without_number(actions(report, None)[0])
            return Outcome(step, told=f"{every} metrics, {missing} of them without a number")
    except BadCapture as error:
        return Outcome(step, error.message, error.hint)
    if code == 0 and report is None and KERNEL in log and not ncu.error_lines(log):
        return Outcome(step)
    failure = ncu.failure(log)
    means = failure.message.splitlines()[0]
    ended = "came to no end" if code is None else f"exit code {code}"
    return Outcome(step, f"{ncu.quoted(log) or means} ({ended})", f"{means}: {failure.hint}")


def _ran(command: Sequence[str], folder: Path, seconds: float) -> tuple[int | None, str]:
    """Exit code and output; None where it was stopped after so long."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=worker_environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as slow:
        text = slow.stdout or b""
        return None, text.decode(errors="replace") if isinstance(text, bytes) else text
    except OSError as error:
        return 127, str(error)
    return done.returncode, done.stdout


def use_kernel(arch: str) -> None:
    """Compile for ``arch``; without it for the GPU, and launch there."""
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

    device = None if arch else Device()
    if device is not None:
        device.set_current()
        arch = arch_of(*device.compute_capability)
    code = Program(SOURCE, "c++", ProgramOptions(arch=arch)).compile("cubin")
    print("done compilation", flush=True)
    if device is None:
        return
    stream = device.create_stream()
    buffer = device.allocate(4096, stream=stream)
    stream.sync()
    print("done allocation", flush=True)
    kernel = code.get_kernel(KERNEL)
    launch(stream, LaunchConfig(grid=1, block=32), kernel, int(buffer.handle))
    stream.sync()
    print("done launch", flush=True)


def use_torch() -> None:
    import torch

    ones = torch.ones(4, device="cuda")
    if float((ones + ones).sum()) != 8.0:
        raise ArithmeticError("torch adds wrongly on this GPU")
    print(f"torch {torch.__version__}, CUDA {torch.version.cuda}")


if __name__ == "__main__":
    if sys.argv[1] == "torch":
        use_torch()
    else:
        use_kernel("" if sys.argv[1] == "kernel" else sys.argv[1])
