"""The recipe for Slurm of docs/remote.md, on a real Slurm of one node."""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import fake_nvml
import ssh_host
from answers import Patch, not_none, python
from remote.test_remote import evidence, over_sizes, workspace
from remote_gpus import NCU, nvml
from workbench.evidence import journal

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
SECONDS = 120.0
SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
DAEMONS = ("munged", "slurmctld", "slurmd")
CONF = Path(__file__).with_name("slurm.conf").read_text()


def daemon(stack: ExitStack, folder: Path, *command: str) -> None:
    path = not_none(shutil.which(command[0], path=SBIN))
    with (folder / f"{command[0]}.log").open("wb") as log:
        started = subprocess.Popen([path, *command[1:]], stdout=log, stderr=log, cwd=folder)
    stack.callback(started.wait)
    stack.callback(started.terminate)


def says(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of a Slurm of one node with two GPUs, which a stand-in for NVML lists."""
    missing = [name for name in (*DAEMONS, "sbatch") if shutil.which(name, path=SBIN) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} here (apt-get install slurmctld slurmd slurm-client)")
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("munge", "state", "spool", "bin", "home"):
        (folder / name).mkdir(mode=0o700)
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))
    name = socket.gethostname().partition(".")[0]
    ports = {"controller": ssh_host.free_port(), "node": ssh_host.free_port()}
    conf = CONF.format(name=name, folder=folder, user=getpass.getuser(), **ports)
    (folder / "slurm.conf").write_text(conf)
    cards = "".join(f"NodeName={name} Name=gpu File={f}\n" for f in ("/dev/null", "/dev/zero"))
    (folder / "gres.conf").write_text(cards)
    host = ssh_host.Host(folder, 0)
    host.program("ncu", NCU)
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        patch.setenv("PATH", f"{host.programs}{os.pathsep}{os.environ['PATH']}")
        own = [f"--{what}={folder}/munge/{what}" for what in ("socket", "pid-file", "seed-file")]
        daemon(stack, folder, "munged", "--foreground", "--force", f"--key-file={key}", *own)
        last = time.monotonic() + SECONDS
        while not (folder / "munge" / "socket").exists() and time.monotonic() < last:
            time.sleep(0.1)
        daemon(stack, folder, "slurmctld", "-D")
        daemon(stack, folder, "slurmd", "-D", "-N", name)
        while says("sinfo", "-h", "-o", "%T") != "idle":
            if time.monotonic() > last:
                logs = "\n".join((folder / f"{one}.log").read_text()[-500:] for one in DAEMONS)
                pytest.skip(f"Slurm does not start here: {logs}")
            time.sleep(0.2)
        yield folder


def recipe() -> str:
    """As the page has it, for a node that is smaller."""
    page = (ROOT / "docs" / "remote.md").read_text(encoding="utf-8")
    text = page.partition("<!-- SLURM -->\n```python\n")[2].partition("```")[0]
    return text.replace("cores=4", "cores=1").replace('"16GB"', '"500MB"').replace("02:00", "00:05")


def test_the_recipe_measures_in_jobs_of_slurm(
    folder: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    tests = ROOT / "tests"
    nvml(ssh_host.CARDS, folder)
    (folder / "standin").mkdir()
    given = {
        "HOME": str(folder / "home"),
        "PYTHONPATH": f"{tests / 'onremote'}:{tests}:{ROOT / 'profiler'}",
        "WORKBENCH_STANDIN": str(folder / "standin"),
        "DASK_DISTRIBUTED__DIAGNOSTICS__NVML": "False",
        fake_nvml.FILE: str(folder / "nvml.json"),
    }
    script = folder / "recipe.py"
    script.write_text(recipe())
    root = over_sizes(workspace(tmp_path / "ws"), 1024, 2048, 4096)
    with subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, **given},
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
    ) as started:
        try:
            *exports, command = [not_none(started.stdout).readline().strip() for _ in range(4)]
            for line in exports:
                name, _, value = line.removeprefix("export ").partition("=")
                monkeypatch.setenv(name, value)
            assert (folder / "home" / ".workbench-tls" / "key").stat().st_mode & 0o777 == 0o600
            on = command.split()[-2:]
            assert on[1].startswith("tls://")
            words = ("ablate", "--no-profile", "--all-shapes", *on, "--project", root)
            done = python("-m", "workbench", *words)
            assert done.returncode == 0, done.stderr
        finally:
            started.terminate()
    sessions = journal.load_journal(evidence(root)).sessions
    assert sorted(each.shape for each in sessions) == ["n1024", "n2048", "n4096"]
    last = time.monotonic() + SECONDS
    while says("squeue", "-h", "-o", "%i"):
        assert time.monotonic() < last, "a job is left in the queue"
        time.sleep(0.2)
