"""A host to be reached: a real ``sshd`` on the loopback, with a home and a PATH of its own.

NVML and ``ncu`` there say what a machine with these cards would.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import fake_nvml
from answers import Patch, not_none
from remote_gpus import NCU, card, nvml
from workbench.run.machine import Gpu

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
NAME = "gpu1"
CARDS = (card(0), card(1))


def free_port() -> int:
    """One of the loopback's that nobody listens on, and that the system gives to no connection."""
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with suppress(OSError), socket.socket() as tried:
            tried.bind(("127.0.0.1", port))
            return port


def needed() -> None:
    """Skips where there is no sshd, or no ssh to reach it with."""
    missing = [name for name in ("ssh", "ssh-keygen") if shutil.which(name) is None]
    if SSHD is None or missing:
        pytest.skip(f"no {', '.join(missing or ['sshd'])} here (apt-get install openssh-server)")


@dataclass
class Host:
    """``root`` has its home and programs, ``config`` is for ``ssh -F``."""

    root: Path
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def programs(self) -> Path:
        return self.root / "bin"

    @property
    def config(self) -> Path:
        return self.root / "ssh_config"

    @property
    def on(self) -> str:
        """For ``--on``, with this Python's packages, so that nothing is fetched."""
        return f"{NAME}:{sys.executable}"

    def use(self, monkeypatch: Patch) -> None:
        """The ssh that this process starts reads this configuration, and no other."""
        own = self.root / "here"
        own.mkdir(exist_ok=True)
        (own / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.config} "$@"\n')
        (own / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", f"{own}{os.pathsep}{os.environ['PATH']}")

    def program(self, name: str, text: str) -> None:
        path = self.programs / name
        path.write_text(text)
        path.chmod(0o755)

    def cards(self, cards: Sequence[Gpu]) -> None:
        nvml(cards, self.root)


def key(path: Path) -> str:
    """Make one; its public part."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path.with_suffix(".pub").read_text()


def standing_in(standin: Path, root: Path) -> dict[str, str]:
    """The environment in which workers are those of ``onremote``, on the GPUs of a host."""
    tests = Path(__file__).parent
    return {
        "PYTHONPATH": f"{tests / 'onremote'}:{tests}",
        "WORKBENCH_STANDIN": str(standin),
        fake_nvml.FILE: str(root / "nvml.json"),
    }


@contextmanager
def running(
    root: Path, environment: Mapping[str, str] | None = None, command: str = "none"
) -> Iterator[Host]:
    """``environment`` is of whoever logs in, beside a HOME and a PATH; ``command`` is run in place
    of what he asks for.
    """
    needed()
    host = Host(root, free_port())
    for folder in (host.home, host.programs):
        folder.mkdir(parents=True)
    host.cards(CARDS)
    host.program("ncu", NCU)
    (host.home / ".bashrc").write_text("echo 'Welcome {}'\n")  # as some machines greet everybody
    public = key(root / "host_key").split()
    (root / "authorized").write_text(key(root / "user_key"))
    (root / "known").write_text(f"[127.0.0.1]:{host.port} {public[0]} {public[1]}\n")
    host.config.write_text(
        f"Host {NAME}\n HostName 127.0.0.1\n Port {host.port}\n IdentityFile {root}/user_key\n"
        f" IdentitiesOnly yes\n IdentityAgent none\n UserKnownHostsFile {root}/known\n"
        " GlobalKnownHostsFile /dev/null\n StrictHostKeyChecking yes\n"
    )
    path = f"{host.programs}:/usr/bin:/bin"
    given = {"HOME": str(host.home), "PATH": path, **(environment or {})}
    (root / "sshd_config").write_text(
        "\n".join(
            [
                f"Port {host.port}",
                "ListenAddress 127.0.0.1",
                f"HostKey {root}/host_key",
                f"AuthorizedKeysFile {root}/authorized",
                f"PidFile {root}/pid",
                f"ForceCommand {command}",
                "StrictModes no",
                "UsePAM no",
                "PasswordAuthentication no",
                "KbdInteractiveAuthentication no",
                f"SetEnv {' '.join(f'{name}={value}' for name, value in given.items())}",
            ]
        )
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where it sits while it asks who is there
    with (root / "sshd.log").open("wb") as log:
        host.process = subprocess.Popen(
            [not_none(SSHD), "-D", "-e", "-f", str(root / "sshd_config")], stderr=log
        )
    try:
        until_it_listens(host)
        yield host
    finally:
        host.process.terminate()
        host.process.wait()


def until_it_listens(host: Host) -> None:
    last = time.monotonic() + 60
    while True:
        assert host.process is not None
        with suppress(OSError), socket.create_connection(("127.0.0.1", host.port), timeout=1):
            if host.process.poll() is None:
                return
        if host.process.poll() is not None or time.monotonic() > last:
            pytest.skip(f"sshd does not start here: {(host.root / 'sshd.log').read_text()[-300:]}")
        time.sleep(0.05)
