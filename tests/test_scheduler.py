"""A scheduler that somebody else runs: Ctrl-C, and what becomes of the work when it dies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from onplaces import Cards, alive, card, install
from workbench.cli import main
from workbench.evidence import journal
from workbench.evidence.layout import EvidenceFolder
from workspaces import make

pytest.importorskip("distributed")
MODULE = "def run(x):\n    return x\n"


class Running:
    """A scheduler and its workers, each a process."""

    def __init__(self, tmp_path: Path, number: int) -> None:
        where = tmp_path / "scheduler.json"
        where.unlink(missing_ok=True)
        self.log = (tmp_path / "dask.log").open("ab")
        self.scheduler = self.start(
            *("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"),
            *("--scheduler-file", str(where)),
        )
        self.address: str = self.told(where)["address"]
        self.workers = [
            self.start(
                *("worker", self.address, "--nthreads", "1", "--resources", "GPU=1"),
                *("--no-nanny", "--no-dashboard", "--death-timeout", "60"),
            )
            for _ in range(number)
        ]

    def told(self, where: Path) -> dict[str, str]:
        """What the scheduler writes, as soon as all of it is there."""
        end = time.monotonic() + 120
        while time.monotonic() < end and self.scheduler.poll() is None:
            with suppress(FileNotFoundError, json.JSONDecodeError):
                found: dict[str, str] = json.loads(where.read_text())
                return found
            time.sleep(0.05)
        raise AssertionError(f"no scheduler: {Path(self.log.name).read_text()[-500:]}")

    def start(self, what: str, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *options]
        return subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def end(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()
        self.log.close()


@pytest.fixture
def outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Cards, Running, Path]]:
    cards = install(tmp_path, monkeypatch, [card(0), card(1)])
    running = Running(tmp_path, 2)
    root = make(tmp_path / "ws", {}, {"baseline": MODULE, "fix": MODULE})
    (root / "workbench.toml").write_text(
        f'study = "scale"\n[places.lab]\nkind = "scheduler"\naddress = "{running.address}"\n'
    )
    yield cards, running, root
    running.end()


def shapes_of(root: Path) -> list[str]:
    folder = EvidenceFolder(root / "ablations" / "scale" / "evidence" / "nvidia-h200")
    return [entry.shape for entry in journal.load_journal(folder).sessions]


RANGE = ["ablate", "--shape", "n=1024..8192*2", "--on", "lab"]


def test_ctrl_c_ends_the_work_there_and_the_same_command_goes_on(
    outside: tuple[Cards, Running, Path],
) -> None:
    cards, running, root = outside
    cards.fault("hang", 2)
    (cards.folder / "fault-hang-1").rename(cards.folder / "fault-none-0")  # the second one works
    command = [sys.executable, "-m", "workbench", *RANGE, "--project", str(root)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None and len(shapes_of(root)) < 2:
        time.sleep(0.1)
    done = shapes_of(root)
    assert done
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    assert "the same command goes on from there" in told
    assert not alive(cards)
    assert all(worker.poll() is None for worker in running.workers)
    assert main([*RANGE, "--project", str(root)]) == 0
    assert shapes_of(root)[: len(done)] == done
    assert sorted(shapes_of(root)) == ["n1024", "n2048", "n4096", "n8192"]  # each once


def test_a_scheduler_that_dies_leaves_what_is_finished(
    outside: tuple[Cards, Running, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cards, running, root = outside
    cards.fault("hang")
    monkeypatch.setattr("workbench.places.sending.GONE_SECONDS", 2.0)

    def kill() -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end and not shapes_of(root):
            time.sleep(0.05)
        running.scheduler.kill()

    threading.Thread(target=kill, daemon=True).start()
    assert main([*RANGE, "--project", str(root)]) == 4
    told = capsys.readouterr().err
    assert "the scheduler of 'lab' is gone" in told
    assert "the same command goes on from there" in told
    done = set(shapes_of(root))
    assert done
    running.end()
    end = time.monotonic() + 60
    while alive(cards) and time.monotonic() < end:
        time.sleep(0.1)
    assert not alive(cards)  # the block's process ends with its worker
    other = Running(tmp_path, 2)
    try:
        config = root / "workbench.toml"
        config.write_text(config.read_text().replace(running.address, other.address))
        assert main([*RANGE, "--project", str(root)]) == 0
    finally:
        other.end()
    assert sorted(shapes_of(root)) == ["n1024", "n2048", "n4096", "n8192"]  # each once


def test_a_scheduler_that_is_not_there_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(tmp_path / "ws", {}, {"baseline": MODULE})
    (root / "workbench.toml").write_text(
        'study = "scale"\n[places.lab]\nkind = "scheduler"\naddress = "tcp://127.0.0.1:9"\n'
    )
    monkeypatch.setattr("workbench.places.opening.TIMEOUT_SECONDS", 1)
    assert main(["check", "--on", "lab", "--project", str(root)]) == 3
    told = capsys.readouterr().err
    assert "tcp://127.0.0.1:9" in told
