"""The process that holds the GPU: ``python -m workbench.run.worker.main job.json``.

It runs in a scratch directory on a copy of the sources, imports torch, the study and the
variants, and appends one JSON object per finished piece of work to ``events.jsonl``. The parent
reads that file; a crash here loses only what was under way.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from workbench import cuda
from workbench.errors import UsageError, WorkbenchError
from workbench.study.params import base_name
from workbench.study.workspace import check_study_module, load_module

if TYPE_CHECKING:
    from workbench.run.worker.timing import Case

CONTEXT_LOST = 17
EVENTS = "events.jsonl"
CURRENT = "current"
GATE = "gate.json"
GATE_POLL_SECONDS = 0.02


class Journal:
    """Events as they finish, and the name of the variant that has the GPU right now."""

    def __init__(self, folder: Path) -> None:
        self._events = (folder / EVENTS).open("a", encoding="utf-8")
        self._current = os.open(folder / CURRENT, os.O_CREAT | os.O_WRONLY)

    def write(self, event: str, **fields: Any) -> None:
        self._events.write(json.dumps({"event": event, **fields}) + "\n")
        self._events.flush()

    def current(self, variant: str) -> None:
        os.pwrite(self._current, variant.ljust(256).encode(), 0)


class Worker:
    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.journal = Journal(Path.cwd())
        self.folder = Path.cwd() / "kernels" / job["study"]
        study = self.folder / "study.py"
        self.study = load_module(study, "workbench_study")
        check_study_module(study, self.study)
        self.modules: dict[str, ModuleType] = {}
        self.failed: set[str] = set()

    def fail(self, variant: str, phase: str, error: BaseException) -> None:
        """Record why a variant is out; leave the process when it took the CUDA context along."""
        self.failed.add(variant)
        self.journal.write("failed", variant=variant, phase=phase, **describe(error))
        if "torch" in sys.modules and context_lost():
            self.journal.write("context_lost", variant=variant)
            self.journal.current("")
            os._exit(CONTEXT_LOST)

    def alive(self) -> list[str]:
        return [name for name in self.job["variants"] if name not in self.failed]

    def each(self, phase: str, work: Any) -> None:
        for name in self.alive():
            self.journal.current(name)
            self.journal.write("start", variant=name, phase=phase)
            try:
                work(name)
            except Exception as error:
                self.fail(name, phase, error)
        self.journal.current("")

    def build(self, name: str) -> None:
        cuda.take_declared()
        file = self.folder / f"{base_name(name)}.py"
        with cuda.overridden(self.job.get("params", {}).get(name, {})):
            module = load_module(file, f"workbench_variant_{name}")
        if not callable(getattr(module, "run", None)):
            raise UsageError(
                f"{file.name} defines no run()", hint="a variant is a module with run(...)"
            )
        kernels = cuda.take_declared()
        self.modules[name] = module
        if "build" not in self.job["phases"]:
            return
        arch = self.job.get("arch") or device_arch()
        reports = [kernel.compile(arch)[0] for kernel in kernels]
        self.journal.write(
            "built",
            variant=name,
            arch=arch,
            kernels=[
                {**vars(build), "source": kernel.path.name}
                for kernel, report in zip(kernels, reports, strict=True)
                for build in report.kernels
            ],
            warnings=[warning for report in reports for warning in report.warnings],
        )

    def check(self, name: str) -> None:
        from workbench.run.worker.checking import check_variant

        for shape in self.job["check_shapes"]:
            result = check_variant(self.study, self.modules[name].run, self.study.shapes[shape])
            self.journal.write("checked", variant=name, shape=shape, **result)
            if result["status"] == "wrong" or (
                result["status"] == "unsupported" and shape == self.job["shape"]
            ):
                self.failed.add(name)

    def case(self, name: str) -> Case:
        from workbench.run.worker.timing import Case, draw

        return Case(name, self.modules[name].run, draw(self.study, self.shape()))

    def shape(self) -> Any:
        return self.study.shapes[self.job["shape"]]

    def time(self) -> None:
        from workbench.run.worker import timing

        cases: list[Case] = []

        def prepare(name: str) -> None:
            case = self.case(name)
            case.prepare(self.job["timing"]["graph_microseconds"])
            cases.append(case)

        self.each("time", prepare)
        limits = self.job["timing"]["rounds"], self.job["timing"]["seconds"]
        for sample in timing.interleave(cases, *limits, self.journal.current):
            self.journal.write("timed", **sample)
        self.journal.current("")
        self.journal.write("timing_done", variants=[case.name for case in cases])

    def capture(self, name: str) -> None:
        import torch

        case = self.case(name)
        case.call()
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_push(self.job["ranges"][name])
        case.call()
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()
        self.journal.write("captured", variant=name)

    def run(self) -> None:
        phases = self.job["phases"]
        self.journal.write("hello", pid=os.getpid())
        if self.job.get("gated"):
            self.job["variants"] = wait_at_gate()
        if phases != ["build"]:
            self.journal.write("environment", **environment())
        self.each("build", self.build)
        if "check" in phases:
            self.each("check", self.check)
        if "time" in phases:
            self.time()
        if "capture" in phases:
            self.each("capture", self.capture)
        self.journal.write("done")


def wait_at_gate() -> list[str]:
    """Import what takes long, then wait, off the GPU, until the parent says which variants."""
    import torch  # noqa: F401
    from cuda.core import Program  # noqa: F401

    gate, parent = Path.cwd() / GATE, os.getppid()
    while not gate.is_file():
        if os.getppid() != parent:
            raise SystemExit(1)
        time.sleep(GATE_POLL_SECONDS)
    variants = json.loads(gate.read_text(encoding="utf-8"))
    assert isinstance(variants, list)
    return variants


def describe(error: BaseException) -> dict[str, str]:
    """The error in a line or, for a compiler, in its own words, with the user's file and line."""
    if isinstance(error, WorkbenchError):
        return {"kind": type(error).__name__, "message": error.message, "hint": error.hint}
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/kernels/" in f.filename]
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    lines = str(error).strip().splitlines()
    message = f"{type(error).__name__}: {lines[0] if lines else ''}{where}"
    return {"kind": type(error).__name__, "message": message, "hint": ""}


def context_lost() -> bool:
    import torch

    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def device_arch() -> str:
    import torch

    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def environment() -> dict[str, Any]:
    """GPU, driver and library versions, as provenance. Raises RuntimeError without a GPU."""
    import platform
    from importlib.metadata import version

    import torch
    from cuda.bindings import nvrtc

    properties = torch.cuda.get_device_properties(0)
    _, major, minor = nvrtc.nvrtcVersion()
    driver = ""
    try:
        import pynvml

        pynvml.nvmlInit()
        driver = str(pynvml.nvmlSystemGetDriverVersion())
    except Exception:
        driver = "not collected"
    return {
        "gpu": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "sm_count": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "memory_bytes": properties.total_memory,
        "driver": driver,
        "cuda": str(torch.version.cuda),
        "nvrtc": f"{major}.{minor}",
        "cudnn": str(torch.backends.cudnn.version()),
        "torch": torch.__version__,
        "cuda_core": version("cuda-core"),
        "python": platform.python_version(),
    }


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    worker = Worker(job)
    try:
        worker.run()
    except Exception as error:
        worker.journal.write("broken", **describe(error))
        traceback.print_exc()
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
