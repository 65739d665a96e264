"""A job is a zip in, a zip out: a head in JSON, and files by their path. Carries one out:

    python -P -m workbench.remote.worker

See ``bootstrap`` for stdin, stdout and stderr.
"""

from __future__ import annotations

import hashlib
import io
import os
import signal
import sys
import threading
import time
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TypeVar

import msgspec

from workbench import bounds, children
from workbench.app.executor import Task, perform
from workbench.errors import ToolFailed, WorkbenchError
from workbench.evidence.store import EvidenceFolder
from workbench.judge.open_verdicts import Deciding
from workbench.remote.bootstrap import MAX_BYTES, STOP_SECONDS, say
from workbench.run import machine
from workbench.run.compilation import shared_builds
from workbench.run.machine import Gpu, one_gpu
from workbench.run.measurement import MeasuredPlan, Plan
from workbench.run.protocol import ErrorText, Event, TrialJob, encode
from workbench.run.recording import act_for
from workbench.study.config import Config
from workbench.study.files import CONFIG_FILE, PART, json_as_type, require_inside
from workbench.study.params import including, with_derived
from workbench.study.sources import COMPILING
from workbench.study.workspace import find_workspace
from workbench.words import Parameter

HEAD = "head.json"
BAD_ZIP = (zipfile.BadZipFile, zlib.error, OSError, EOFError, RuntimeError, TypeError, ValueError)

H = TypeVar("H", bound=msgspec.Struct)


class RemoteJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job has a task of ``app/executor`` and the settings of the user's workspace; one without a
    study asks about the machine. ``gpu`` is the model to measure on, ``command`` is what the user
    typed, and ``variables`` are those of the user's environment that evidence depends on.
    """

    gpu: str = ""
    study: str = ""
    plan: Plan = Plan("")
    derived: dict[str, dict[str, Parameter]] = {}
    config: Config = Config()
    deciding: Deciding = Deciding()
    command: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    instead: TrialJob | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A result comes with the files of an evidence folder, which are of ``gpu``, or says what is on
    the machine, or why not.
    """

    gpu: Gpu | None = None
    measured: MeasuredPlan = msgspec.field(default_factory=MeasuredPlan)
    packages: dict[str, str] = {}
    error: ErrorText | None = None


def pack(head: msgspec.Struct, files: Mapping[str, bytes] | None = None) -> bytes:
    return zipped({HEAD: msgspec.json.encode(head), **(files or {})})


def zipped(files: Mapping[str, bytes]) -> bytes:
    """Return a zip, the same bytes for the same files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


def files_below(folder: Path, prefix: str = "") -> dict[str, bytes]:
    """Return the files below a folder by their path, without compiled and unfinished ones."""
    return {
        prefix + path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != PART and path.parent.name != "__pycache__"
    }


def unpack(data: bytes, kind: type[H]) -> tuple[H, dict[str, bytes]]:
    """Return the head, and files by path. Raises ToolFailed for what ``pack`` did not make."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if len(entries) > bounds.JOB_FILES or sum(e.file_size for e in entries) > MAX_BYTES:
                raise ToolFailed("a zip is too large", hint=f"{MAX_BYTES >> 20} MiB at most")
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise ValueError("a file is compressed")
            files = {entry.filename: archive.read(entry) for entry in entries}
        head: H = json_as_type(files.pop(HEAD, b""), kind)
    except BAD_ZIP as error:
        raise ToolFailed(f"a zip cannot be read: {error}") from None
    return head, files


def carry_out(data: bytes) -> bytes:
    """Return a job's result: evidence, what the machine has, or an error that a user can meet."""
    try:
        job, sources = unpack(data, RemoteJob)
        if not job.study:
            if not machine.can_measure():
                raise machine.why_not_measuring()
            packages = ((package.name, package.version) for package in metadata.distributions())
            versions = {name.lower().replace("_", "-"): v for name, v in packages if name}
            return pack(Result(gpu=machine.find_gpu(), packages=versions))
        act_for(job.command)
        with one_gpu(job.gpu, say) as (gpu, scratch):
            return measured(job, sources, gpu, scratch)
    except KeyboardInterrupt:
        return pack(Result(measured=MeasuredPlan(interrupted=True)))
    except WorkbenchError as error:
        return pack(Result(error=ErrorText.of(error)))


def measured(job: RemoteJob, sources: Mapping[str, bytes], gpu: Gpu, scratch: Path) -> bytes:
    """Measure as this machine does for a command of its own, and pack the evidence."""
    root = scratch / "workspace"
    for name, data in {**sources, CONFIG_FILE: b""}.items():  # settings come with the job
        require_inside(root / name, root)
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    workspace = find_workspace(root)
    study = with_derived(workspace.study(job.study), job.derived)
    study, _ = including(study, job.plan.variants)
    folder = EvidenceFolder(scratch / "evidence" / gpu.slug)
    folder.root.mkdir(parents=True)
    task = Task(study, job.config, folder, job.plan, job.deciding, job.instead)
    for name in COMPILING:
        os.environ[name] = job.variables.get(name, "")
    digest = hashlib.sha256(zipped(sources) + repr(job.variables).encode()).hexdigest()[:16]
    done = perform(task, tell, None if job.instead else shared_builds(digest))
    return pack(Result(gpu=gpu, measured=done), files_below(folder.root))


def tell(event: Event) -> None:
    sys.stderr.buffer.write(encode(event))
    sys.stderr.flush()


def stop_with(stdin: int) -> None:
    """Stop as at Ctrl-C when stdin ends, and for certain a while later. Nothing follows the job."""
    os.read(stdin, 1)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(STOP_SECONDS)
    os._exit(1)


def main() -> None:
    if (status := children.kept()) is not None:
        sys.exit(children.end_like(status))
    children.unblock()
    children.hide_memory()  # a variant's process is of the same user
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed is no result
    job = sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))
    threading.Thread(target=stop_with, args=(0,), daemon=True).start()
    with suppress(BrokenPipeError), out:
        result = carry_out(job)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        out.write(result)


if __name__ == "__main__":
    main()
