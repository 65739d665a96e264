"""Workers over a real sshd on the loopback: TLS, tunnels, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fake_nvml
import hosts
from hosts import Host
from standin import StandIn
from test_on_place import but_for_provenance, evidence, workspace
from workbench.cli import main
from workbench.errors import EnvironmentLacks
from workbench.places import installing, ssh, there
from workbench.places.connection import Connection
from workbench.places.installing import carried, look, require_card, set_up
from workbench.places.keeper import descendants
from workbench.places.opened import Opened
from workbench.places.opening import client_of
from workbench.run import machine
from workbench.run.cards import PLACE_FOLDER
from workbench.study.places import SshPlace
from workspaces import GOOD, ROOT, make

distributed = pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")
SECONDS = 120.0


@pytest.fixture(scope="module")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it says what it did."""
    return tmp_path_factory.mktemp("standin")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, standin: Path) -> Iterator[Host]:
    """Set up, with a stand-in under the process of every block."""
    tests = Path(__file__).parent
    root = tmp_path_factory.mktemp("host")
    given = {
        "PYTHONPATH": f"{tests / 'onworkers'}:{tests}",
        "WORKBENCH_STANDIN": str(standin),
        fake_nvml.FILE: str(root / "nvml.json"),
    }
    with hosts.running(root, given) as started:
        with Connection(started.place(), hosts.NAME) as connection:
            wheel = tmp_path_factory.mktemp("wheel")
            set_up(connection, carried(wheel, {}, None), lambda line: None)
        yield started


def within(seconds: float, is_so: Callable[[], bool]) -> bool:
    last = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > last:
            return False
        time.sleep(0.1)
    return True


def words_of(pid: int | str) -> list[bytes]:
    """The command line of a process; empty words of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return [b""]


def left_there(host: Host) -> list[str]:
    """Processes whose Python is that of the host's folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        words = words_of(entry.name)
        if words[0].startswith(str(host.folder).encode()):
            found.append(b" ".join(words).decode())
    return found


def pids(client: Any) -> set[int]:
    """Of the workers that answer."""
    return {pid for pid in client.run(os.getpid, on_error="ignore").values() if pid}


def test_every_card_has_a_worker_that_stays_in_its_folder(host: Host) -> None:
    with client_of(host.place(), lambda line: None) as client:
        workers = client.scheduler_info(-1)["workers"]
        assert {one["name"] for one in workers.values()} == {"gpu1-0", "gpu1-1"}
        assert all(one["resources"] == {"GPU": 1} for one in workers.values())
        for address in [*workers, client.scheduler.address]:
            assert address.startswith("tls://127.0.0.1:")
        for name in ("HOME", "TMPDIR", PLACE_FOLDER):
            for told in client.run(os.getenv, name).values():
                assert told.startswith(f"{host.folder}/"), name
    assert within(SECONDS, lambda: not left_there(host)), left_there(host)
    assert not list((host.folder / "tmp").glob("run-*")), "a key is left"


def test_nobody_gets_in_without_the_certificate(host: Host) -> None:
    import dask

    with ssh.open_cluster(host.place(workers=1), lambda line: None) as opened:
        worker = next(iter(reached(opened)))
        for address in (opened.address, worker):
            assert speaks(address, opened.security)
            assert not speaks(address, distributed.Security.temporary())
            with dask.config.set({"distributed.comm.require-encryption": False}):
                assert not speaks(address.replace("tls://", "tcp://"), None)


def reached(opened: Opened) -> list[str]:
    """The addresses of its workers."""
    with distributed.Client(opened.address, security=opened.security) as client:
        return list(client.scheduler_info(-1)["workers"])


def speaks(address: str, security: Any) -> bool:
    """Whether the other end answers who it is."""
    import asyncio

    async def ask() -> bool:
        arguments = security.get_connection_args("client") if security else {}
        try:
            async with asyncio.timeout(5):
                comm = await distributed.comm.connect(address, timeout=2, **arguments)
                await comm.write({"op": "identity", "reply": True})
                answer = await comm.read()
                await comm.close()
        except (OSError, TimeoutError):
            return False
        return "type" in answer

    return asyncio.run(ask())


def test_a_worker_that_dies_is_started_again(host: Host) -> None:
    with client_of(host.place(workers=1), lambda line: None) as client:
        before = pids(client)
        client.run(os.abort, on_error="ignore")
        assert within(SECONDS, lambda: bool(pids(client) - before))


def test_a_host_that_is_lost_is_tried_again(host: Host) -> None:
    told: list[str] = []
    with client_of(host.place(workers=1), told.append) as client:
        before = pids(client)
        masters = [pid for pid in descendants() if b"-M" in words_of(pid)]
        assert len(masters) == 1
        os.kill(masters[0], signal.SIGKILL)
        assert within(SECONDS, lambda: bool(pids(client) - before))
    assert any("gpu1 is lost, and tried again" in line for line in told)


def test_what_is_killed_here_ends_there(host: Host) -> None:
    """As when the user's machine goes: nothing is said any more, and the pipes are shut."""
    code = (
        "import sys, time; from workbench.places import ssh;"
        "from workbench.study.places import SshPlace;"
        f"place = {host.place(workers=1)!r}\n"
        "with ssh.open_cluster(place, print) as opened:\n"
        "    print('open', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == b"open\n"
            assert left_there(host)
        finally:
            started.kill()
    assert within(SECONDS, lambda: not left_there(host)), left_there(host)


def test_a_ladder_measured_over_ssh_is_the_one_measured_here(
    host: Host,
    standin: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    there, here = workspace(tmp_path / "there"), workspace(tmp_path / "here")
    with (there / "workbench.toml").open("a") as config:
        config.write(host.toml())
    assert main(["ablate", "--on", "lab", "--project", str(there)]) == 0
    told = capsys.readouterr()
    assert "at 'lab' (GPU time: NVIDIA H200" in told.err
    with monkeypatch.context() as patched:
        StandIn(patched, lambda run: {"baseline": 10.0, "fix": 8.0}.get(run.variant, 5.0))
        assert main(["ablate", "--project", str(here)]) == 0
    assert capsys.readouterr().out == told.out
    of_there, of_here = but_for_provenance(evidence(there)), but_for_provenance(evidence(here))
    assert len(of_there) > 6
    assert of_there == of_here
    work = host.folder / "work"
    assert ran(standin)
    assert all(folder.startswith(str(work)) for _, _, folder in ran(standin)), "a TMPDIR a card"
    assert not list(work.rglob("block-*")), "what a block needed is gone with it"


def ran(standin: Path) -> list[list[str]]:
    """Process, card and TMPDIR of every block so far."""
    path = standin / "ran"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def test_ctrl_c_here_ends_the_work_there(host: Host, standin: Path, tmp_path: Path) -> None:
    root = workspace(tmp_path / "ws")
    with (root / "workbench.toml").open("a") as config:
        config.write(host.toml())
    fault = standin / "fault-hang-0"
    fault.touch()
    command = [sys.executable, "-m", "workbench", "ablate", "--on", "lab", "--project", str(root)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as started:
        try:
            assert started.stderr is not None
            assert within(SECONDS, lambda: not fault.exists())  # or the next test would meet it
            assert left_there(host)
            started.send_signal(signal.SIGINT)
            said = started.stderr.read()
        finally:
            started.kill()  # or it would be waited for, whatever went wrong
    assert started.returncode == 130, said
    assert "the same command goes on from there" in said
    assert within(SECONDS, lambda: not left_there(host)), left_there(host)


def test_a_block_whose_worker_dies_goes_elsewhere(
    host: Host, standin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = workspace(tmp_path / "ws")
    with (root / "workbench.toml").open("a") as config:
        config.write(host.toml())
    (standin / "fault-kill-0").touch()
    before = len(ran(standin))
    assert main(["ablate", "--on", "lab", "--project", str(root)]) == 0
    blocks = capsys.readouterr().err.count(", on GPU-")
    assert len(ran(standin)) - before == blocks + 1, "one was begun twice, and no other"
    assert list(evidence(root).root.rglob("timings/*.json.zst"))


def test_doctor_looks_at_each_worker(
    host: Host, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = make(tmp_path / "ws", {"baseline": GOOD}, config=host.toml())
    assert main(["doctor", "--on", "lab", "--json", "--project", str(root)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["worker"].partition(" ")[0] for one in told["workers"]] == ["gpu1-0", "gpu1-1"]
    rows = {row["name"]: row for row in told["workers"][0]["rows"]}
    assert rows["GPU"]["found"] == "NVIDIA H200, compute capability 9.0"
    assert main(["doctor", "--on", "lab", "--project", str(root)]) == 0
    out = capsys.readouterr().out
    assert out.count("| counter permission") == 2, "one table a worker"


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("nvml.json", "", "has no NVIDIA driver"),
        ("nvml.json", "[]", "has no GPU"),
        ("bin/ncu", "", "has no ncu"),
    ],
)
def test_what_a_host_lacks_is_said(host: Host, file: str, text: str, words: str) -> None:
    path = host.root / file
    path.rename(host.root / "known")
    if text:
        path.write_text(text)
    try:
        with (
            pytest.raises(EnvironmentLacks, match=words),
            Connection(host.place(), hosts.NAME) as connection,
        ):
            require_card(connection, look(connection))
    finally:
        (host.root / "known").rename(path)


def test_a_host_without_cards_has_no_workers(host: Host) -> None:
    host.cards([])
    try:
        with (
            pytest.raises(EnvironmentLacks, match="has no GPU") as failed,
            ssh.open_cluster(host.place(), lambda line: None),
        ):
            pass
        assert "doctor --on lab" in failed.value.hint
    finally:
        host.cards(hosts.CARDS)


def test_another_workbench_there_is_not_measured_with(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "own_code", lambda: "another")
    with (
        pytest.raises(EnvironmentLacks, match="another workbench") as failed,
        ssh.open_cluster(host.place(), lambda line: None),
    ):
        pass
    assert "workbench setup --on lab" in failed.value.hint


def test_one_host_of_two_is_enough(host: Host, tmp_path: Path) -> None:
    config = tmp_path / "ssh_config"
    config.write_text(host.config.read_text() + "\nHost gpu2\n HostName no.such.host.invalid\n")
    told: list[str] = []
    place = host.place(hosts=("gpu2", "gpu1"), config=str(config), workers=1)
    with ssh.open_cluster(place, told.append) as opened:
        assert opened.workers == 1
    assert told == ["goes on without gpu2: gpu2: there is no such host"]


def test_a_host_that_was_not_set_up_is_said(host: Host) -> None:
    with (
        pytest.raises(EnvironmentLacks, match="is not set up") as failed,
        ssh.open_cluster(host.place(folder="elsewhere"), lambda line: None),
    ):
        pass
    assert "workbench setup --on lab" in failed.value.hint
    assert not (host.home / "elsewhere").exists()


def test_the_environment_names_the_folder_of_a_worker() -> None:
    assert PLACE_FOLDER in there.environment(Path("/x"))


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(EnvironmentLacks, match="distributed") as failed:
        installing.requirements(SshPlace(name="lab"))
    assert ".[cluster]" in failed.value.hint


# ---- on a GPU --------------------------------------------------------------------------------
@pytest.mark.gpu
def test_on_a_gpu_its_own_card_is_set_up_and_measured_on_over_ssh(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With this machine's own NVML and ncu, and packages that PYTHONPATH leads to."""
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    others = [path for path in paths if not Path(path).resolve().is_relative_to(ROOT)]
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(others) or str(tmp_path)}
    if (own := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:  # the others are another's
        given["CUDA_VISIBLE_DEVICES"] = own
    with hosts.running(tmp_path / "host", given) as host:
        root = make(tmp_path / "ws", {"baseline": GOOD, "fix": GOOD}, config=host.toml())
        where = ["--on", "lab", "--project", str(root)]
        assert main(["setup", *where]) == 0
        shown = capsys.readouterr().out
        with capsys.disabled():
            print(shown)  # what doctor says there
        assert main(["doctor", *where, "--json"]) == 0
        gpu = machine.find_gpu()
        assert gpu is not None
        for one in json.loads(capsys.readouterr().out)["workers"]:
            assert one["works"]["measure"], one["rows"]
            rows = {row["name"]: row["found"] for row in one["rows"]}
            assert rows["GPU"] == f"{gpu.name}, compute capability {gpu.compute_capability}"
        assert main(["ablate", *where, "--json"]) == 0
        for row in json.loads(capsys.readouterr().out)["versions"]:
            assert row["status"] == "current", row["problem"]
            assert row["captures"]
            assert row["microseconds"]["value"] > 0
        assert main(["setup", *where, "--remove"]) == 0
        assert not host.folder.exists()
    assert within(SECONDS, lambda: not left_there(host)), left_there(host)
