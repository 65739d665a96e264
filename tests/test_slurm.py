"""Jobs of a real Slurm of one node, from Debian's packages: munged, slurmctld and slurmd."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("workbench.places.jobqueue", reason="the extra 'cluster' is not installed")

import hosts
from onplaces import NCU
from workbench.cli import main
from workbench.errors import EnvironmentLacks, ToolFailed
from workbench.places import scheduler, slurm
from workbench.places.opening import client_of
from workbench.study.places import SlurmPlace
from workspaces import GOOD, make

SECONDS = 120.0
SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
DAEMONS = ("munged", "slurmctld", "slurmd")
CONF = """
ClusterName=test
SlurmctldHost={name}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
GresTypes=gpu
SlurmdParameters=config_overrides
NodeName={name} NodeAddr=127.0.0.1 CPUs=2 RealMemory=2000 Gres=gpu:2 State=UNKNOWN
PartitionName=gpu Nodes={name} Default=YES MaxTime=INFINITE State=UP
"""


def daemon(stack: ExitStack, folder: Path, *command: str) -> None:
    path = shutil.which(command[0], path=SBIN)
    assert path is not None
    with (folder / f"{command[0]}.log").open("wb") as log:
        started = subprocess.Popen([path, *command[1:]], stdout=log, stderr=log, cwd=folder)
    stack.callback(started.wait)
    stack.callback(started.terminate)


def says(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One that all nodes see, of a Slurm with two GPUs. A program that says it has two stands in
    for the driver.
    """
    missing = [name for name in (*DAEMONS, "sbatch") if shutil.which(name, path=SBIN) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} here (apt-get install slurmctld slurmd slurm-client)")
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("munge", "state", "spool", "bin", "shared"):
        (folder / name).mkdir(mode=0o700)
    key = folder / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))
    name = socket.gethostname().partition(".")[0]
    (folder / "slurm.conf").write_text(
        CONF.format(
            name=name,
            folder=folder,
            user=getpass.getuser(),
            controller=hosts.free_port(),
            node=hosts.free_port(),
        )
    )
    cards = "".join(f"NodeName={name} Name=gpu File={f}\n" for f in ("/dev/null", "/dev/zero"))
    (folder / "gres.conf").write_text(cards)
    host = hosts.Host(folder, 0)
    host.cards(hosts.CARDS)
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


def place(folder: Path, **given: Any) -> SlurmPlace:
    known = {"partition": "gpu", "gres": "gpu:2", "cores": 1, "memory": "500MB"}
    shared = str(folder / "shared")
    return SlurmPlace(name="hpc", folder=shared, walltime="00:05:00", **{**known, **given})


def jobs() -> list[str]:
    return says("squeue", "-h", "-o", "%i").split()


def secrets_in(folder: Path) -> Sequence[Path]:
    return list((folder / "shared").glob("run-*/*"))


def test_a_job_has_a_worker_for_each_of_its_cards_and_is_submitted_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "LOST_SECONDS", 1.0)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    told: list[str] = []
    with client_of(place(folder), told.append) as client:
        client.wait_for_workers(2, timeout=SECONDS)
        assert told == ["1 job submitted to Slurm, for 2 GPUs in all"]
        workers = client.scheduler_info(-1)["workers"]
        assert all(address.startswith("tls://") for address in workers)
        assert all(one["resources"] == {"GPU": 1} for one in workers.values())
        assert client.scheduler.address.startswith("tls://")
        found = secrets_in(folder)
        assert len(found) == 3
        assert all(path.parent.stat().st_mode & 0o777 == 0o700 for path in found)
        assert set(client.run(os.getenv, "OMP_NUM_THREADS").values()) == {None}
        first = client.run(os.getenv, "SLURM_JOB_ID").popitem()[1]
        assert set(client.run(os.getenv, "SLURM_JOB_ID").values()) == {first}, "one job has both"

        subprocess.run(["scancel", first], check=True)
        last = time.monotonic() + SECONDS
        while set(client.run(os.getenv, "SLURM_JOB_ID", on_error="ignore").values()) <= {first}:
            assert time.monotonic() < last
            time.sleep(0.2)
    last = time.monotonic() + SECONDS
    while jobs():
        assert time.monotonic() < last, "a job is left in the queue"
        time.sleep(0.2)
    assert secrets_in(folder) == [], "a key is left"


def test_a_job_ends_when_whoever_wanted_it_is_killed(folder: Path) -> None:
    code = (
        "import time; from workbench.places.opening import client_of;"
        "from workbench.study.places import SlurmPlace\n"
        f"with client_of({place(folder)!r}, lambda line: None) as client:\n"
        "    client.wait_for_workers(2); print('there', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == b"there\n"
            assert jobs()
        finally:
            started.kill()
    last = time.monotonic() + SECONDS
    while jobs():
        assert time.monotonic() < last, "a job is left in the queue"
        time.sleep(0.2)


def test_doctor_looks_at_a_job(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = (
        '[places.hpc]\nkind = "slurm"\ncores = 1\nmemory = "500MB"\n'
        f'folder = "{folder}/shared"\nwalltime = "00:05:00"\n'
    )
    root = make(tmp_path / "ws", {"baseline": GOOD}, config=toml)
    assert main(["doctor", "--on", "hpc", "--json", "--project", str(root)]) == 0
    (worker,) = json.loads(capsys.readouterr().out)["workers"]
    rows = {row["name"]: row["found"] for row in worker["rows"]}
    assert rows["GPU"] == "NVIDIA H200, compute capability 9.0"
    assert worker["worker"].endswith(f"({socket.gethostname()})")


@pytest.mark.parametrize(
    "given", [{"partition": "none"}, {"gres": "gpu:9"}, {"directives": ("--no-such-option",)}]
)
def test_what_slurm_refuses_is_said_at_once(folder: Path, given: dict[str, Any]) -> None:
    before = jobs()  # one of another test may be ending
    opened = slurm.open_cluster(place(folder, **given), lambda line: None)
    with pytest.raises(ToolFailed, match="Slurm takes no job of 'hpc'") as failed, opened:
        pass
    assert "[places.hpc]" in failed.value.hint
    assert set(jobs()) <= set(before)


def test_ctrl_c_stays_what_it_was() -> None:
    """dask-jobqueue puts a handler of its own in place when it is imported."""
    code = "import signal; from workbench.places import slurm; print(signal.getsignal(2).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "default_int_handler\n"


def test_without_slurm_that_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    opened = slurm.open_cluster(SlurmPlace(name="hpc"), lambda line: None)
    with pytest.raises(EnvironmentLacks, match="sbatch, scancel not found") as failed, opened:
        pass
    assert "ssh" in failed.value.hint


def test_a_job_asks_for_what_the_place_says(tmp_path: Path) -> None:
    asked = place(
        tmp_path,
        account="lab",
        gres="gpu:h200:4",
        cores=32,
        directives=("--constraint=nvlink",),
        prologue=("module load cuda/13",),
        python="/shared/venv/bin/python",
    )
    with (
        slurm.in_files(scheduler.security(), tmp_path) as secured,
        slurm.Jobs(**slurm.settings(asked, tmp_path), security=secured) as cluster,
    ):
        script = cluster.job_script()
    for line in (
        "#SBATCH -p gpu",
        "#SBATCH -A lab",
        "#SBATCH -t 00:05:00",
        "#SBATCH --cpus-per-task=32",
        "#SBATCH --gres=gpu:h200:4",
        "#SBATCH --constraint=nvlink",
        "module load cuda/13",
    ):
        assert line in script.splitlines()
    (command,) = [line for line in script.splitlines() if "dask_worker" in line]
    assert command.startswith("/shared/venv/bin/python -m distributed.cli.dask_worker tls://")
    for words in ("--nworkers 4", "--nthreads 1", "--resources GPU=1", "--protocol tls://"):
        assert words in command


@pytest.mark.parametrize(
    ("gres", "cards"),
    [("gpu:1", 1), ("gpu", 1), ("gpu:h200:4", 4), ("gpu:8(S:0)", 8), ("", 1), ("nvme:2,gpu:2", 2)],
)
def test_cards_of_a_job(gres: str, cards: int) -> None:
    assert slurm.cards_of(gres) == cards
