"""``workbench setup`` over a real sshd on the loopback, from a bare home to a bare home."""

from __future__ import annotations

import io
import json
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hosts
from hosts import Host
from workbench.cli import main
from workbench.errors import EnvironmentLacks, WorkbenchError
from workbench.places import connection, installing, there
from workbench.places.connection import Connection, unreachable
from workbench.places.installing import answered, look, requirements
from workbench.places.wheel import build_wheel, repacked
from workbench.study.places import SshPlace
from workspaces import GOOD, make

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    with hosts.running(tmp_path_factory.mktemp("host")) as started:
        yield started


def small_wheel(
    folder: Path, name: str = "workbench_tried", file: str = "workbench_tried.py"
) -> None:
    """Of a package that no index has, with one file."""
    info = f"{name}-1.0.dist-info"
    parts = {
        file: "WORD = 'carried'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*parts, f"{info}/RECORD"))
    folder.mkdir()
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as out:
        for path, text in {**parts, f"{info}/RECORD": record}.items():
            out.writestr(path, text)


@pytest.fixture
def root(tmp_path: Path, host: Host) -> Path:
    return make(tmp_path / "ws", {"baseline": GOOD}, config=host.toml())


def test_a_bare_host_is_set_up_and_left_as_it_was(host: Host, root: Path, capsys: Capture) -> None:
    """Without an index, from wheels that are carried."""
    small_wheel(root / "wheels")
    with (root / "workbench.toml").open("a") as config:
        config.write('packages = ["workbench-tried"]\n')
    before = host.files()
    words = ["setup", "--on", "lab", "--wheels", str(root / "wheels"), "--project", str(root)]
    assert main([*words, "--json"]) == 0
    out = capsys.readouterr()
    (worker,) = json.loads(out.out)["workers"]
    assert worker["worker"] == "gpu1"
    rows = {row["name"]: row for row in worker["rows"]}
    assert rows["GPU"]["found"] == "NVIDIA H200, compute capability 9.0"
    assert rows["ncu"]["found"].startswith("2025.3.1 ")
    assert worker["works"]["measure"], worker["rows"]
    new = {name for name in host.files() - before if not name.startswith("home/.workbench")}
    assert new == set(), "something was left outside of its folder"
    assert "4 of 4 sources were not there yet" in out.err
    with Connection(host.place(), "gpu1") as c:
        code = "import workbench_tried; print(workbench_tried.WORD)"
        there_too = c.run(look(c).command("-c", code))
        assert there_too.stdout.splitlines()[-1] == "carried", there_too.stderr

    assert main(words) == 0
    again = capsys.readouterr()
    assert "is as it should be" in again.err
    assert "0 of 4 sources" in again.err
    assert "gpu1" in again.out

    assert main(["setup", "--on", "lab", "--remove", "--project", str(root)]) == 0
    assert "is removed" in capsys.readouterr().out
    assert host.files() == before
    assert main(["setup", "--on", "lab", "--remove", "--json", "--project", str(root)]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == {"gpu1": False}


def refused(host: Host, **given: Any) -> WorkbenchError:
    """What ``setup`` of one host ends with before anything is made there."""
    with pytest.raises(WorkbenchError) as failed, Connection(host.place(**given), "gpu1") as c:
        look(c)
    return failed.value


def ssh_config(host: Host, tmp_path: Path, *changed: tuple[str, str]) -> str:
    text = host.config.read_text()
    for old, new in changed:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "ssh_config").write_text(text)
    return str(tmp_path / "ssh_config")


def test_a_host_whose_key_is_not_known_is_not_trusted(host: Host, tmp_path: Path) -> None:
    config = ssh_config(host, tmp_path, (f"{host.root}/known", "/dev/null"))
    error = refused(host, config=config)
    assert isinstance(error, EnvironmentLacks)
    assert error.message == "gpu1: its key is not known here"
    assert "fingerprint" in error.hint


def test_a_key_that_changed_is_said_to_have_changed(host: Host, tmp_path: Path) -> None:
    other = hosts.key(tmp_path / "other").split()
    (tmp_path / "known").write_text(f"[127.0.0.1]:{host.port} {other[0]} {other[1]}\n")
    config = ssh_config(host, tmp_path, (f"{host.root}/known", f"{tmp_path}/known"))
    assert "another than the one on record" in refused(host, config=config).message


def test_a_key_that_is_not_let_in_is_said(host: Host, tmp_path: Path) -> None:
    hosts.key(tmp_path / "stranger")
    config = ssh_config(host, tmp_path, (f"{host.root}/user_key", f"{tmp_path}/stranger"))
    error = refused(host, config=config)
    assert "lets nobody in with the keys that were tried" in error.message
    assert "ssh-copy-id" in error.hint


def test_a_host_that_is_off_is_said(host: Host, tmp_path: Path) -> None:
    port = hosts.free_port()
    config = ssh_config(host, tmp_path, (f"Port {host.port}", f"Port {port}"))
    assert "nothing listens there" in refused(host, config=config).message
    config = ssh_config(host, tmp_path, ("HostName 127.0.0.1", "HostName no.such.host.invalid"))
    assert "there is no such host" in refused(host, config=config).message


def test_a_login_that_runs_no_command_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LOGIN_SECONDS", 1.0)
    with hosts.running(tmp_path / "host", command="sleep 60") as host:
        assert "no command is run there" in refused(host).message


def test_what_ssh_says_otherwise_is_passed_on() -> None:
    error = unreachable("gpu1", "kex_exchange_identification: Connection reset by peer\n")
    assert "Connection reset by peer" in error.message
    assert "`ssh gpu1 true`" in error.hint


@pytest.mark.parametrize("python", ["/nowhere/python3", "old"])
def test_a_host_without_a_new_python_is_said(host: Host, python: str) -> None:
    host.program("old", "#!/bin/sh\nexit 1\n")  # as a Python 3.10 would answer
    error = refused(host, python=python)
    assert isinstance(error, EnvironmentLacks)
    assert "has no Python 3.11 or newer" in error.message
    assert "[places.lab]" in error.hint


def test_a_folder_that_setup_did_not_make_is_left_alone(host: Host) -> None:
    (host.home / "mine").mkdir()
    (host.home / "mine" / "thesis.tex").write_text("years of work")
    for do in ("look", "remove"):
        with (
            pytest.raises(EnvironmentLacks, match="not a folder of setup's"),
            Connection(host.place(folder="mine"), "gpu1") as c,
        ):
            answered(c, {"do": do, "folder": "mine"})
    assert (host.home / "mine" / "thesis.tex").read_text() == "years of work"


def test_a_folder_that_cannot_be_made_is_said(host: Host) -> None:
    request = {"do": "prepare", "folder": "/proc/1/workbench", "wheel": "w", "inherit": False}
    with (
        pytest.raises(EnvironmentLacks, match="/proc/1/workbench") as failed,
        Connection(host.place(), "gpu1") as c,
    ):
        answered(c, request)
    assert "a folder that you may write to" in failed.value.hint


def test_a_host_that_cannot_measure_is_said_before_much_is_fetched(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    known = installing.answered

    def told(connected: Connection, request: Any, *rest: Any) -> Any:
        asked.append(request["do"])
        return known(connected, request, *rest)

    monkeypatch.setattr(installing, "answered", told)
    with hosts.running(tmp_path / "host") as host:
        root = make(tmp_path / "ws", {"baseline": GOOD}, config=host.toml())
        (host.programs / "ncu").unlink()
        assert main(["setup", "--on", "lab", "--project", str(root)]) == 3
        said = capsys.readouterr().err
        assert "gpu1 has no ncu on PATH" in said
        assert "install Nsight Compute" in said.rpartition("hint: ")[2]
        assert asked == ["look", "prepare"]
        assert main(["setup", "--on", "lab", "--remove", "--project", str(root)]) == 0
        assert not host.folder.exists()


def test_a_place_that_is_no_host_is_not_set_up(tmp_path: Path, capsys: Capture) -> None:
    root = make(tmp_path, {"baseline": GOOD}, config="[places.hpc]\nkind = 'local'")
    assert main(["setup", "--on", "hpc", "--project", str(root)]) == 2
    assert "of kind local" in capsys.readouterr().err
    assert main(["setup", "--on", "local", "--project", str(root)]) == 2
    assert "`workbench doctor`" in capsys.readouterr().err


def test_a_folder_without_wheels_is_said(host: Host, root: Path, capsys: Capture) -> None:
    (root / "wheels").mkdir()
    words = ["setup", "--on", "lab", "--wheels", str(root / "wheels"), "--project", str(root)]
    assert main(words) == 2
    assert "there is no wheel in" in capsys.readouterr().err


# What runs there, called here.


def test_a_full_disk_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(there, "MIN_FREE", 10**18)
    with pytest.raises(there.Refused) as failed:
        there.main({"do": "prepare", "folder": str(tmp_path / "w")})
    assert failed.value.kind == "full"
    assert there.marker(tmp_path / "w") == {"complete": False}, "it can be taken away again"

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(there, "look", full)
    with pytest.raises(there.Refused, match="is full"):
        there.main({"do": "look", "folder": str(tmp_path / "w")})


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("ERROR: Could not install packages: [Errno 28] No space left on device", "full"),
        ("ERROR: No matching distribution found for torch>=2.8", "unreachable"),
        ("ERROR: torch has an invalid wheel", "failed"),
    ],
)
def test_what_pip_says_becomes_what_to_do(said: str, kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", f"import sys; sys.exit({said!r})"]
    with pytest.raises(there.Refused) as failed:
        there.run(tmp_path, command)
    assert failed.value.kind == kind


class Nobody(io.StringIO):
    """The other end of a connection that is gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_what_nobody_waits_for_any_more_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(there, "BEAT_SECONDS", 0.05)
    monkeypatch.setattr(sys, "stderr", Nobody())
    began = time.monotonic()
    with pytest.raises(there.Refused):
        there.run(tmp_path, [sys.executable, "-c", "import time; time.sleep(60)"])
    assert time.monotonic() - began < 30


def test_nothing_is_changed_while_something_measures(tmp_path: Path) -> None:
    import fcntl

    folder = tmp_path / "w"
    folder.mkdir()
    there.mark(folder, {"complete": True})
    with (folder / "running").open("w") as measuring:
        fcntl.flock(measuring, fcntl.LOCK_SH)
        with pytest.raises(there.Refused) as failed:
            there.remove(folder)
        assert failed.value.kind == "busy"
    assert there.remove(folder) == {"removed": True}
    assert not folder.exists()


def test_both_ends_of_dask_are_of_the_same_version() -> None:
    wanted = requirements(SshPlace(name="lab", packages=("cupy-cuda13x",)))
    assert any(one.startswith("distributed==") for one in wanted)
    assert wanted[-1] == "cupy-cuda13x"


def test_an_installed_workbench_is_packed_into_the_same_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from importlib import metadata

    built, again = build_wheel(tmp_path), tmp_path / "again"
    again.mkdir()
    with zipfile.ZipFile(built) as packed:
        packed.extractall(tmp_path / "site")
        names = set(packed.namelist())
    found = next(iter(metadata.distributions(path=[str(tmp_path / "site")])))
    monkeypatch.setattr(metadata, "distribution", lambda name: found)
    wheel = repacked(again)
    assert wheel.name == built.name
    with zipfile.ZipFile(wheel) as packed, zipfile.ZipFile(built) as first:
        assert set(packed.namelist()) == names
        record = next(name for name in names if name.endswith("/RECORD"))
        lines = [set(one.read(record).decode().split()) for one in (packed, first)]
        assert lines[0] == lines[1], "pip holds every file against its hash"
        assert all(packed.read(n) == first.read(n) for n in names if n != record)
    assert repacked(tmp_path).read_bytes() == wheel.read_bytes()
