"""Measuring over a real sshd on the loopback, with a stand-in for the GPU."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import ssh_host
from answers import Capsys, Patch, both_of, error_of, json_of, not_none
from remote.test_remote import but_for_provenance, evidence, workspace
from ssh_host import Host
from standin import StandIn
from workbench.cli.main import main
from workbench.remote import remote_target
from workbench.run.machine import VISIBLE
from workspaces import GOOD, make

pytestmark = pytest.mark.slow
SECONDS = 60.0


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it writes what it did."""
    return tmp_path_factory.mktemp("standin")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, standin: Path) -> Iterator[Host]:
    root = tmp_path_factory.mktemp("host")
    with ssh_host.running(root, ssh_host.standing_in(standin, root)) as started:
        yield started


@pytest.fixture
def host(served: Host, monkeypatch: Patch) -> Host:
    """The ssh of this process reads the configuration of this host."""
    served.use(monkeypatch)
    return served


def workers(host: Host) -> list[int]:
    """Those of this host, and of no other test."""
    home, found = f"\0HOME={host.home}\0".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            if b"workbench.remote.worker\0" in command:
                environment = b"\0" + (folder / "environ").read_bytes()
                found += [int(folder.name)] if home in environment else []
    return found


def ended(host: Host) -> bool:
    last = time.monotonic() + SECONDS
    while workers(host) and time.monotonic() < last:
        time.sleep(0.2)
    return not workers(host)


def test_a_ladder_measured_over_ssh_is_the_one_measured_here(
    host: Host, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    there, here = workspace(tmp_path / "there"), workspace(tmp_path / "here")
    told = both_of(capsys, "ablate", "--on", host.on, project=there)
    assert f"measured on {host.on} in" in told.err
    with monkeypatch.context() as patched:
        StandIn(patched, lambda run: {"baseline": 10.0, "fix": 8.0}.get(run.variant, 5.0))
        assert main(["ablate", "--project", str(here)]) == 0
    assert capsys.readouterr().out == told.out
    assert but_for_provenance(evidence(there)) == but_for_provenance(evidence(here))
    (code,) = (host.home / ".cache" / "workbench" / "remote").iterdir()
    assert code.name.startswith("code-"), "nothing is installed where all is there"
    assert ended(host)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_what_ends_here_ends_there(
    how: signal.Signals, host: Host, standin: Path, tmp_path: Path
) -> None:
    """By Ctrl-C, or as when the user's machine goes: the connection ends."""
    root = workspace(tmp_path / "ws")
    fault = standin / "fault-hang-0"
    fault.touch()
    command = [sys.executable, "-m", "workbench", "check", "fix", "--on", host.on]
    with subprocess.Popen(
        [*command, "--project", str(root)], stderr=subprocess.PIPE, text=True
    ) as started:
        last = time.monotonic() + SECONDS
        while fault.exists() and time.monotonic() < last:
            time.sleep(0.1)
        assert workers(host)
        started.send_signal(how)
        said = not_none(started.stderr).read()
    assert started.returncode == (130 if how == signal.SIGINT else -how), said
    assert ended(host)


def test_what_is_missing_is_installed_once(host: Host, monkeypatch: Patch, capsys: Capsys) -> None:
    """Into an environment of its own; here pip is given nothing that it has to fetch."""
    needed = ["msgspec>=0.1", "no-such-package>=1"]
    monkeypatch.setattr(remote_target, "requirements", lambda: needed)
    told = error_of(capsys, "check", "--on", host.on, code=3)
    assert "gpu1: installing no-such-package>=1 into" in told
    assert "is deleted again" in told
    assert "pip could not install what the workbench needs" in told
    assert "hint: name a Python that has the packages: --on gpu1:/path/to/python" in told
    assert not list((host.home / ".cache" / "workbench" / "remote").glob("venv-*/"))


@pytest.mark.parametrize(
    ("on", "words"),
    [
        ("gpu1:/no/such/python", "gpu1 has no Python 3.11 or newer"),
        ("gpu1:/bin/false", "gpu1 has no Python 3.11 or newer"),
        ("gpu2", "ssh does not reach gpu2, or lost it: "),
    ],
)
def test_what_a_host_lacks_is_an_error(on: str, words: str, host: Host, capsys: Capsys) -> None:
    assert words in error_of(capsys, "check", "--on", on, code=3)


def test_a_host_without_a_gpu_is_an_error(host: Host, tmp_path: Path, capsys: Capsys) -> None:
    root = workspace(tmp_path / "ws")
    host.cards([])
    try:
        assert main(["check", "--on", host.on, "--project", str(root)]) == 3
    finally:
        host.cards(ssh_host.CARDS)
    assert "has no NVIDIA H200 (its GPUs: none)" in capsys.readouterr().err


# ---- on a GPU --------------------------------------------------------------------------------
@pytest.mark.gpu
def test_on_a_gpu_its_own_card_is_measured_on_over_ssh(
    tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    """With this machine's own nvidia-smi and ncu, and its packages."""
    given = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    if (own := os.environ.get(VISIBLE)) is not None:  # the others are another's
        given[VISIBLE] = own
    with ssh_host.running(tmp_path / "host", given) as host:
        host.use(monkeypatch)
        root = make(tmp_path / "ws", {"baseline": GOOD, "fix": GOOD})
        for row in json_of(capsys, "ablate", "--on", host.on, project=root)["variants"]:
            assert row["status"] == "current", row["problem"]
            assert row["capture"]
    assert ended(host)
