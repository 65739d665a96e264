"""One process measures on a GPU at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from answers import Patch
from remote_gpus import card, install
from workbench.app.executor import Local, Reporter
from workbench.run import machine
from workbench.run.machine import Gpu, locked

H200 = "NVIDIA H200"


def test_two_commands_measure_one_after_the_other(tmp_path: Path, monkeypatch: Patch) -> None:
    """Side by side they would be in each other's times."""
    install(tmp_path, monkeypatch, [card(0)])
    entered, told = threading.Event(), threading.Event()

    class Waits(Reporter):
        def note(self, text: str) -> None:
            if H200 in text:
                told.set()

    def other() -> None:
        with Local(reporter=Waits()).alone_on_the_gpu():
            entered.set()

    with machine.locked([card(0)]):
        waiting = threading.Thread(target=other, daemon=True)
        waiting.start()
        assert told.wait(60)
        assert not entered.is_set()
    assert entered.wait(60)
    waiting.join(60)
    with Local().alone_on_the_gpu():  # it was given back
        pass


def test_without_a_card_nobody_waits() -> None:
    with Local().alone_on_the_gpu(), Local().alone_on_the_gpu():
        pass


def test_a_card_is_held_by_one_at_a_time(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("WORKBENCH_FOLDER", str(tmp_path / "own"))
    both: Sequence[Gpu] = [card(0), card(1)]

    def gives_up(text: str) -> None:
        raise TimeoutError(text)

    def second_command() -> None:
        with locked(both) as other:
            assert {one, other} == set(both)
            in_a_thread(third_command)

    def third_command() -> None:
        with pytest.raises(TimeoutError, match="waiting: another"), locked(both, gives_up):
            pass

    def in_a_thread(command: Callable[[], None]) -> None:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(command).result()

    with locked(both) as one:
        in_a_thread(second_command)
    with locked(both) as again:
        assert again == both[0]
