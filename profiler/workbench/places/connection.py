"""One OpenSSH connection to a host, over which everything goes: commands, files, forwarded ports.

The user's own ``ssh`` is run, so that ``~/.ssh/config``, agents, jump hosts and hardware keys work
as they do for him. Nothing is ever asked: what would need an answer is an error.
"""

from __future__ import annotations

import io
import json
import shlex
import shutil
import socket
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

from workbench.errors import EnvironmentLacks, ToolFailed, WorkbenchError
from workbench.places import there
from workbench.places.opened import Tell
from workbench.study.places import SshPlace

READY = "workbench: connected"
LONGEST_SOCKET = 80  # of the folder of a control socket, whose path may have 108 characters
PYTHONS = ("python3", "python3.14", "python3.13", "python3.12", "python3.11")
NO_PYTHON = 97
END_SECONDS = 10.0
LOGIN_SECONDS = 90.0  # for a shell to answer: some wait for a file system
# What ssh says, in the order in which it is looked for, and what to do about it.
TROUBLES = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its key is another than the one on record",
        "ask who runs it; `ssh-keygen -R {host}` forgets the old key",
    ),
    (
        "Host key verification failed",
        "its key is not known here",
        "run `ssh {host}` once yourself, and compare the fingerprint with the host's",
    ),
    (
        "Permission denied",
        "it lets nobody in with the keys that were tried",
        "`ssh-copy-id {host}`, say `identity` and `user` in workbench.toml, or unlock the key with "
        "`ssh-add`",
    ),
    ("Could not resolve hostname", "there is no such host", "look at `hosts` in workbench.toml"),
    (
        "Bad configuration option",
        "ssh does not read its configuration",
        "mend the file that it names",
    ),
    ("Connection refused", "nothing listens there", "look at `port`, and whether sshd runs"),
    ("No route to host", "there is no way to it", "look at the network, or at a VPN"),
    ("timed out", "it does not answer", "look at the network, or at a VPN"),
)


def unreachable(host: str, said: str) -> EnvironmentLacks:
    """The error for a host that ``ssh`` did not reach, from its own words."""
    for words, why, hint in TROUBLES:
        if words in said:
            return EnvironmentLacks(f"{host}: {why}", hint=hint.format(host=host), ran=_last(said))
    return EnvironmentLacks(
        f"{host} cannot be reached over SSH: {_last(said) or 'no command is run there'}",
        hint=f"`ssh {host} true` must work without a question",
    )


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def free_port() -> int:
    """One of the loopback's that nobody listens on at this moment."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return int(tried.getsockname()[1])


class Connection:
    """Raises EnvironmentLacks where there is no ssh, or it does not get there."""

    def __init__(self, place: SshPlace, host: str) -> None:
        if shutil.which("ssh") is None:
            raise EnvironmentLacks("ssh was not found", hint="install OpenSSH's client")
        self.place, self.host = place, host
        self.folder = Path(tempfile.mkdtemp(prefix="workbench-ssh-", dir=_short_folder()))
        self.socket = self.folder / "s"
        self.master: subprocess.Popen[str] | None = None

    def __enter__(self) -> Connection:
        try:
            self._connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def _connect(self) -> None:
        """The master ends when its stdin does: also where this process is killed."""
        command = ["ssh", *self._login(), "-M", "-T", self.host, f"echo '{READY}'; exec cat"]
        with (self.folder / "said").open("w") as said:
            self.master = _start(command, stderr=said)
        assert self.master.stdout is not None
        silence = threading.Timer(LOGIN_SECONDS, self.master.terminate)
        silence.start()
        try:
            for line in self.master.stdout:
                if line.strip() == READY:
                    return
        finally:
            silence.cancel()
        raise unreachable(self.host, (self.folder / "said").read_text(errors="replace"))

    def _login(self) -> list[str]:
        place = self.place
        given = {"-F": place.config, "-l": place.user, "-i": place.identity}
        options = [
            *("BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=15"),
            *("ServerAliveCountMax=4", f"ControlPath={self.socket}", "ControlPersist=no"),
            *("ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes"),
            *("RemoteCommand=none", "RequestTTY=no", "PermitLocalCommand=no"),
        ]
        return [
            *(part for flag, value in given.items() if value for part in (flag, value)),
            *(("-p", str(place.port)) if place.port else ()),
            *(part for option in options for part in ("-o", option)),
        ]

    def _over(self, *arguments: str) -> list[str]:
        """Over the master, and never by a connection of its own."""
        own = ["-F", "none", "-S", str(self.socket)]
        options = ["ControlMaster=no", "BatchMode=yes", "ProxyCommand=false"]
        return ["ssh", *own, *(part for o in options for part in ("-o", o)), *arguments]

    @property
    def is_open(self) -> bool:
        return self.master is not None and self.master.poll() is None

    def close(self) -> None:
        """What runs over it sees the end of its stdin, and ends."""
        if self.master is not None:
            end(self.master)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, command: Sequence[str], stderr: Any = subprocess.PIPE) -> subprocess.Popen[str]:
        """With pipes, as text."""
        shell = f"exec sh -c {shlex.quote('exec ' + shlex.join(command))}"
        return _start(self._over("-T", self.host, shell), stderr=stderr)

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """To its end, with nothing on stdin. Raises EnvironmentLacks where the connection broke."""
        started = self.start(command)
        out, err = started.communicate()
        if started.returncode == 255 and not self.is_open:
            raise unreachable(self.host, err)
        return subprocess.CompletedProcess(list(command), started.returncode, out, err)

    def forward_to_here(self, port: int) -> int:
        """The port of the loopback there that leads to ``port`` of the loopback here."""
        out = self._control("forward", "-R", f"127.0.0.1:0:127.0.0.1:{port}")
        return int(out.strip())

    def forward_from_here(self, port: int, there: int) -> None:
        """``port`` of the loopback here leads to ``there`` of the loopback there."""
        self._control("forward", "-L", f"127.0.0.1:{port}:127.0.0.1:{there}")

    def _control(self, *arguments: str) -> str:
        done = subprocess.run(
            self._over("-O", *arguments, self.host), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise EnvironmentLacks(
                f"{self.host} forwards no ports: {_last(done.stderr)}",
                hint="its sshd must have AllowTcpForwarding yes",
            )
        return done.stdout

    def ask(
        self, request: Mapping[str, Any], files: Sequence[Path] = (), tell: Tell | None = None
    ) -> dict[str, Any]:
        """What ``there`` answers to a request; ``tell`` gets the lines that it says meanwhile.

        Raises EnvironmentLacks where there is no Python, ToolFailed where it ends without an
        answer. What it refuses is among the answers.
        """
        script, said = Path(there.__file__).read_bytes(), list[str]()
        with _start(self._over("-T", self.host, self._bootstrap(len(script), request))) as started:
            assert started.stdin is not None
            assert started.stdout is not None
            reader = threading.Thread(target=_read, args=(started.stderr, said, tell), daemon=True)
            reader.start()
            with suppress(BrokenPipeError):  # it says why
                raw(started.stdin).write(script)
                with tarfile.open(fileobj=raw(started.stdin), mode="w|") as sent:
                    for path in files:
                        sent.add(path, arcname=path.name)
            with suppress(BrokenPipeError):
                started.stdin.close()
            found = answer(started.stdout)
            reader.join()
        if found:
            return cast("dict[str, Any]", json.loads(found))
        raise self._no_answer(started.returncode, "".join(said))

    def _bootstrap(self, size: int, request: Mapping[str, Any]) -> str:
        """Of the shell there: the first Python that is new enough reads the script and runs it."""
        new_enough = "import sys; sys.exit(sys.version_info < (3, 11))"
        load = f"import sys; exec(sys.stdin.buffer.read({size}))"
        names = [self.place.python] if self.place.python else PYTHONS
        loop = (
            f"for p in {shlex.join(names)}; do "
            f"if \"$p\" -c '{new_enough}' </dev/null 2>/dev/null; then "
            f"exec \"$p\" -c '{load}' {shlex.quote(json.dumps(request))}; fi; done; "
            f"exit {NO_PYTHON}"
        )
        return f"exec sh -c {shlex.quote(loop)}"

    def _no_answer(self, code: int, said: str) -> WorkbenchError:
        if code == NO_PYTHON:
            named = f"'{self.place.python}' there" if self.place.python else "what is on PATH there"
            return EnvironmentLacks(
                f"{self.host} has no Python 3.11 or newer: {named} is missing or older",
                hint=f'install one (uv needs no root), and say python = "..." in '
                f"[places.{self.place.name}]",
            )
        if not self.is_open:
            return unreachable(self.host, said)
        return ToolFailed(
            f"{self.host}: what was sent there ended with exit code {code}", ran=_last(said)
        )


def _start(command: Sequence[str], stderr: Any = subprocess.PIPE) -> subprocess.Popen[str]:
    """Away from the terminal's Ctrl-C: what it carries is ended in order."""
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def end(process: subprocess.Popen[str], seconds: float = END_SECONDS) -> None:
    """Close its stdin, which ends what it carries, and wait for it so long."""
    with suppress(OSError):
        if process.stdin is not None:
            process.stdin.close()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _read(lines: IO[str], said: list[str], tell: Tell | None) -> None:
    for line in lines:
        said.append(line)
        if tell is not None:
            tell(line.rstrip())


def answer(lines: IO[str]) -> str:
    """What comes behind the word for it; "" where there is none. A login may print lines of its own
    before.
    """
    for line in lines:
        if line.startswith(there.ANSWER):
            return line.removeprefix(there.ANSWER)
    return ""


def raw(pipe: IO[str]) -> IO[bytes]:
    """What lies below a pipe that is read and written as text."""
    return cast("IO[bytes]", cast("io.TextIOWrapper", pipe).buffer)


def _short_folder() -> str | None:
    """None, the system's own, where its path leaves room for that of a socket."""
    return None if len(tempfile.gettempdir()) < LONGEST_SOCKET else "/tmp"
