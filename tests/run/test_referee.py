"""The referee against executors that lie, each in one way. Without a GPU: a process plays it."""

from __future__ import annotations

import itertools
import os
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from answers import Patch
from made_records import sessions_job
from workbench.evidence.records import Witness
from workbench.run.protocol import Event, Witnessed
from workbench.run.worker import referee as module
from workbench.run.worker.output import NoResult
from workbench.run.worker.referee import GatedProcess, Lost, Referee, ReplayTimes
from workbench.run.worker.session_forks import Server
from workbench.run.worker.timing.gated import (
    ARRIVED,
    CALLS,
    COMMANDS,
    ENDED,
    GO,
    POSTED,
    READY,
    REVEAL,
    RING,
    SECRETS,
    SERVED,
    STATE,
    SUMS,
    WORDS,
    Audited,
    Auditor,
    Bare,
    Claims,
    Layout,
    Page,
    Revealed,
    require_dense,
)
from workbench.run.worker.timing.neighbours import ROWS_OF_SUMS, SUMMED
from workbench.study.values import Tolerance

CALL_SECONDS = 50e-6
PLAYED_CALLS = 8


def sum_of(secret: int, call: int) -> float:
    """What an honest call of a replay adds up to."""
    return ((secret * 2654435761 + call * 40503) % (1 << 32)) / (1 << 32) + 0.5


@dataclass(frozen=True)
class Lies:
    """An executor's: ``skipped`` calls of each replay are not done, and are given any sum;
    ``mended`` right after its end. It opens its gate ``early``, ``stops`` behind some replays,
    fails, or says that it is of other ``calls``. It ``kills`` the other children of its parent.
    ``layouts`` are what it says of its outputs, then ``tells`` when it is asked again, of a message
    that is ``broken``.
    """

    skipped: int = 0
    mended: bool = False
    early: bool = False
    stops: int = 1 << 30
    fails: str = ""
    calls: int = PLAYED_CALLS
    kills: bool = False
    layouts: bytes = b'{"layouts":[],"call":{"k":1},"graphs":[{"k":9,"n":18},{"k":9,"n":18}]}'
    tells: bytes = b'{"layouts":[],"counted":[]}'
    broken: bool = False


HONEST = Lies()


def play(lies: Lies, page: Page, pipe: Connection) -> None:
    """Do what executor and GPU do."""
    words, served, ticket = page.words, 0, 0
    words[GO], words[CALLS], words[STATE] = 0, lies.calls, READY
    while True:
        while words[POSTED] <= served:
            time.sleep(1e-4)
        served += 1
        command = words[COMMANDS + served % RING]
        if command & REVEAL:
            if lies.broken:
                os.write(pipe.fileno(), struct.pack("!i", 100) + b"half")
                time.sleep(60)
            pipe.send_bytes(lies.tells)
        else:
            ticket += 1
            words[ARRIVED] = ticket
            while words[GO] < ticket and not lies.early:
                os.sched_yield()
            secret = words[SECRETS + ticket % RING]
            end = time.perf_counter() + CALL_SECONDS * (PLAYED_CALLS + 1 - lies.skipped)
            if ticket > lies.stops:
                time.sleep(60)
            sums = honest_sums(secret)
            sums[: lies.skipped, 0] = 0.25
            while time.perf_counter() < end:
                os.sched_yield()
            words[SUMS : SUMS + WORDS] = memoryview(sums.tobytes()).cast("I")
            words[ENDED] = ticket
            if lies.mended:
                time.sleep(1e-3)
                words[SUMS : SUMS + WORDS] = memoryview(honest_sums(secret).tobytes()).cast("I")
        words[SERVED] = served


def honest_sums(secret: int) -> np.ndarray[Any, Any]:
    sums = np.zeros((ROWS_OF_SUMS, SUMMED + 1))
    sums[: PLAYED_CALLS + 1, 0] = [sum_of(secret, call) for call in range(PLAYED_CALLS + 1)]
    return sums


class Played(Referee):
    """Its auditor knows the sums, and its bare graphs take no time."""

    lies: Lies

    def audit_process(self, page: Page, pipe: Connection) -> None:
        pipe.send(1)
        play(Lies(skipped=PLAYED_CALLS + 1), page, pipe)

    def execute(self, variant: str, page: Page, pipe: Connection) -> None:
        lies = self.lies if variant == "liar" else HONEST
        if lies.fails:
            raise RuntimeError(lies.fails)
        if lies.kills:
            os.kill(self.auditor.pid, signal.SIGKILL)
        pipe.send_bytes(lies.layouts)
        play(lies, page, pipe)

    def ask(self, question: Bare | Claims) -> object:
        if isinstance(question, Bare):
            try:
                question.launched.require_neighbours({"n": 18}, question.calls)
            except ValueError as error:
                raise Lost(str(error)) from None
            return 0
        for number, (replay, call) in enumerate(question.drawn[:200]):
            if question.sums[replay, call, 0] != sum_of(question.secrets[replay], call):
                return Audited(number, 0.0, "the output of a timed call: wrong")
        return Audited(200, 0.0, "")


Judged = Callable[[Lies], Witness]


@pytest.fixture
def played(monkeypatch: Patch) -> Callable[[Lies], Played]:
    """A referee of short replays, on a machine that may be busy."""
    monkeypatch.setattr(module, "TIMING_SECONDS", 0.05)
    monkeypatch.setattr(module, "UNCERTAIN_US", 1e9)

    def made(lies: Lies) -> Played:
        referee = Played(sessions_job(controls=("baseline",)), "baseline")
        referee.lies = lies
        return referee

    return made


@pytest.fixture
def witness(played: Callable[[Lies], Played], monkeypatch: Patch) -> Judged:
    def judged(lies: Lies) -> Witness:
        names: list[str] = []

        def current(name: str) -> None:
            names.append(name)
            if name == "liar" and (lies.stops < 100 or lies.broken):  # the anchor has all the time
                monkeypatch.setattr(module, "ANSWER_SECONDS", 2.0)

        anchor, answer = played(lies).witnesses(["liar"], current)
        assert (anchor.variant, anchor.audits, anchor.why) == ("baseline", 200, "")
        assert names == ["baseline", "liar"]
        return answer

    return judged


def test_an_honest_executor_has_the_time_of_its_calls(witness: Judged) -> None:
    answer = witness(HONEST)
    assert (answer.why, answer.unmeasured, answer.audits) == ("", "", 200)
    assert answer.replays >= 12


def test_a_call_takes_what_it_adds_to_a_graph_without() -> None:
    times = ReplayTimes(bare=[100.0, 101.0, 102.0, 101.0])
    times.variant = {0: [190.0, 191.0, 192.0], 1: [200.0, 201.0, 202.0]}
    call_us, error = times.call(calls=9)  # and the one ahead of them
    assert call_us == pytest.approx(9.5)
    assert 0.03 < error < 0.15


@pytest.mark.parametrize(
    ("lies", "why", "unmeasured"),
    [
        (Lies(skipped=1), "wrong", ""),
        (Lies(skipped=1, mended=True), "wrong", ""),
        (Lies(early=True), "wrong", ""),
        (Lies(stops=5), "", "nothing came for 2 s"),
        (Lies(fails="no such thing"), "", "no such thing"),
        (Lies(calls=0), "its graph has 0 calls", ""),
        (Lies(calls=1 << 20), "its graph has 1048576 calls", ""),
        (Lies(layouts=b"{"), "does not say how its outputs lie in memory", ""),
        (Lies(tells=b"[" * 5000), "does not say how its outputs lie in memory", ""),
        (Lies(tells=b" " * (2 << 20)), "", "its message is broken"),
        (Lies(broken=True), "", "its message is broken"),
        (Lies(layouts=HONEST.layouts.replace(b"18}]", b"14}]")), "", "lacks 4 launches of 8 calls"),
        (
            Lies(layouts=HONEST.layouts.replace(b'{"k":9,', b'{"k":8,"j":1,')),
            "",
            "and has 1 others",
        ),
        (Lies(kills=True), "", "its process ended"),
    ],
)
def test_one_that_lies_has_no_time_that_counts(
    witness: Judged, lies: Lies, why: str, unmeasured: str
) -> None:
    answer = witness(lies)
    assert why in answer.why
    assert bool(why) == bool(answer.why)
    assert unmeasured in answer.unmeasured
    assert bool(unmeasured) == bool(answer.unmeasured)


def test_a_referee_that_is_stopped_has_no_time(witness: Judged, monkeypatch: Patch) -> None:
    """Who stops it while the graphs of others run makes these longer, and its own call shorter."""
    monkeypatch.setattr(module, "UNCERTAIN_US", 0.0)
    monkeypatch.setattr(module, "UNCERTAIN", 0.0)
    answer = witness(HONEST)
    assert answer.microseconds is None
    assert answer.unmeasured.startswith("the referee was interrupted at the end of")


@pytest.mark.parametrize(("tenths", "has_time"), [(5, True), (8, False)])
def test_a_busy_machine_leaves_a_time(
    tenths: int, has_time: bool, played: Any, monkeypatch: Patch
) -> None:
    """The time itself, of a stand-in on a busy machine, may be less than that of its neighbours."""
    replays = itertools.count()
    taken = property(lambda replay: next(replays) // 4 * 7 % 10 < tenths)  # a round of each kind
    monkeypatch.setattr(module.GatedReplay, "interrupted", taken)
    _, answer = played(HONEST).witnesses(["liar"], lambda name: None)
    assert ("interrupted" in answer.unmeasured) == (not has_time)


def test_a_machine_that_is_busy_for_a_moment_is_asked_again(
    played: Any, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(module, "MOST_ROUNDS", 6)
    replays = itertools.count()
    taken = property(lambda replay: next(replays) < 24)  # all of the first six rounds
    monkeypatch.setattr(module.GatedReplay, "interrupted", taken)
    _, answer = played(HONEST).witnesses(["liar"], lambda name: None)
    assert answer.unmeasured == ""


def test_who_kills_what_measures_ends_itself_alone(played: Any) -> None:
    every = list(played(Lies(kills=True)).witnesses(["liar", "next"], lambda name: None))
    assert [one.variant for one in every] == ["baseline", "liar", "baseline", "next"]
    assert [bool(one.unmeasured) for one in every] == [False, True, False, False]
    assert every[-1].audits == 200


@pytest.mark.parametrize(
    ("rounds", "seconds", "enough"),
    [(5, 1.0, False), (6, 1.0, True), (39, 0.1, False), (40, 0.1, True), (1, 9.0, False),
     (2, 9.0, True)],
)  # fmt: skip
def test_long_calls_have_fewer_rounds(rounds: int, seconds: float, enough: bool) -> None:
    made = Played(sessions_job(controls=("baseline",)), "baseline")
    assert made.is_enough(rounds, seconds) == enough


@pytest.mark.parametrize(("step", "interrupted"), [(1, False), (20_000, True)])
def test_an_end_before_the_work_is_done_stops_no_clock(
    step: int, interrupted: bool, monkeypatch: Patch
) -> None:
    """Who commits later has the time of later, and who commits earlier does not have the sums."""
    events: list[str] = []

    class Words(dict[int, int]):
        def __getitem__(self, place: int | slice) -> Any:
            events.append("word" if isinstance(place, int) else "sums")
            return 1 if isinstance(place, int) else memoryview(b"")

    def clock() -> int:
        events.append("clock")
        return len(events) * step

    monkeypatch.setattr(time, "perf_counter_ns", clock)
    page: Any = SimpleNamespace(words=Words())
    made = GatedProcess(page, cast(Any, None), 0, cast(Any, None))
    made.open(0)
    assert events[-3:] == ["word", "sums", "clock"]
    assert made.made[0].interrupted == interrupted


def test_a_referee_that_fails_fails_no_variant(monkeypatch: Patch) -> None:
    told: list[Event | str] = []

    def witnesses(made: Referee, variants: list[str], current: Callable[[str], None]) -> Any:
        assert (made.anchor, variants) == ("torch", ["baseline", "fix1"])
        yield Witness(variant="baseline", anchor="torch", audits=9)
        raise RuntimeError("no such thing")

    monkeypatch.setattr(Referee, "witnesses", witnesses)
    journal: Any = SimpleNamespace(write=told.append, current=told.append)
    server = Server(sessions_job(references=("torch",), controls=("baseline", "torch")), journal)
    server.witnessed(["baseline", "fix1", "torch"])
    assert told == [Witnessed(witness=Witness(variant="baseline", anchor="torch", audits=9)), ""]


def test_an_executor_has_no_pipe_or_page_of_another() -> None:
    made = Played(sessions_job(controls=("baseline",)), "baseline")

    def looks(page: Page, pipe: Connection) -> None:
        is_hidden = f"{address:x}-" not in Path("/proc/self/maps").read_text()
        numbers = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
        left = numbers - {pipe.fileno(), *range(3)}
        pipe.send_bytes(f"{len(left)} {is_hidden}".encode())

    with made.started(lambda page, pipe: time.sleep(60)) as first:
        address = first.page.address
        with made.started(looks) as second:
            told = second.received().decode()
    assert told == "1 True"  # the folder that lists them is open


def test_an_executor_that_shows_no_output_is_not_right() -> None:
    made = object.__new__(Auditor)
    made.gpu = cast(Any, SimpleNamespace(sums={}))
    made.bound = Tolerance(absolute=1e-3, relative=1e-3)
    made.inputs = cast(Any, SimpleNamespace(written=lambda *call: {}))
    made.study = cast(Any, SimpleNamespace(reference=lambda: torch.ones(4)))
    claims = Claims(8, (7,), np.zeros((1, 9, 5)), [(0, 3)], Revealed((), ()), [])
    with pytest.raises(NoResult, match="run\\(\\) gives nothing"):
        made.audit(claims)
    shown = Revealed((Layout("", "float32", (4,), (1,)),), ("",))
    with pytest.raises(ValueError, match="zip"):
        made.audit(replace(claims, revealed=shown))


def test_outputs_with_gaps_are_not_summed() -> None:
    """A sum takes elements as they lie in memory, and would end ahead of the last."""
    with pytest.raises(ValueError, match="gaps in memory"):
        require_dense([torch.empty(4), torch.empty(4, 4)[:, :2]])
    require_dense([torch.empty(4, 2).t()])
