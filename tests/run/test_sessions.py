"""The processes that time: how they are forked, and what rounds are made of, without a GPU."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter, sleep
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest
import torch
from msgspec import structs

from answers import Capsys, Patch, not_none
from inprocess import calls_here
from made_records import sessions_job
from workbench.cli.progress import Progress
from workbench.derive.speedup import ratio_of, session_times
from workbench.errors import ToolFailed, UsageError
from workbench.evidence.records import Call, CheckOutcome, Series, Session
from workbench.run.process import worker_environment
from workbench.run.protocol import (
    EVENTS,
    PARENT,
    Broken,
    Done,
    ErrorText,
    Event,
    Failed,
    Round,
    SessionsDone,
    TimedSession,
    VariantsJob,
    decode,
    write_turn,
)
from workbench.run.worker import correctness, job_worker, session_forks
from workbench.run.worker.correctness import guarded
from workbench.run.worker.event_log import EventLog, in_users_words, or_broken
from workbench.run.worker.session_forks import Answer, Server
from workbench.run.worker.startup import is_alive, register_ahead, wait_for_turn
from workbench.run.worker.timing import graphs, instances, neighbours, session
from workbench.run.worker.timing.instances import Instance, NotCaptured, NotTimed
from workbench.run.worker.timing.neighbours import (
    BETWEEN,
    CALL,
    END,
    GUARD_BYTES,
    START,
    Times,
    between,
    factors,
    is_dense,
    kept_call,
    mix,
    scaled,
    secret,
)
from workbench.run.worker.timing.session import TimingProcess, order_of
from workbench.study.values import Tolerance
from workbench.words import IN_TURN, CheckResult, Phase, Regime

JOB_OF_TWO = sessions_job(references=("torch",), controls=("baseline", "torch"))


class Scripted(Server):
    """Its sessions fail whom they are told to; each runs in a process of its own all the same."""

    fate: Callable[[int, Sequence[str]], set[str] | Answer]

    def witnessed(self, variants: Sequence[str]) -> None:
        """The referee has tests of its own. Here a call takes 2 µs by its clock."""
        self.by_referee = dict.fromkeys(variants, 2.0)

    def measured(self, variants: Sequence[str], alone: bool) -> Answer:
        out = self.fate(self.done, variants)
        if isinstance(out, Answer):
            return out
        timed = dict.fromkeys((name for name in variants if name not in out), 2.0)
        errors = {name: ErrorText.of(ToolFailed("as told")) for name in out}
        return Answer(errors, timed_session(self.done, timed, alone))


def series(name: str, microseconds: float, **own: Any) -> Series:
    whole: dict[str, Any] = {"regime": Regime.CHAINED, **own}
    return Series(variant=name, instance=0, calls=1, microseconds=(microseconds,), **whole)


def timed_session(
    number: int, microseconds: Mapping[str, float], alone: bool = False, **own: Any
) -> TimedSession:
    every = tuple(series(name, time, **own) for name, time in microseconds.items())
    session = Session(number=number, instances=1, series=every, alone=alone)
    return TimedSession(session=session, nodes=dict.fromkeys(microseconds, ()))


Served = tuple[list[Event], int]
Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: Patch) -> Serve:
    """Runs the server in a child, with what the gate says one time after the other."""
    monkeypatch.chdir(tmp_path)

    def run(fate: Callable[[int, Sequence[str]], Any], *gates: list[str]) -> Served:
        answers = list(gates)
        monkeypatch.setattr(
            "workbench.run.worker.session_forks.wait_for_turn", lambda: tuple(answers.pop(0))
        )
        pid = os.fork()
        if pid == 0:
            with EventLog(tmp_path) as journal:
                server = Scripted(JOB_OF_TWO, journal)
                server.fate = fate
                try:
                    with or_broken(journal):
                        server.run()
                except SystemExit:
                    os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        lines = (tmp_path / EVENTS).read_text().splitlines()
        return [decode(line) for line in lines], os.waitstatus_to_exitcode(status)

    return run


def sessions_of(events: list[Event]) -> list[tuple[int, bool, list[str]]]:
    return [
        (event.session.number, event.session.alone, list(event.nodes))
        for event in events
        if isinstance(event, TimedSession)
    ]


def failed_in(events: list[Event]) -> list[tuple[str, str]]:
    """Who failed, and why."""
    return [(e.variant, e.error.message) for e in events if isinstance(e, Failed)]


def only_bad_is_out(events: list[Event]) -> str:
    """Of ``WITH_BAD`` the others are timed in all sessions; the message of ``bad``."""
    ((variant, message),) = failed_in(events)
    assert variant == "bad"
    assert {tuple(names) for _, _, names in sessions_of(events)[1:]} == {("baseline", "a", "torch")}
    return message


WITH_BAD = ["baseline", "a", "bad", "torch"]


def test_references_come_first_by_themselves(serve: Serve) -> None:
    events, code = serve(lambda number, names: set(), ["baseline", "torch"], [])
    assert code == 0
    assert sessions_of(events) == [
        (0, True, ["torch"]),
        (0, False, ["baseline", "torch"]),
        (1, False, ["baseline", "torch"]),
    ]
    assert events[-1] == SessionsDone(sessions=2)


def test_the_first_sessions_time_the_same_kernels_alone(tmp_path: Path) -> None:
    with EventLog(tmp_path) as journal:
        server: Any = Server(JOB_OF_TWO, journal)
        alone = [timed_session(0, {name: 1.0}, regime=Regime.ALONE) for name in ("fix1", "fix2")]
        seen = []

        def forked(variants: Sequence[str], _: bool) -> Answer:
            seen.append(server.job.kernels_alone)
            return Answer(timed=alone.pop(0))

        server.forked = forked
        server.sessions(["fix1", "fix2"], 2)
    assert (seen, server.job.kernels_alone) == ([(), ("fix1",)], ("fix1",))


@pytest.mark.parametrize(("throttled", "cool"), [(0.0, True), (0.25, False), (None, False)])
def test_a_session_warms_up_shortly_after_one_without_power_limit(
    throttled: float | None, cool: bool, tmp_path: Path
) -> None:
    with EventLog(tmp_path) as journal:
        server: Any = Server(JOB_OF_TWO, journal)
        session = Session(number=0, instances=1, series=(), throttled=throttled)
        server.forked = lambda *_: Answer(timed=TimedSession(session=session, nodes={}))
        server.session(["torch"], alone=True)
        assert not server.cool
        server.session(["fix1", "torch"], alone=False)
        assert server.cool == cool
        server.session = lambda variants, alone: set()
        server.sessions(["fix1"], 1)
        assert not server.cool


@pytest.mark.parametrize("cool", [True, False])
def test_long_calls_warm_up_for_a_second(cool: bool, monkeypatch: Patch) -> None:
    now = iter(float(n) / 100 for n in range(10_000))
    monkeypatch.setattr(session, "monotonic", lambda: next(now))
    clock: list[float] = []
    rounds = SimpleNamespace(run=lambda number: clock.append(1.0), clock=clock)
    timing = timing_of(2, instances=[SimpleNamespace(each=100.0)], cool=cool)
    timing.warm_up(rounds)
    took = next(now)
    assert took < 0.5 if cool else took > session.POWER_SECONDS


def test_a_clock_that_stands_still_ends_no_session_late(monkeypatch: Patch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 0.0)
    began = perf_counter()
    clock: list[float] = []

    def run(number: int) -> None:
        sleep(0.01)
        clock.append(1.0)

    rounds = SimpleNamespace(run=run, clock=clock)
    timing_of(2, instances=[SimpleNamespace(each=1.0)]).warm_up(rounds)
    assert perf_counter() - began < session.LONGEST_WARM_UP_SECONDS


def test_who_fails_is_in_no_later_session(serve: Serve) -> None:
    turn = ["baseline", "bad"]
    events, _ = serve(lambda number, names: {"bad"} & {*names}, turn, turn, [])
    assert sessions_of(events) == [(number, False, ["baseline"]) for number in range(4)]


HONEST = ("a", "b", "c", "d", "e")


@pytest.mark.parametrize("blamed", [{"bad"}, {"c"}, {"c", "bad"}, {"bad", *HONEST}])
def test_only_what_a_variant_does_alone_counts(blamed: set[str], serve: Serve) -> None:
    """Whoever is blamed beside others, the one that breaks a session of its own is out."""

    def fate(number: int, names: Sequence[str]) -> set[str] | Answer:
        if list(names) == ["bad"]:
            return {"bad"}
        suspects = {n: ErrorText.of(UsageError("changes torch")) for n in blamed}
        return Answer(suspects, ended=True) if "bad" in names else set()

    events, _ = serve(fate, [*HONEST, "bad"], [])
    assert sessions_of(events) == [(0, False, [*HONEST]), (1, False, [*HONEST])]


@pytest.mark.parametrize("slowed", ["baseline", "a", "bad"])
def test_who_makes_times_differ_from_the_referees_is_out(slowed: str, serve: Serve) -> None:
    """It may slow down the parent, another, or lie about itself; with what it does to the parent
    another session is begun, and none of the disturbed ones is recorded.
    """

    def fate(number: int, names: Sequence[str]) -> Answer:
        times = dict.fromkeys(names, 2.4)  # within 1 µs of the referee's
        if "bad" in names:
            times |= {name: 5.0 for name in names if name in (slowed, "baseline")}
        return Answer(timed=timed_session(number, times))

    events, _ = serve(fate, WITH_BAD, [])
    assert only_bad_is_out(events) == (
        "the times differ: baseline takes 5 µs in a session, 2 µs by the referee's clock"
    )


def test_whom_another_makes_fail_is_timed_without_it(serve: Serve) -> None:
    def fate(number: int, names: Sequence[str]) -> set[str]:
        return {"a", "baseline"} & {*names} if "bad" in names else set()

    assert only_bad_is_out(serve(fate, WITH_BAD, [])[0]) == "as told"


def test_what_a_sessions_process_tells_is_read_as_data(serve: Serve, monkeypatch: Patch) -> None:
    """Who garbles it beside others is found; nothing that it tells is run."""

    def garbled(answer: Any) -> bytes:
        told = json.encode(answer)
        return b"cos\nsystem\n." if b"bad" in told else told

    json = msgspec.json
    monkeypatch.setattr(
        session_forks, "msgspec", SimpleNamespace(**{**vars(msgspec), "json": SimpleNamespace(
            encode=garbled, decode=json.decode)})
    )  # fmt: skip
    events, _ = serve(lambda number, names: set(), WITH_BAD, [])
    assert only_bad_is_out(events).startswith("its process tells what is no session")


@pytest.mark.parametrize(
    ("names", "time"),
    [
        (["baseline", "a"], lambda name, names: 0.5 if name == "a" else 2.0),  # of itself alone
        (["baseline", "a", "torch"], lambda name, names: 5.0),  # the control is apart alone, too
        (["baseline", "a", "b"], lambda name, names: 2.0 if len(names) < 3 else 5.0),
    ],
)
def test_a_time_that_no_other_variant_disturbs_is_recorded(
    names: list[str], time: Callable[..., float], serve: Serve
) -> None:
    """An honest one may have another time, too: its gate says so, and it is not kept."""

    def fate(number: int, names: Sequence[str]) -> Answer:
        return Answer(timed=timed_session(number, {name: time(name, names) for name in names}))

    events, code = serve(fate, names, [])
    assert (code, failed_in(events)) == (0, [])
    assert [each for *_, each in sessions_of(events) if each != ["torch"]] == [names] * 2


def test_a_reference_that_steps_slow_down_is_disturbed_in_time_and_in_cycles() -> None:
    """Another clock changes one of them; what takes no time at all is slowed by anything."""
    server = object.__new__(Server)
    server.by_referee, server.alone = {}, {"torch": (2.0, 4000.0), "idle": (0.0, 0.0)}
    server.anchor = ""

    def disturbed(name: str, time: float, mhz: float) -> bool:
        return name in server.disturbed_in(timed_session(0, {name: time}, mhz=(mhz,)).session)

    assert disturbed("torch", 2.2, 2000.0)
    assert not disturbed("torch", 2.2, 1818.0)
    assert not disturbed("torch", 2.1, 2000.0)
    assert not disturbed("idle", 0.0, 2000.0)


def test_sizes_that_fill_l2_are_not_taken_for_a_lie() -> None:
    """A row norm of 4096 x 4096 halves on an H200: 64 MB, which the next calls pay for. The
    referee, who times these too, sees all take less, the anchor as well.
    """
    sessions = {"builtin": 20.14, "fix2": 22.19, "baseline": 30.35}
    server = object.__new__(Server)
    server.anchor, server.alone = "builtin", {"builtin": (20.1, 0.0)}
    server.by_referee = {"builtin": 17.76, "fix2": 19.08, "baseline": 27.38}

    def disturbed(**changed: float) -> set[str]:
        timed = timed_session(0, {**sessions, **changed})
        return {*server.disturbed_in(timed.session)}

    assert disturbed() == set()
    assert disturbed(fix2=16.0) == {"fix2"}
    assert disturbed(baseline=41.0) == {"baseline"}
    server.alone = {}
    assert disturbed() == {"builtin"}  # nobody says how it is without steps beside it


@pytest.mark.parametrize("culprits", [{"bad"}, set()])
def test_an_error_of_a_session_costs_only_who_ends_its_own(
    culprits: set[str], serve: Serve
) -> None:
    """Nobody's name is known where it is raised; where no variant is at fault, it ends the job."""

    def fate(number: int, names: Sequence[str]) -> set[str]:
        if culprits & {*names} or (not culprits and len(names) > 1):
            raise IndexError("list index out of range")
        return set()

    events, code = serve(fate, [*HONEST, "bad"], [])
    failed = failed_in(events)
    ended = [e.error.message for e in events if isinstance(e, Broken)]
    if culprits:
        assert [name for name, _ in failed] == ["bad"]
        assert failed[0][1].startswith("IndexError: list index out of range")
        assert sessions_of(events)[-1][2] == [*HONEST]
    else:
        assert (failed, code) == ([], 1)
        assert ended[0].startswith("IndexError: list index out of range")
        assert ended[0].endswith("with no variant that is timed alone")


@pytest.mark.parametrize("code", [17, 1, -signal.SIGKILL])
def test_the_server_goes_down_as_its_session_did(code: int, serve: Serve) -> None:
    def fate(number: int, names: Sequence[str]) -> set[str]:
        if code < 0:
            signal.raise_signal(-code)
        ctypes.CDLL(None).syscall(231, code)  # exit_group, which nothing can refuse
        return set()

    events, found = serve(fate, ["baseline"], [])
    assert found == code
    assert not any(isinstance(event, Done | TimedSession) for event in events)


def test_a_gate_is_open_once(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    write_turn(tmp_path, ["a", "b"])
    assert wait_for_turn() == ("a", "b")
    assert not list(tmp_path.iterdir())


# ---- rounds ------------------------------------------------------------------------------------
def test_a_round_has_every_instance_once_in_a_random_order() -> None:
    order = order_of(range(5), 0)
    found = Counter((one.instance, one.regime) for one in order)
    assert found == Counter((instance, regime) for instance in range(5) for regime in IN_TURN)
    assert {one.regime for one in order_of(range(5), 1)} == {Regime.CHAINED}
    assert order_of(range(50), 1) != order_of(range(50), 1)


class FakeCard:
    """Graphs take what their instance says, in nanoseconds; a cycle is half of one. Of each call
    two microseconds are its neighbours'.
    """

    def __init__(self) -> None:
        self.replayed: list[float] = []
        self.fetched: list[list[float]] = []
        self.at: list[int] = []  # replays, counted back from the last one, that a wait looks at

    @property
    def replays(self) -> int:
        return len(self.replayed)

    def wait(self, done: Any, tell: Callable[[int], None]) -> None:
        for back in self.at:
            tell(self.replays - back)

    def fetch(self, count: int) -> int:
        self.fetched.append(self.replayed[-count:])
        return count

    def times(self, count: int) -> Any:
        whole = np.array(self.fetched.pop(0))
        gaps = np.full(count, 4000.0)
        calls = whole - 8000
        return Times(whole, 2 * whole, calls, cycles_of_calls=2 * calls, gaps=gaps)


class FakeInstance:
    def __init__(self, card: FakeCard, name: str, takes: float, slow: bool = False) -> None:
        self.gpu, self.takes, self.is_slow = card, takes, slow
        self.unchecked, self.refused_at = False, ""
        self.variant, self.control = name, False
        self.calls = dict.fromkeys(Regime, 4)

    def replay(self, regime: Regime) -> None:
        self.gpu.replayed.append(4000 * self.takes)


@pytest.fixture
def no_events(monkeypatch: Patch) -> None:
    monkeypatch.setattr("torch.cuda.Event", lambda: SimpleNamespace(record=lambda: None))


def test_series_are_of_the_instance_that_was_replayed(no_events: None) -> None:
    card: Any = FakeCard()
    instances: Any = [
        FakeInstance(card, "a", 10.0),
        FakeInstance(card, "b", 30.0),
        FakeInstance(card, "a", 11.0),
        FakeInstance(card, "slow", 9000.0, slow=True),
        FakeInstance(card, "beside another process", 1.0),
    ]
    timed = session.Rounds(card, instances)
    for number in (-2, 0, 1, 2, 3, 4, 5):
        timed.run(number)
    timed.finish()
    series = {(s.variant, s.instance, s.regime): s for s in session.series_of(timed, instances)}
    assert len(series) == 5 * 3
    for (name, instance, regime), one in series.items():
        takes = {"a": 10.0 + instance, "b": 30.0, "slow": 9000.0}.get(name, 1.0)
        count = 6 if regime == Regime.CHAINED else 3
        if name == "slow":
            count = 2 if regime == Regime.CHAINED else 1
        alone = regime == Regime.BACK_TO_BACK
        assert one.microseconds == (takes if alone else max(0.0, takes - 2.0),) * count
        assert one.gap == (None if alone else 1.0)
        assert one.mhz == (2000.0,) * count
    assert timed.clock == [2000.0] * 7


class HotCard(FakeCard):
    """Its clock falls as the power that kernels draw rises, averaged over many replays."""

    SETTLES_IN = 1000  # replays
    power = 1.0

    def draw(self, power: float) -> float:
        """The clock at its limit of 1, as a share of the highest."""
        self.power += (power - self.power) / self.SETTLES_IN
        return min(1.0, 1 / self.power)


class HotInstance(FakeInstance):
    """``takes`` is at the highest clock."""

    def __init__(self, card: HotCard, name: str, takes: float, power: float) -> None:
        super().__init__(card, name, takes)
        self.card, self.power = card, power

    def replay(self, regime: Regime) -> None:
        self.lasts = self.takes / self.card.draw(self.power)
        self.card.replayed.append(4000 * (2 + self.lasts))


def test_at_the_power_limit_a_ratio_is_another_alone(no_events: None) -> None:
    """In turn all have one clock, alone the kernel that draws more power has a lower one."""
    card: Any = HotCard()
    instances: Any = [
        HotInstance(card, "sdpa", 150.0, power=1.1),
        HotInstance(card, "fix", 120.0, power=1.25),
    ]
    timed = session.Rounds(card, instances)
    for number in range(-1000, 6):
        timed.run(number)
    timed.finish()
    for place in (1, 0):
        timed.alone(place)
    series = session.series_of(timed, instances)
    recorded = Session(number=0, instances=1, series=series)
    times = session_times([recorded])

    def ratio(regime: Regime) -> float:
        found = not_none(ratio_of(times["sdpa", regime, False], times["fix", regime, False]))
        return found.ratio

    assert ratio(Regime.CHAINED) == pytest.approx(150 / 120, rel=0.01)
    assert ratio(Regime.ALONE) == pytest.approx(150 * 1.1 / (120 * 1.25), rel=0.01)
    alone = next(one for one in series if (one.variant, one.regime) == ("fix", Regime.ALONE))
    first, last = alone.microseconds[0], alone.microseconds[-1]
    assert (alone.calls, first < 0.97 * last) == (4, True)


@pytest.mark.parametrize(
    ("reasons", "alone", "kernels"),
    [
        ({"SwPowerCap"}, False, {"sdpa", "slowest", "fa4", "fix3", "fix2", "fix1", "last"}),
        ({"SwPowerCap"}, True, set()),
        ({"SwThermalSlowdown"}, False, set()),
    ],
)
def test_those_that_count_are_timed_alone_at_the_power_limit(
    reasons: set[str], alone: bool, kernels: set[str], no_events: None, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(session, "switch_contexts", lambda: None)
    card: Any = HotCard()
    names = ["slowest", "sdpa", "fa4", "fix0", "fix1", "fix2", "fix3", "last"]
    takes = [90.0, 50.0, 40.0, 80.0, 70.0, 60.0, 30.0, 85.0]
    instances = [HotInstance(card, *one, power=1.0) for one in zip(names, takes, strict=True)]
    for one in (*instances, twin := HotInstance(card, "fix3", 1.0, power=1.0)):
        one.parts, one.each = (), 1.0  # type: ignore[attr-defined]
    twin.variant, twin.control = "fix3", True

    made = timing_of(5, instances=[twin, *instances], throttled=[], reasons=set())
    made.job = structs.replace(
        made.job,
        params={name: {} for name in names},
        references=("slowest", "sdpa", "fa4", "slow"),
        controls=("fix0", "slowest"),
    )
    made.setup = SimpleNamespace(gpu=card, with_neighbours=())
    load = SimpleNamespace(temperature_c=None, throttled=True, reasons=reasons)
    made.gauge = SimpleNamespace(load=lambda: load)
    heard: list[Round] = []
    made.heard, made.wanted = heard.append, 2
    made.round = Round(session=0, alone=False, number=0, rounds=2)
    made.build, made.warm_up = lambda variants: 1, lambda rounds: None
    found = made.session(0, names, alone=alone)
    assert {one.variant for one in found.series if one.regime == Regime.ALONE} == kernels
    assert {one.variant for one in heard if one.kernel_alone} == kernels


def test_a_long_round_tells_who_is_at_work(no_events: None) -> None:
    """It waits for the round before the last that was queued."""
    card: Any = FakeCard()
    instances: Any = [FakeInstance(card, name, 10.0) for name in "abc"]
    told: list[tuple[int, int | None]] = []
    timed = session.Rounds(card, instances, tell=lambda *seen: told.append(seen))
    timed.run(0)
    timed.run(1)
    (order, *_), _ = [*timed.queued, None]
    third = len(session.order_of(range(3), 3))
    card.at = [third + each for each in (len(order) + 5, len(order) - 1, len(order) - 2, 0, -1)]
    timed.run(3)
    assert told == [(0, None), (1, None), *((1, order[at].instance) for at in (0, 0, 1, -1, -1))]


def test_a_round_that_no_stream_takes_is_waited_for_in_parts(
    no_events: None, monkeypatch: Patch
) -> None:
    """A launch that no stream has room for would wait where nobody tells who hangs."""
    card: Any = FakeCard()
    instances: Any = [FakeInstance(card, f"v{number}", 10.0) for number in range(334)]
    told: list[tuple[int, int | None]] = []
    timed = session.Rounds(card, instances, tell=lambda *seen: told.append(seen))
    card.at = [0]
    waited: list[int] = []
    monkeypatch.setattr(card, "wait", lambda done, tell: waited.append(card.replays))
    timed.run(0)
    assert waited[0] <= 2 * session.MOST_QUEUED < card.replays == 1002
    timed.run(1)
    timed.finish()
    assert timed.seconds == pytest.approx(334 * 4e-5)  # of round 1, in which few graphs run
    assert {len(column.microseconds) for column in timed.columns.values()} == {1, 2}


class FakeEvent:
    """Over when so many looks have been taken."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def record(self) -> None:
        pass

    def query(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_what_hangs_is_told_no_more(monkeypatch: Patch) -> None:
    monkeypatch.setattr(neighbours, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr("torch.cuda.Event", lambda: FakeEvent(0))
    made: Any = object.__new__(neighbours.TimedGpu)
    made.looking, made.seen = None, torch.zeros(1, dtype=torch.int32)
    made.state = torch.full((1,), 7, dtype=torch.int32)
    told: list[int] = []

    def tell(replay: int) -> None:
        told.append(replay)
        made.state.fill_(9)

    done: Any = FakeEvent(40)
    made.wait(done, tell)
    assert told == [7, 9]


def test_a_round_is_told_once_unless_somebody_is_at_work_in_it() -> None:
    heard: list[Round] = []
    before = Round(session=0, alone=False, number=0, rounds=6)
    instances = [SimpleNamespace(variant="fix1")]
    made = timing_of(2, instances=instances, wanted=6, round=before, heard=heard.append)
    for number, instance in ((-2, None), (-2, None), (0, None), (0, 0), (0, 0), (1, None)):
        made.tell(number, instance)
    assert [(one.number, one.variant) for one in heard] == [
        (-2, ""),
        (0, ""),
        (0, "fix1"),
        (0, "fix1"),
        (1, ""),
    ]


def test_who_is_at_work_in_a_round_has_the_gpu(tmp_path: Path) -> None:
    with EventLog(tmp_path) as journal:
        server = Server(JOB_OF_TWO, journal)
        for variant, holder in (("fix1", "fix1"), ("", "")):
            server.heard(Round(session=1, alone=False, number=3, rounds=6, variant=variant))
            assert (tmp_path / "current").read_text().strip() == holder


def test_stamps_of_an_older_replay_do_not_count() -> None:
    stamps = np.zeros((1, 4, 4, 2), dtype=np.int64)
    stamps[0, START], stamps[0, END] = (100, 10_000_000), (320, 10_000_110)
    stamps[0, BETWEEN], stamps[0, CALL] = (40, 20), (97, 50)
    stamps[0, :, 3] = [[7, 9], [9, 5_000], [0, 0], [7, 7]]  # an SM that missed this replay
    stamps[0, CALL, 2] = 900  # and one that missed a stamp
    times = between(stamps)
    assert (times.nanoseconds.tolist(), times.cycles.tolist()) == ([110.0], [220.0])
    assert (times.calls.tolist(), times.gaps.tolist()) == ([30.0], [20.0])
    assert times.cycles_of_calls.tolist() == [57.0]


# ---- what the neighbours draw ------------------------------------------------------------------
def test_every_piece_of_every_call_has_its_own_factor() -> None:
    pieces = torch.arange(5000)
    first, second = (factors(secret(replay, 3, 0), pieces) for replay in (7, 8))
    assert first.tolist()[:50] == [
        1 - (mix(secret(7, 3, 0) ^ piece) & 255) / 1024 for piece in range(50)
    ]
    assert float((first == second).double().mean()) < 0.01
    assert 0.75 < float(first.min()) < 0.76
    assert 0.99 < float(first.max()) <= 1
    kept = Counter(kept_call(replay, 12) for replay in range(1, 1200))
    assert set(kept) == set(range(12))
    assert max(kept.values()) < 2 * min(kept.values())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32"])
def test_pieces_are_scaled_as_the_neighbours_do_it(dtype: str) -> None:
    kind = getattr(torch, dtype)
    values = torch.arange(1, 33).to(kind)
    pieces = values.view(torch.uint8).view(-1, 16)
    by = torch.full((len(pieces),), 0.875, dtype=torch.float64)
    found = scaled(pieces, kind, by).contiguous().view(kind).view(-1)
    expected = values if dtype == "int32" else (values.double() * 0.875).to(kind)
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("make", "dense"),
    [
        (lambda: torch.empty(2, 3, 4), True),
        (lambda: torch.empty(2, 3, 4).transpose(0, 2), True),
        (lambda: torch.empty(2, 3, 4).transpose(1, 2).contiguous(), True),
        (lambda: torch.empty(2, 3, 4)[:, :2], False),
        (lambda: torch.empty(1, 3).expand(5, 3), False),
        (lambda: torch.empty(5, 1, 3)[:, 0], True),
        (lambda: torch.empty(7), True),
    ],
)
def test_a_tensor_with_gaps_is_told_from_one_without(make: Any, dense: bool) -> None:
    assert is_dense(make()) == dense


# ---- sessions ----------------------------------------------------------------------------------
def timing_of(sessions: int, **parts: Any) -> Any:
    made = object.__new__(TimingProcess)
    made.cool = False
    made.job = structs.replace(JOB_OF_TWO, sessions=sessions)
    for name, part in parts.items():
        setattr(made, name, part)
    return made


class Refused:
    def __init__(self, *anything: Any) -> None:
        raise ValueError("not this one")


class Empty:
    """Of one whose graph is empty no nodes are known."""

    unchecked = False

    def __init__(self, *anything: Any) -> None: ...

    @property
    def nodes(self) -> Call:
        raise NotTimed("launched nothing")


@pytest.mark.parametrize("stand_in", [Refused, Empty])
def test_who_fails_has_the_gpu_no_more(stand_in: type, monkeypatch: Patch) -> None:
    """It costs only itself: the others of the session are timed."""
    monkeypatch.setattr(session, "Instance", stand_in)
    holders: list[str] = []
    failed: list[str] = []
    timing = timing_of(
        2, out=set(), instances=[], calls={}, setup=None, current=holders.append,
        fail=lambda name, error: failed.append(name),
    )  # fmt: skip
    timing.one("bad", {}, control=False)
    assert (holders, failed, timing.out, timing.calls) == (["bad", ""], ["bad"], {"bad"}, {})


@pytest.mark.parametrize(("room", "out", "made"), [(5, set(), 2), (4, set(), 2), (1, {"b"}, 1)])
def test_no_variant_fails_for_want_of_memory_for_another_instance(
    room: int, out: set[str], made: int, monkeypatch: Patch
) -> None:
    """Of one that has none, the hint says to measure fewer at once."""

    class Large:
        unchecked, nodes, each = True, (), 1.0

        def __init__(self, setup: Any, variant: str, each: float, control: bool) -> None:
            if len(timing.instances) >= room:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory. GPU 0 has ...")
            self.variant = variant

        def require_nodes(self) -> None: ...

    monkeypatch.setattr(session, "Instance", Large)
    monkeypatch.setattr(torch, "empty", lambda *given, **kinds: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 33, 1 << 33))
    monkeypatch.setattr("random.sample", lambda groups, count: groups)
    errors: list[Exception] = []
    timing = timing_of(
        1, out=set(), instances=[], calls={}, setup=None, current=str, require_l2=list,
        fail=lambda name, error: errors.append(error),
    )  # fmt: skip
    timing.job = structs.replace(timing.job, instances=made, controls=("a",))
    assert (timing.build(["a", "b"]), timing.out) == (made, out)
    assert len(timing.instances) == room
    assert all("fewer variants at once" in in_users_words(e, "time").hint for e in errors)


def test_after_a_broken_capture_torch_draws_on(monkeypatch: Patch) -> None:
    """Otherwise: "Offset increment outside graph capture encountered unexpectedly"."""

    class Broken:
        def __init__(self, keep_graph: bool) -> None: ...

        def capture_begin(self, pool: None) -> None: ...

        def capture_end(self) -> None:
            raise RuntimeError("operation failed due to a previous error during capture")

    drawing: list[str] = []
    generator = SimpleNamespace(clone_state=lambda: "new", graphsafe_set_state=drawing.append)
    monkeypatch.setattr(torch.cuda, "default_generators", (generator,))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Broken)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    side: Any = None
    with pytest.raises(RuntimeError, match="previous error"):
        graphs.captured(lambda: None, side)
    assert drawing == ["new"]


def captures(monkeypatch: Patch) -> Any:
    """An instance whose work is done where it is captured, beside a graph of the same memory."""
    monkeypatch.setattr(instances, "captured", lambda work, side, beside: (work(), beside))
    made: Any = object.__new__(Instance)
    made.unchecked, made.graphs, made.side = False, {}, None
    return made


def test_graphs_of_an_instance_share_memory(monkeypatch: Patch) -> None:
    made = captures(monkeypatch)
    made.graphs["first"] = made.captured(lambda: 1)
    assert made.graphs["first"] == (1, None)
    assert made.captured(lambda: 2) == (2, made.graphs["first"])


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (RuntimeError("CUDA error: capturing stream has unjoined work\nand more"), NotTimed),
        (RuntimeError("operation not permitted when stream is capturing"), NotCaptured),
        (OSError("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: ..."), NotCaptured),  # of cuda.core
        (OSError("no such file"), OSError),
        (torch.cuda.OutOfMemoryError(), torch.cuda.OutOfMemoryError),
    ],
)
def test_only_work_that_is_waited_for_is_timed_in_a_stream(
    error: Exception, raised: type[Exception], monkeypatch: Patch
) -> None:
    def launch() -> None:
        raise error

    made = captures(monkeypatch)
    with pytest.raises(raised) as caught:
        made.captured(launch)
    assert type(caught.value) is raised
    if isinstance(caught.value, NotTimed):
        first, *_ = str(error).splitlines()
        assert str(caught.value) == f"cannot be captured in a CUDA graph: {first}"
    made.unchecked = True
    queued: list[str] = []
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: queued.append("wait"))
    made.captured(lambda: queued.append("work")).replay()
    assert queued == ["wait", "work"]


def test_triton_kernels_are_registered_ahead_and_nothing_else(monkeypatch: Patch) -> None:
    called: list[str] = []

    def _register_triton_kernels() -> None:
        called.append("kernels")

    def _check_capability() -> None:
        called.append("capability")

    queued: list[Any] = [(_check_capability, ""), (_register_triton_kernels, "")]
    monkeypatch.setattr("torch.cuda._queued_calls", queued)
    register_ahead()
    assert (called, queued) == (["kernels"], [(_check_capability, "")])


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(24.0).view(2, 3, 4).transpose(0, 2),
        lambda: torch.arange(24.0).view(4, 6)[:, ::2],
        lambda: torch.tensor(3),
        lambda: torch.empty(0, 3),
        lambda: torch.arange(7, dtype=torch.uint8),
        lambda: torch.arange(7) > 3,
    ],
)
def test_a_variant_is_checked_with_inputs_laid_out_as_the_study_gives_them(make: Any) -> None:
    given = make()
    inside, buffer = guarded(given)
    assert torch.equal(inside, given)
    assert inside.stride() == (given if is_dense(given) else given.contiguous()).stride()
    assert buffer.numel() == given.numel() * given.element_size() + 2 * GUARD_BYTES
    assert set(buffer[:GUARD_BYTES].tolist()) == set(buffer[-GUARD_BYTES:].tolist()) == {0xFF}


def test_inputs_without_a_tensor_are_checked_like_others(monkeypatch: Patch) -> None:
    here = SimpleNamespace(manual_seed=lambda seed: None)
    monkeypatch.setattr(torch, "Generator", lambda device: here)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    study: Any = SimpleNamespace(
        inputs=lambda shape, generator: {"n": 3},
        reference=lambda n: torch.ones(n, dtype=torch.float64),
        tolerance=Tolerance(absolute=1e-6, relative=1e-6),
    )
    one = correctness.check_once(study, calls_here(study, lambda n: torch.ones(n)), None)
    assert (one.why, one.absolute) == ("", 0.0)


@pytest.mark.parametrize("failing", ["odd", "large"])
def test_who_fails_a_check_at_another_shape_is_told_with_that_shape(
    failing: str, monkeypatch: Patch
) -> None:
    """Both where its calls fail and where the comparison does."""

    def fails(study: Any, calls: Any, shape: str, peer: Any) -> Any:
        calls("", 0, {}, print)
        return CheckOutcome(status=CheckResult.CORRECT)

    def fails_at(name: str, shape: str, *given: Any) -> None:
        if shape == failing:
            raise ValueError("n must be even")

    monkeypatch.setattr(correctness, "check_variant", fails)
    worker = object.__new__(job_worker.JobWorker)
    shapes = {"large": "of large", "odd": "of odd"}
    worker.study = cast(Any, SimpleNamespace(shapes=shapes))
    job = SimpleNamespace(shape="large", check_shapes=("large", "odd"), sources={}, on_cpu=False)
    worker.job, worker.opened = cast(Any, job), None
    loader = SimpleNamespace(load=print, files=lambda name: [], has_extension=bool)
    worker.loader = cast(Any, loader)
    failed: list[Any] = []
    worker.journal = cast(
        Any, SimpleNamespace(write=print, fail=lambda name, phase, error: failed.append(error))
    )
    asked = [SimpleNamespace(shape=shape) for shape in shapes]
    worker.ends = cast(
        Any,
        SimpleNamespace(
            asks=lambda name, kind: iter(asked),
            answer=lambda name, draw, calls: fails_at(name, draw.shape),
            asked=fails_at,
            end=print,
        ),
    )
    words = {"odd": "at odd: ValueError: n must be even", "large": "n must be even"}[failing]
    with pytest.raises(ToolFailed if failing == "odd" else ValueError, match=f"^{words}"):
        worker.check("fix1")
    worker.compare("fix1", None)
    assert [str(error) for error in failed] == [words]


def test_known_variants_are_built_and_not_checked(monkeypatch: Patch) -> None:
    done: list[tuple[str, str]] = []
    worker = object.__new__(job_worker.JobWorker)
    for what in ("build", "check"):
        monkeypatch.setattr(worker, what, lambda name, what=what: done.append((what, name)))
    worker.failed, worker.opened, worker.reported = set(), None, True
    worker.loader = cast(Any, SimpleNamespace(files=lambda name: []))
    worker.job = VariantsJob(
        study="scale",
        variants=("baseline", "fix1"),
        params={},
        phases=(Phase.BUILD, Phase.CHECK),
        known=("baseline",),
    )
    journal = SimpleNamespace(write=lambda event: None, current=lambda name: None)
    worker.journal = cast(Any, journal)
    worker.work(worker.job.variants)
    assert done == [("build", "baseline"), ("build", "fix1"), ("check", "fix1")]


@pytest.mark.parametrize("fate", ["ends", "exits", "is killed"])
def test_forks_are_prepared_ahead_and_end_the_worker_as_they_end(
    fate: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = VariantsJob(study="s", variants=("a", "b", "c"), params={}, phases=(Phase.CHECK,))

    def work(self: Any, variants: Sequence[str]) -> None:
        (name,) = variants
        with Path("done").open("a") as done:
            done.write(name)
        if name == "b" and fate == "exits":
            ctypes.CDLL(None).syscall(231, 1)  # exit_group, which nothing can refuse
        if name == "b" and fate == "is killed":
            signal.raise_signal(signal.SIGKILL)

    monkeypatch.setattr(job_worker.JobWorker, "work", work)
    monkeypatch.setattr(job_worker.JobWorker, "prepared", lambda self, name: None)
    monkeypatch.setattr(job_worker.JobWorker, "comparing", lambda self: None)
    pid = os.fork()
    if pid == 0:
        with EventLog(tmp_path) as journal:
            job_worker.JobWorker(job, journal).run()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == {"ends": 0, "exits": 1, "is killed": -signal.SIGKILL}[fate]
    assert Path("done").read_text() == ("abc" if fate == "ends" else "ab")


def test_progress_tells_the_number_of_each_session(capsys: Capsys) -> None:
    def timed(number: int, alone: bool = False) -> TimedSession:
        session = Session(number=number, instances=1, series=(), alone=alone)
        return TimedSession(session=session, nodes={})

    with Progress(sessions=2) as progress:
        for event in (timed(0, alone=True), timed(0), timed(0), timed(1), timed(2)):
            progress(event)
    assert capsys.readouterr().err.splitlines() == [
        "timed references alone",
        "timed 0 variants, session 1 of 2",
        "timed 0 variants, session 1 of 2",
        "timed 0 variants, session 2 of 2",
        "timed 0 variants, session 3, a verdict is open",
    ]


def test_progress_tells_where_a_session_is() -> None:
    progress = Progress(sessions=5)
    one = Round(session=2, alone=False, number=3, rounds=6)
    assert progress.round(one) == "timing, session 3 of 5, round 4 of 6"
    long = structs.replace(one, session=5, variant="fix1")
    assert progress.round(long) == "timing, session 6, a verdict is open, round 4 of 6: fix1"
    warming = structs.replace(one, alone=True, number=-2)
    assert progress.round(warming) == "timing, references alone, warming up"


def test_a_session_ends_with_whoever_wanted_it(tmp_path: Path, monkeypatch: Patch) -> None:
    """A kernel that hangs would have the card for ever."""
    monkeypatch.chdir(tmp_path)
    wanted_by = subprocess.Popen(["sleep", "600"])
    monkeypatch.setenv(PARENT, str(wanted_by.pid))
    monkeypatch.setattr("workbench.run.worker.session_forks.wait_for_turn", lambda: ("baseline",))

    def hangs(number: int, names: Sequence[str]) -> set[str]:
        (tmp_path / "pid").write_text(str(os.getpid()))
        os.kill(wanted_by.pid, signal.SIGKILL)
        time.sleep(600)
        return set()

    pid = os.fork()
    if pid == 0:
        os.setsid()  # as its parent has it
        with EventLog(tmp_path) as journal:
            server = Scripted(JOB_OF_TWO, journal)
            server.fate = hangs
            server.run()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    wanted_by.wait()
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    session, end = int((tmp_path / "pid").read_text()), time.monotonic() + 60
    while is_alive(session) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_alive(session)


# ---- where a worker waits ----------------------------------------------------------------------
def test_who_waits_at_the_gate_ends_with_the_parent_even_where_an_ncu_is_between(
    tmp_path: Path,
) -> None:
    assert worker_environment(tmp_path)[PARENT] == str(os.getpid())
    parent = subprocess.Popen(["sleep", "60"])
    code = "from workbench.run.worker.startup import wait_for_turn; wait_for_turn()"
    waiting = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=worker_environment(tmp_path) | {PARENT: str(parent.pid)},
    )
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(1.5)
        parent.kill()  # and nobody waits for it
        assert waiting.wait() == -signal.SIGKILL
    finally:
        for process in (parent, waiting):
            process.kill()
            process.wait()
