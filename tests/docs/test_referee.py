"""The referee of benchmarks.referee and its statistics, with a stand-in for executor and GPU."""

from __future__ import annotations

import math
import random
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import msgspec
import numpy as np
import pytest
from benchmarks import gated, referee
from benchmarks.gated import (
    ARRIVED,
    ENDED,
    ENDED_AT,
    EXPIRED,
    FAILED,
    GO,
    GRAPHS,
    OPENED,
    OPENED_AT,
    READY,
    RING,
    SECRETS,
    SMS,
    STATE,
    Executor,
    Page,
    Referee,
    Replay,
    Turn,
)
from benchmarks.referee import Case, Today
from benchmarks.referee_table import (
    BLOCKS,
    DESIGNS,
    MIXED,
    PAGE,
    RECORDED,
    SESSION,
    SHARED,
    Measured,
    Recording,
    Timed,
    compared,
    details,
    misses,
    shown,
)
from tools.pages import with_part

from answers import Patch
from workbench.cuda.compiler import Source
from workbench.run.gpu import Gpu, ListedGpus
from workbench.run.worker.timing.timed_gpu import CALL, SLOTS

CALLS, CALL_NS, REPLAY_NS = 4, 1500, 100_000
EXPIRING = Turn(0, 1 << 20)  # whose graph gives up at its gate


class StandIn:
    """A stand-in does the work of an executor and of its GPU."""

    def __init__(self, page: Page) -> None:
        self.page, self.ticket = page, 0
        self.launched: list[int] = []
        self.secrets: list[int] = []
        page.words[SMS] = 2
        page.words[GO], page.words[STATE] = 0, READY

    def launch(self, command: int) -> None:
        words, times = self.page.words, self.page.times
        self.ticket += 1
        place, now = self.ticket % RING, 5_000_000 * self.ticket
        words[ARRIVED] = self.ticket
        if command == EXPIRING.command:
            words[EXPIRED] = self.ticket
            return
        self.page.until(GO, self.ticket)
        self.launched.append(command)
        self.secrets.append(words[SECRETS + place])
        times[OPENED_AT + place] = now
        words[OPENED] = self.ticket
        times[ENDED_AT + place] = now + REPLAY_NS
        words[ENDED] = self.ticket

    def fetch(self, replays: int) -> None:
        """Stamp calls of CALL_NS + command / CALLS, at 2 GHz."""
        stamps = self.page.stamps(replays)
        stamps[:] = 0
        for rows, command in zip(stamps, self.launched[-replays:], strict=True):
            rows[CALL] = (CALLS * CALL_NS + command) * np.array([2, 1])


@contextmanager
def stand_ins(count: int = 2) -> Iterator[tuple[Referee, list[StandIn]]]:
    executors = [StandIn(Page()) for _ in range(count)]
    threads = [
        Thread(target=gated.serve, args=(e.page, e.launch, e.fetch), daemon=True) for e in executors
    ]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # referee and stand-ins poll for each other
    for thread in threads:
        thread.start()
    judge = Referee([Executor(executor.page, CALLS) for executor in executors])
    try:
        yield judge, executors
        judge.quit()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("queued", [False, True])
def test_each_replay_has_its_own_secret_and_its_own_time(queued: bool) -> None:
    turns = [Turn(number % 3 // 2, number % 5, number % GRAPHS) for number in range(40)]
    with stand_ins() as (judge, executors):
        replays = [*judge.run(turns, queued=queued), *judge.run(turns[:7], queued=queued)]
    turns += turns[:7]
    assert [replay.turn for replay in replays] == turns
    for number, executor in enumerate(executors):
        commands = [turn.command for turn in turns if turn.executor == number]
        assert executor.launched == commands
        slots = [secret % SLOTS for secret in executor.secrets]
        assert slots == [*range(1, len(commands) + 1)]
        assert len({secret // SLOTS for secret in executor.secrets}) > len(commands) - 3
    for replay in replays:
        assert replay.call == pytest.approx((CALL_NS + replay.turn.command / CALLS) / 1e3)
        assert replay.mhz == pytest.approx(2000)
        assert replay.gpu == REPLAY_NS / 1e3
        assert 0 < replay.answer <= replay.clock


def test_a_replay_at_its_gate_waits_while_the_other_executor_replays() -> None:
    with stand_ins() as (judge, executors):
        other, turn = judge.executors[1], Turn(1, 3)
        other.post(turn)
        other.arrive()
        assert len(judge.run([Turn(0, 0)] * 3)) == 3
        assert executors[1].launched == []
        other.open(turn, 0.0)
        assert executors[1].launched == [turn.command]


def test_a_replay_without_an_end_is_an_error() -> None:
    with stand_ins() as (judge, _), pytest.raises(RuntimeError, match="an executor failed"):
        judge.run([EXPIRING])
    page = Page()
    page.words[STATE] = FAILED
    with pytest.raises(RuntimeError, match="an executor failed"):
        page.until(ENDED, 1)


def test_the_gates_compile() -> None:
    for kernel in ("gate", "report"):
        source = Source(Path(gated.__file__).with_suffix(".cu"), kernel, gated.MACROS, ())
        compiled, _ = source.compile("sm_90a")
        assert not compiled.warnings


def test_rounds_hold_every_chained_graph_once_and_the_others_of_a_session() -> None:
    chained = {Turn(e, i) for e, count in enumerate(referee.COUNTS) for i in range(count)}
    for order in referee.ORDERS.values():
        for number, graphs in ((0, {*range(GRAPHS)}), (1, {0})):
            turns = order(number)
            counted = [turn for turn in turns if turn.counts]
            assert len(counted) == len(chained)
            assert {*counted} == chained
            assert {turn.graph for turn in turns} == graphs
    blocks = referee.in_blocks(1)
    first = {next(turn for turn in blocks if turn.executor == executor) for executor in (0, 1)}
    assert first == {turn for turn in blocks if turn.follows}
    assert [turn.executor for turn in blocks] in ([0] * 9 + [1] * 5, [1] * 5 + [0] * 9)
    group, other = referee.halves(6)
    assert sorted([*group, *other]) == [*range(6)]


def case(shared: float, apart: float, bias: float = 0.0) -> Measured:
    """Draw times of 5 µs. Ratios deviate by ``shared`` in one process, by ``apart`` in two."""
    draw, measured = random.Random(1), Measured("softmax", "fused", {}, 20)
    for design in (SESSION, MIXED, BLOCKS):
        deviation, off = (shared, 0.0) if design == SESSION else (apart, bias)
        for _ in range(200):
            times = (draw.gauss(math.log(5) + off, deviation / math.sqrt(2)) for _ in "12")
            measured.add(design, *(Timed(time, 0.8, 1980.0) for time in times))
    return measured


def test_widths_and_bias_are_those_that_were_drawn() -> None:
    result = compared(case(shared=0.01, apart=0.02, bias=0.005), MIXED)
    assert result.wider[0] == pytest.approx(2, rel=0.15)
    assert result.wider[1] < 2 < result.wider[2]
    assert result.bias[1] < 0.005 < result.bias[2]
    assert result.half == pytest.approx(2.365 * 0.02 / math.sqrt(8), rel=0.15)
    assert (result.sessions, result.intervals) == (200, 25)
    assert result.excluding <= 5
    assert result.microseconds == pytest.approx(5.025, rel=0.01)


def test_the_rule_is_for_widths_and_for_bias() -> None:
    def why(*cases: Measured) -> str:
        return "; ".join(misses(Recording(cases=[*cases]), BLOCKS))

    narrow = case(0.01, 0.01)
    assert why(narrow, case(0.01, 0.012)) == ""
    assert re.fullmatch(r"[12]\.\d times as wide at [45]\.\d+ µs", why(narrow, case(0.01, 0.02)))
    assert re.fullmatch(r"-2\.0 % at 4\.9\d* µs", why(narrow, case(0.001, 0.001, -0.02)))


def test_a_group_has_the_mean_logarithm_of_the_medians_of_its_instances() -> None:
    group = Timed.of([([1, 2, 9], [0.7, 0.8, 0.9], [1980] * 3), ([8, 8], [0.6] * 2, [1960] * 2)])
    assert math.exp(group.logarithm) == pytest.approx(4)
    assert (group.gap, group.mhz) == pytest.approx((0.7, 1970))
    times = {(0, 0): (2, 3, 4), (0, 1): (12,), (0, 2): (50,), (1, 0): (50,)}
    replays = [
        Replay(Turn(*place), 0, 0, 0, 0, call, 0.8, 1980)
        for place, calls in times.items()
        for call in calls
    ]
    assert math.exp(referee.timed(replays, 0, [0, 1]).logarithm) == pytest.approx(6)


def test_a_case_is_measured(monkeypatch: Patch, tmp_path: Path) -> None:
    """Executors are 1 % slower than sessions here."""

    @contextmanager
    def executors(case: object, calls: int, shared: bool) -> Iterator[Referee]:
        with stand_ins() as (judge, _):
            yield judge

    def in_session(case: object) -> Today:
        first, second = (
            Timed(math.log(CALL_NS / 1010) + noise, 1, 1) for noise in (0, next(drawn))
        )
        return Today(CALLS, (first, second))

    drawn = iter([0, 1e-3, -1e-3])
    gpus = ListedGpus((Gpu("NVIDIA H200", "580", "9.0"),))
    for name, value in {
        "executors": executors, "in_session": in_session, "used_mib": lambda: 1.0,
        "contexts": lambda: [(600.0, 100.0)], "look": lambda: gpus,
        "ROUNDS": 2, "SWITCHES": 6, "AT_ONCE": 2, "IDLE": (0.0, 50.0),
        "SETTLE_SECONDS": {False: 1e-3}, "IDLE_SECONDS": {False: (0.0, 0.0)},
    }.items():  # fmt: skip
        monkeypatch.setattr(referee, name, value)
    to = tmp_path / "referee.json"
    referee.record([Case(1.5, "softmax", "fused", {}, sessions=2, shared=True)], to)
    recording = msgspec.json.decode(to.read_bytes(), type=Recording)
    (measured,) = recording.cases
    counts = {design: len(groups) for design, groups in measured.sessions.items()}
    assert counts == dict.fromkeys(DESIGNS, 2)
    for design in (MIXED, BLOCKS, SHARED):
        assert compared(measured, design).bias[0] == pytest.approx(0.01, abs=0.004)
    assert "NVIDIA H200" in details(recording)


def test_the_page_has_the_recorded_table_and_what_it_decides() -> None:
    recording = msgspec.json.decode(RECORDED.read_bytes(), type=Recording)
    page = PAGE.read_text("utf-8")
    assert shown(recording) in page
    assert with_part(page, "referee", shown(recording)) == page
    short = [
        miss for design in (MIXED, BLOCKS) for miss in misses(recording, design) if "wide" in miss
    ]
    assert [miss.split()[-2][0] for miss in short] == ["1", "5", "1", "5"]
    assert [miss.split()[-2] for miss in misses(recording, SHARED)] == ["1.59"]
