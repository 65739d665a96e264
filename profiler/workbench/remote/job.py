"""A job and its result, each a zip: a head in JSON, and files named by the sha256 of their content;
and a worker behind pipes, here or over ssh: the job goes in, events and a result out.

What is unpacked here came from another machine: sizes are bounded, content is compared with its
hash, and a path is only a key of the head.
"""

from __future__ import annotations

import hashlib
import io
import queue
import re
import subprocess
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import IO, TypeVar

import msgspec

import workbench
from workbench.app.doctor import Diagnosis
from workbench.errors import ToolFailed
from workbench.judge.open_verdicts import Deciding
from workbench.run.gpu import Gpu
from workbench.run.plan import MeasuredPlan, Plan
from workbench.run.protocol import CeilingsJob, ErrorText, Event, TrialJob, decode
from workbench.study import json_text
from workbench.study.config import Config
from workbench.study.model import Study
from workbench.study.workspace import CONFIG_FILE
from workbench.words import Parameter

HEAD = "head.json"
MOST_FILES = 10_000
MOST_BYTES = 1 << 30  # of a zip, and of all that is in it

H = TypeVar("H", bound=msgspec.Struct)


class AboutJob(msgspec.Struct, frozen=True, kw_only=True, tag_field="job", tag="about"):
    """What the machine has; ``doctor``: with the findings of `workbench doctor`."""

    doctor: bool = False


class RemoteJob(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure, with all that decides about it.

    ``code`` is the digest of the workbench that made it, ``gpu`` the name of the GPU it is for.
    ``sources`` maps paths of a workspace to sha256, ``derived`` is as in a worker's job, and
    ``command`` is what the user typed. ``instead`` of a plan it may be a job that measures no
    variants.
    """

    code: str
    gpu: str = ""
    study: str = ""
    plan: Plan = Plan("")
    derived: dict[str, dict[str, Parameter]] = {}
    sources: dict[str, str] = {}
    config: Config = Config()
    deciding: Deciding = Deciding()
    command: tuple[str, ...] = ()
    instead: TrialJob | CeilingsJob | AboutJob | None = None


class About(msgspec.Struct, frozen=True, kw_only=True):
    """A machine: its GPU, why it cannot measure, installed distributions by normalised name, and
    what `workbench doctor` finds where it was asked for.
    """

    host: str
    gpu: Gpu | None
    lacks: ErrorText | None
    packages: dict[str, str]
    doctor: Diagnosis | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a job: ``files`` maps paths of an evidence folder to sha256; ``seconds`` are
    those in which it had the GPU called ``gpu``. With ``error`` there is no evidence.
    """

    files: dict[str, str] = {}
    gpu: str = ""
    seconds: float = 0.0
    measured: MeasuredPlan = msgspec.field(default_factory=MeasuredPlan)
    about: About | None = None
    error: ErrorText | None = None


def normalised(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def pack(head: msgspec.Struct, contents: Iterable[bytes] = ()) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(HEAD, msgspec.json.encode(head))
        for name, data in {digest(data): data for data in contents}.items():
            packed.writestr(name, data)
    return out.getvalue()


def unpack(data: bytes, kind: type[H]) -> tuple[H, dict[str, bytes]]:
    """The head, and contents by sha256. Raises ToolFailed for what ``pack`` did not make."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            entries = packed.infolist()
            if len(entries) > MOST_FILES or sum(e.file_size for e in entries) > MOST_BYTES:
                raise ToolFailed("a zip is too large", hint=f"{MOST_BYTES >> 20} MiB at most")
            found = {entry.filename: _content(packed, entry) for entry in entries}
        head: H = json_text.as_type(found.pop(HEAD, b""), kind)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError) as error:
        raise ToolFailed(f"a zip cannot be read: {error}") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise ToolFailed(f"the head of a zip is damaged: {error}") from None
    for name, content in found.items():
        if digest(content) != name:
            raise ToolFailed(f"a file of a zip does not match its sha256 {name[:16]!r}")
    return head, found


def _content(packed: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """No more of it than the entry declares: deflate can expand a thousandfold."""
    with packed.open(entry) as file:
        return file.read(entry.file_size + 1)


def lay_out(files: Mapping[str, str], contents: Mapping[str, bytes], root: Path) -> None:
    """Write files below ``root``. Raises ToolFailed for a path that leaves it, or lacks content."""
    for name, sha256 in files.items():
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts or "\0" in name:
            raise ToolFailed(f"a source file has the path {name!r}, outside of the workspace")
        if sha256 not in contents:
            raise ToolFailed(f"the job came without the content of {name}")
        target = root / parts
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(contents[sha256])
    (root / CONFIG_FILE).write_text("")  # settings travel in the head


def sources_of(study: Study) -> dict[str, bytes]:
    """A study's own files and its ladder, by the path that they have in a workspace."""
    found = {
        f"kernels/{study.name}/{path.relative_to(study.folder).as_posix()}": path.read_bytes()
        for path in sorted(study.folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    return {**found, f"ablations/{study.name}/ablation.toml": study.ladder.path.read_bytes()}


def package_files() -> dict[str, Path]:
    """The files of this package, without the studies that a wheel holds."""
    top = Path(workbench.__file__).parent
    return {
        path.relative_to(top.parent).as_posix(): path
        for path in sorted(top.rglob("*"))
        if path.is_file() and not {"_content", "__pycache__"} & {*path.relative_to(top).parts}
    }


@cache
def own_code() -> str:
    """A digest of this package: both ends must measure and read in the same way."""
    found = hashlib.sha256()
    for name, path in package_files().items():
        found.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


RESULT = "workbench-result"
LONGEST_LINE = 1 << 26  # of an event: a session of many variants
POLL_SECONDS = 0.2
END_SECONDS = 75.0  # for a worker that is not wanted any more to hand over what it has finished


def framed(data: bytes) -> bytes:
    return f"{len(data)}\n".encode() + data


def exchange(
    process: subprocess.Popen[bytes],
    parts: Sequence[bytes],
    hear: Callable[[Event], None] = lambda event: None,
    is_wanted: Callable[[], bool] = lambda: True,
) -> bytes:
    """The result of the job that is the last of ``parts``; b"" where the process ends without one.

    After Ctrl-C, or when the job is not wanted any more, its stdin ends, and the result is what was
    finished. A second Ctrl-C kills the process.
    """
    found: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    sent = threading.Event()
    threading.Thread(target=_talk, args=(process, parts, hear, sent, found), daemon=True).start()
    last: float | None = None
    while True:
        try:
            if last is None and not is_wanted():
                raise KeyboardInterrupt
            if last is not None and time.monotonic() > last:
                process.kill()
            with suppress(queue.Empty):
                result = found.get(timeout=POLL_SECONDS)
                break
        except KeyboardInterrupt:
            if last is not None or not sent.is_set():  # nothing is measured before
                process.kill()
            else:
                _end(process)
            last = time.monotonic() + END_SECONDS
    _end(process)
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)
    killed(process)
    return result


def killed(process: subprocess.Popen[bytes]) -> None:
    """At once, with its streams closed."""
    _end(process)
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with suppress(OSError, ValueError):
        process.stdin.close()


def _talk(
    process: subprocess.Popen[bytes],
    parts: Sequence[bytes],
    hear: Callable[[Event], None],
    sent: threading.Event,
    found: queue.SimpleQueue[bytes],
) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    result = b""
    try:
        with suppress(OSError, ValueError):  # it has ended, and says why
            for part in parts:
                process.stdin.write(part)
            process.stdin.flush()
            sent.set()
        result = _result(process.stdout, hear)
    finally:
        found.put(result)


def _result(lines: IO[bytes], hear: Callable[[Event], None]) -> bytes:
    while line := lines.readline(LONGEST_LINE):
        word, _, size = line.decode(errors="replace").strip().partition(" ")
        if word == RESULT and size.isdigit() and int(size) <= MOST_BYTES:
            data = lines.read(int(size))
            return data if len(data) == int(size) else b""
        with suppress(ToolFailed):  # a login may print lines of its own
            hear(decode(line.decode(errors="replace")))
    return b""
