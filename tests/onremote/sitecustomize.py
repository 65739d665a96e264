"""Puts the stand-in for the GPU under a remote worker, where a test asks for it.

Python imports this of every process that has its folder on PYTHONPATH. ``WORKBENCH_STANDIN`` is a
folder: a file in it that is called after a fault happens to the first job that finds it, and is
gone then. Every job adds its process to ``ran``.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = "WORKBENCH_STANDIN"


def fault(folder: Path) -> str:
    """The next one; each is met once."""
    for path in sorted(folder.glob("fault-*")):
        try:
            path.unlink()
        except FileNotFoundError:  # another job was faster
            continue
        return path.name.split("-")[1]
    return ""


def dask_worker() -> int:
    """The first process above this one that is no part of a remote worker."""
    pid = os.getpid()
    while b"workbench.remote.worker\0" in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def meet(what: str) -> None:
    match what:
        case "kill":  # the Dask worker, and with it its job
            os.kill(dask_worker(), signal.SIGKILL)
            time.sleep(60)
        case "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            time.sleep(600)


def stand_in(folder: Path) -> None:
    import pytest

    from standin import StandIn, stand_in_for_jobs
    from workbench.run import side_jobs
    from workbench.run.measurement import Measurement

    times = {"baseline": 10.0, "fix": 8.0}
    patched = pytest.MonkeyPatch()
    StandIn(patched, lambda run: times.get(run.variant, 5.0))
    stand_in_for_jobs(patched)

    def faulty(how: Any) -> Any:
        def run(*given: Any, **keywords: Any) -> Any:
            with (folder / "ran").open("a") as file:
                card, temporary = os.environ["CUDA_VISIBLE_DEVICES"], os.environ["TMPDIR"]
                file.write(f"{os.getpid()} {card} {temporary}\n")
            meet(fault(folder))
            return how(*given, **keywords)

        return run

    for where, name in ((Measurement, "run"), (side_jobs, "try_once")):
        patched.setattr(where, name, faulty(getattr(where, name)))


if "WORKBENCH_FAKE_NVML" in os.environ:
    import fake_nvml

    sys.modules["pynvml"] = fake_nvml
if FOLDER in os.environ and "workbench.remote.worker" in sys.orig_argv:
    stand_in(Path(os.environ[FOLDER]))
