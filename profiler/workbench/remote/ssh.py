"""A host that the user's own ``ssh`` reaches without a question."""

from __future__ import annotations

import base64
import re
import shlex
import signal
from collections.abc import Sequence

from workbench.app.executor import Hear, Reporter
from workbench.errors import EnvironmentLacks, ToolFailed, UsageError, WorkbenchError
from workbench.remote import bootstrap
from workbench.remote.bootstrap import exchange
from workbench.remote.remote_target import AGAIN, Answers, Remote, packed_code, program
from workbench.run.protocol import decode

DESTINATION = re.compile(r"(?P<host>[\w][\w.@%-]*)(:(?P<python>~?[\w./+-]+))?")
OPTIONS = (
    "-C",
    "-oBatchMode=yes",
    "-oServerAliveInterval=15",
    "-oServerAliveCountMax=4",
    "-oControlMaster=no",
)
PYTHONS = "python3 python3.14 python3.13 python3.12 python3.11"
NO_PYTHON, NO_CONNECTION = 97, 255


class SshHost(Remote):
    """``name`` is ``[user@]host[:python]``. Raises UsageError for anything else."""

    def __init__(self, name: str, verb: str, reporter: Reporter) -> None:
        super().__init__(name, verb, reporter)
        words = DESTINATION.fullmatch(name)
        if words is None:
            raise UsageError(
                f"--on '{name}' is no host that ssh takes",
                hint="HOST, USER@HOST, HOST:/path/to/python, or tls://HOST:PORT of a Dask cluster",
            )
        self.host, self.pythons = words["host"], words["python"] or PYTHONS

    def carry(self, jobs: Sequence[bytes], hear: Hear) -> Answers:
        """Carry out one job after the other."""

        def take(line: str) -> bool:
            """Whether it is an event or a note."""
            try:
                hear(decode(line))
            except ToolFailed:
                if not line.startswith(bootstrap.NOTE):
                    return False
                self.note(f"{self.host}: {line.removeprefix(bootstrap.NOTE)}")
            return True

        for number, job in enumerate(jobs):
            command = ["ssh", "-T", *OPTIONS, self.host, remote_command(self.pythons)]
            result, code, said = exchange(command, packed_code() + job, take)
            if not result and code == -signal.SIGKILL:  # by Ctrl-C
                self.note(f"{self.host} sent no result; an installation by pip goes on there")
                raise KeyboardInterrupt
            yield number, result or self.failure(code, said)

    def failure(self, code: int, said: str) -> WorkbenchError:
        """Return why there is no result, by ssh's exit code and the last lines."""
        last, host = said.rpartition("\n")[2] or "it says nothing", self.host
        if code == bootstrap.SILENT:
            last = f"nothing came for {bootstrap.FIRST_SECONDS:g} s"
        if code in (NO_CONNECTION, bootstrap.SILENT):
            hint = f"`ssh {host} true` must work without a question; then {AGAIN}"
            return EnvironmentLacks(f"ssh does not reach {host}, or lost it: {last}", hint=hint)
        if code not in (NO_PYTHON, bootstrap.NO_PACKAGES):
            why = f"the worker on {host} ended with exit code {code}: {last}"
            return ToolFailed(why, hint=AGAIN, ran=said)
        why = f"pip could not install what the workbench needs on {host}: {last}"
        if code == NO_PYTHON:
            why = f"{host} has no Python 3.11 or newer: {self.pythons}"
        hint = f"name a Python that has the packages: --on {host}:/path/to/python"
        return EnvironmentLacks(why, hint=hint)


def remote_command(pythons: str) -> str:
    """Return what the shell there runs: the first Python that is new enough becomes a worker. No
    shell reads anything in it but letters and digits of base64.
    """
    load = (
        f"import base64; exec(base64.b64decode('{base64.b64encode(program().encode()).decode()}'))"
    )
    is_old = "import sys; sys.exit(sys.version_info < (3, 11))"
    loop = (
        f'for p in {pythons}; do if "$p" -c "{is_old}" </dev/null 2>/dev/null; '
        f'then exec "$p" -c "{load}"; fi; done; exit {NO_PYTHON}'
    )
    return f"exec sh -c {shlex.quote(loop)}"
