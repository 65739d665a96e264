"""Try what this machine really does: it allocates, compiles, launches, runs torch and profiles,
each once, in processes of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from workbench import bounds
from workbench.children import temporary_folder
from workbench.cuda import compiler
from workbench.errors import BadCapture
from workbench.ncu.command import QUOTED, known_error, quoted
from workbench.ncu.reader import actions, without_number
from workbench.run.process import worker_environment
from workbench.words import INSTALL

SOURCE = 'extern "C" __global__ void add_one(float* x) { x[threadIdx.x] += 1; }'
KERNEL_STEPS = ("compilation", "allocation", "launch")
TORCH_STEP = "torch on this GPU"
NCU_STEPS = {
    "ncu, one counter": ("--metrics", "gpu__time_duration.sum"),
    "ncu, full set": ("--set", "full"),
}


@dataclass(frozen=True)
class Outcome:
    """``error`` is what the failing tool printed, "" where it worked; ``hint`` the way out."""

    step: str
    error: str = ""
    hint: str = ""
    found: str = "works"


def outcomes(tool: str | None, arch: str, *, has_gpu: bool) -> Iterator[Outcome]:
    """Yield the outcomes of the steps. A process ends at its first step that fails. ``tool`` is
    ncu's path. Without a GPU a kernel is only compiled, for ``arch``.
    """
    this_module = [sys.executable, "-m", "workbench.run.self_test"]
    with temporary_folder() as folder, ThreadPoolExecutor(1) as pool:
        # torch takes seconds to import, from a cold disk ten: meanwhile the others go on.
        torch = pool.submit(ran, [*this_module, "torch"], folder) if has_gpu else None
        code, log = ran([*this_module, "kernel" if has_gpu else arch], folder)
        done = [line.removeprefix("done ") for line in log.splitlines() if line.startswith("done ")]
        yield from map(Outcome, done)
        if code != 0:
            yield failed(next(one for one in (*KERNEL_STEPS, "exit") if one not in done), code, log)
        if torch is None:
            return
        for step, options in NCU_STEPS.items():
            if tool is None or code != 0:
                break
            report = folder / f"{options[0]}.ncu-rep"
            command = [tool, *options, "--export", str(report), *this_module, "kernel"]
            ended, said = ran(command, folder)
            try:
                missing, every = without_number(actions(report, None)[0])
                found = f"{every} metrics, {missing} of them without a number"
                yield Outcome(step, found=found)
            except BadCapture as error:
                yield failed(step, ended, said if said.strip() else error.message)
        ended, said = torch.result()
        works = Outcome(TORCH_STEP, found=said.strip())
        yield works if ended == 0 else failed(TORCH_STEP, ended, said)


def failed(step: str, code: int | None, log: str) -> Outcome:
    said = quoted(log) or (log.strip().splitlines() or ["nothing was printed"])[-1]
    entry = known_error(log)
    missing = INSTALL if "No module named" in log else "the cause is not known: run that tool alone"
    hint = f"{entry.means}: {entry.hint}" if entry else missing
    ended = "" if code is None else f" (exit code {code})"
    return Outcome(step, f"{said[:QUOTED]}{ended}", hint)


def ran(command: Sequence[str], folder: Path) -> tuple[int | None, str]:
    return compiler.ran(command, folder, bounds.SELF_TEST_SECONDS, worker_environment(folder))


def use_kernel(arch: str) -> None:
    """Compile for ``arch``; without it for the GPU, and launch there."""
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

    device = None if arch else Device()
    if device is not None:
        device.set_current()
        arch = compiler.arch_of(*device.compute_capability)
    code = Program(SOURCE, "c++", ProgramOptions(arch=arch)).compile("cubin")
    print("done compilation", flush=True)
    if device is None:
        return
    stream = device.create_stream()
    buffer = device.allocate(4096, stream=stream)
    stream.sync()
    print("done allocation", flush=True)
    kernel = code.get_kernel("add_one")
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
    test = sys.argv[1]
    use_torch() if test == "torch" else use_kernel("" if test == "kernel" else test)
