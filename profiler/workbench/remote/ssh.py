"""A host that the user's own ``ssh`` reaches without a question."""

from __future__ import annotations

import base64
import io
import re
import shlex
import signal
import subprocess
import threading
import zipfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import IO

from workbench.errors import EnvironmentLacks, ToolFailed, UsageError, WorkbenchError
from workbench.remote import bootstrap
from workbench.remote.job import exchange, framed, killed, package_files
from workbench.run.protocol import Event

DISTRIBUTION = "kernel-workbench"
DESTINATION = re.compile(r"(?P<host>[\w][\w.@%-]*)(:(?P<python>~?[\w./+-]+))?")
OPTIONS = ("BatchMode=yes", "ServerAliveInterval=15", "ServerAliveCountMax=4")
PYTHONS = ("python3", "python3.14", "python3.13", "python3.12", "python3.11")
NO_PYTHON, NO_CONNECTION = 97, 255
LINES_KEPT = 20
CACHE = "~/.cache/workbench/remote"


class SshHost:
    """``name`` is ``[user@]host[:python]``; ``note`` gets lines that the user is to read."""

    def __init__(self, name: str, note: Callable[[str], None]) -> None:
        found = DESTINATION.fullmatch(name)
        if found is None:
            raise UsageError(
                f"--on '{name}' is no host that ssh takes",
                hint="HOST, USER@HOST, HOST:/path/to/python, or tls://HOST:PORT of a Dask cluster",
            )
        self.name, self.host, self.python = name, found["host"], found["python"]
        self.note = note

    def results(
        self, jobs: Sequence[bytes], hear: Callable[[Event], None]
    ) -> Iterator[tuple[int, bytes | WorkbenchError]]:
        """One after the other, each by its place among ``jobs``."""
        for i, job in enumerate(jobs):
            yield i, self.result(job, hear)

    def result(self, job: bytes, hear: Callable[[Event], None]) -> bytes | WorkbenchError:
        code = packed_code()
        options = [part for option in OPTIONS for part in ("-o", option)]
        process = subprocess.Popen(
            ["ssh", "-T", *options, self.host, command(self.python, code)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process, which ends it in order
        )
        said: deque[str] = deque(maxlen=LINES_KEPT)
        reader = threading.Thread(target=self.read, args=(process.stderr, said), daemon=True)
        found, is_killed = b"", False
        try:
            reader.start()
            found = exchange(process, [code, framed(job)], hear)
        except KeyboardInterrupt:  # where nobody waits for it yet, or any more
            is_killed = True
            killed(process)
        if reader.ident is not None:
            reader.join()
        is_killed = is_killed or process.returncode == -signal.SIGKILL
        if not found and is_killed:  # Ctrl-C before it had the job
            self.note(f"{self.host}: nothing was measured; an installation goes on in {CACHE}")
            raise KeyboardInterrupt
        return found or self.error(process.returncode, said)

    def read(self, lines: IO[bytes], said: deque[str]) -> None:
        with lines:
            for line in lines:
                text = line.decode(errors="replace").rstrip()
                if text.startswith(bootstrap.SAID):
                    self.note(f"{self.host}: {text.removeprefix(bootstrap.SAID)}")
                elif text:
                    said.append(text)

    def error(self, code: int, said: Sequence[str]) -> WorkbenchError:
        last = said[-1] if said else "it says nothing"
        if code == NO_PYTHON:
            return EnvironmentLacks(
                f"{self.host} has no Python 3.11 or newer: {self.python or ', '.join(PYTHONS)}",
                hint=f"name one: --on {self.host}:/path/to/python",
            )
        if code == NO_CONNECTION:
            return EnvironmentLacks(
                f"ssh does not reach {self.host}: {last}",
                hint=f"`ssh {self.host} true` must work without a question",
            )
        if code == bootstrap.NO_PACKAGES:
            return EnvironmentLacks(
                f"pip could not install what the workbench needs on {self.host}: {last}",
                hint=f"name a Python that has the packages: --on {self.host}:/path/to/python",
            )
        return ToolFailed(
            f"the worker on {self.host} ended with exit code {code}: {last}",
            hint="run the same command again: it measures what is missing",
            ran="\n".join(said),
        )


def command(python: str | None, code: bytes) -> str:
    """Of the shell there: the first Python that is new enough runs the bootstrap. No shell reads
    anything in it but letters and digits of base64.
    """
    text = Path(bootstrap.__file__).read_text(encoding="utf-8")
    text += f"\nmain({len(code)}, {requirements()!r})\n"
    load = f"import base64; exec(base64.b64decode('{base64.b64encode(text.encode()).decode()}'))"
    new_enough = "import sys; sys.exit(sys.version_info < (3, 11))"
    loop = (
        f"for p in {python or ' '.join(PYTHONS)}; do "
        f'if "$p" -c "{new_enough}" </dev/null 2>/dev/null; then exec "$p" -c "{load}"; fi; done; '
        f"exit {NO_PYTHON}"
    )
    return f"exec sh -c {shlex.quote(loop)}"


@cache
def packed_code() -> bytes:
    """This package; the same bytes for the same files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, path in package_files().items():
            packed.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def requirements() -> list[str]:
    """Those of the distribution and its extra ``gpu``; none where it runs without being installed:
    the host's Python has to have them then.
    """
    try:
        every = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []
    halves = (text.partition(";") for text in every)
    return [name.strip() for name, _, when in halves if "extra" not in when or "gpu" in when]
