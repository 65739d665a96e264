"""Runs a job, whatever brought it: a zip on stdin, events and a zip on stdout.

    python -P -m workbench.remote.worker

It unpacks the job into a scratch folder on this machine, takes a GPU and measures as any command
does. It stops as at Ctrl-C, with what it has finished, when its stdin ends: nobody wants it then.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path

from workbench.app.doctor import diagnosis
from workbench.app.executor import Task, perform
from workbench.errors import EnvironmentLacks, WorkbenchError
from workbench.evidence.layout import EvidenceFolder
from workbench.remote.job import (
    RESULT,
    About,
    AboutJob,
    RemoteJob,
    Result,
    digest,
    lay_out,
    normalised,
    own_code,
    pack,
    unpack,
)
from workbench.run import machine
from workbench.run.gpu import environment_of, folder_of, gpus, locked, own_folder
from workbench.run.plan import MeasuredPlan
from workbench.run.protocol import ErrorText, Event, encode
from workbench.run.recording import act_for
from workbench.study.params import with_derived
from workbench.study.workspace import find_workspace, including

KEPT_SECONDS = 86400.0  # for which builds are kept after they were used last
STOP_SECONDS = 60.0  # for ncu to write its report


def carry_out(data: bytes, tell: Callable[[Event], None] = lambda event: None) -> bytes:
    """The result of a job, both as zips. An error that a user can meet is a result, too."""
    try:
        job, contents = unpack(data, RemoteJob)
        if job.code != own_code():
            raise EnvironmentLacks(
                "the workbench there is another version than the one here",
                hint="install the same commit on both machines",
            )
        if isinstance(job.instead, AboutJob):
            return pack(Result(about=about(doctor=job.instead.doctor)))
        act_for(job.command)
        with one_gpu(job.gpu) as scratch:
            return measured(job, contents, scratch, tell)
    except KeyboardInterrupt:
        return pack(Result(measured=MeasuredPlan(interrupted=True)))
    except WorkbenchError as error:
        return pack(Result(error=ErrorText.of(error)))


def about(*, doctor: bool) -> About:
    lacks = None if machine.can_measure() else ErrorText.of(machine.why_not_measuring())
    named = ((found.name, found.version) for found in metadata.distributions())
    return About(
        host=platform.node(),
        gpu=machine.find_gpu(),
        lacks=lacks,
        packages={normalised(name): version for name, version in named if name},
        doctor=diagnosis() if doctor else None,
    )


@contextmanager
def one_gpu(name: str) -> Iterator[Path]:
    """A scratch folder, in which this process and its children see one GPU that nobody else of this
    user measures on. Raises EnvironmentLacks where none has this name.
    """
    every = gpus()
    wanted = [gpu for gpu in every if name in ("", gpu.name)]
    if not wanted:
        found = ", ".join(dict.fromkeys(gpu.name for gpu in every)) or "none"
        raise EnvironmentLacks(
            f"{platform.node()} has no {name or 'GPU'} (its GPUs: {found})",
            hint="measure on machines with one model of GPU at a time",
        )
    with locked(wanted) as mine:
        assert mine is not None
        folder = folder_of(mine)
        os.environ.update(environment_of(mine, folder))
        tempfile.tempdir = None  # TMPDIR is another now
        yield folder


def measured(
    job: RemoteJob, contents: dict[str, bytes], scratch: Path, tell: Callable[[Event], None]
) -> bytes:
    began = time.monotonic()
    lay_out(job.sources, contents, scratch / "workspace")
    gpu = machine.find_gpu()
    assert gpu is not None
    folder = EvidenceFolder(scratch / "evidence" / gpu.slug)
    folder.root.mkdir(parents=True)
    done = measure(job, scratch / "workspace", folder, tell)
    files = {
        path.relative_to(folder.root).as_posix(): path.read_bytes()
        for path in sorted(folder.root.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and path.parent.name != "tables"
    }
    result = Result(
        files={name: digest(data) for name, data in files.items()},
        gpu=gpu.full_name,
        seconds=time.monotonic() - began,
        measured=done,
    )
    return pack(result, files.values())


def measure(
    job: RemoteJob, root: Path, folder: EvidenceFolder, tell: Callable[[Event], None]
) -> MeasuredPlan:
    """As this machine measures for a command of its own, with the sources in ``root``."""
    workspace = find_workspace(root)
    study = with_derived(workspace.study(job.study), job.derived)
    study, _ = including(study, job.plan.variants)
    assert not isinstance(job.instead, AboutJob)
    task = Task(workspace, study, job.config, folder, job.plan, job.deciding, job.instead)
    return perform(task, tell, None if job.instead else builds_of(job))


def builds_of(job: RemoteJob) -> Path:
    """Shared by the jobs of these sources; folders that nobody used for a day go."""
    name = digest(json.dumps(job.sources, sort_keys=True).encode())[:16]
    folder = own_folder() / "cubins" / name
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder)
    for other in folder.parent.iterdir():
        with suppress(OSError):  # another job was faster
            if other.stat().st_mtime < time.time() - KEPT_SECONDS:
                shutil.rmtree(other)
    return folder


def stop_with(stdin: int) -> None:
    """Stop as at Ctrl-C when stdin ends, and for certain a while later. Nothing follows the job."""
    os.read(stdin, 1)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(STOP_SECONDS)
    os._exit(1)


def main() -> int:
    stdin, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what is printed is no result
    data = stdin.read(int(stdin.readline()))
    threading.Thread(target=stop_with, args=(stdin.fileno(),), daemon=True).start()

    def tell(event: Event) -> None:
        out.write(encode(event))

    with suppress(BrokenPipeError):
        result = carry_out(data, tell)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for part in (f"{RESULT} {len(result)}\n".encode(), result):
            view = memoryview(part)
            while view:
                view = view[out.write(view) :]
    return 0


if __name__ == "__main__":
    sys.exit(main())
