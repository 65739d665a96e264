"""Could a process that runs no variant do the timing? Measures the answer of docs/measuring.md.

Two executors hold one kernel each, under a referee: see gated.py. Today's sessions hold the kernel
twice in one process. The kernels are equal, so ratios should be 1 and times should agree. Rounds
are those of a session, with all its graphs. The script needs a GPU, and five minutes.

    python -m benchmarks.referee             measure, record, and write the table
    python -m benchmarks.referee --table     write the table from the recorded measurement
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
from benchmarks.gated import (
    FORK,
    READY,
    STATE,
    Executor,
    Page,
    Referee,
    Replay,
    Turn,
    child,
    contexts,
    execute,
    lend,
    used_mib,
)
from benchmarks.referee_table import (
    BLOCKS,
    MIXED,
    ONE,
    RECORDED,
    SESSION,
    SHARED,
    AfterIdle,
    AfterSwitch,
    Measured,
    Recording,
    Spread,
    Timed,
    write_table,
)
from tools.pages import ROOT

from workbench.cuda.compiler import CUBIN_FOLDER
from workbench.run.gpu import Gauge, look
from workbench.run.protocol import SessionsJob
from workbench.run.worker.guard import Guard
from workbench.run.worker.startup import ENVIRONMENT
from workbench.run.worker.timing.instances import Group, Instance, Loader, SessionSetup
from workbench.run.worker.timing.neighbours import Neighbours
from workbench.run.worker.timing.rounds import EVERY, Rounds, order_of
from workbench.run.worker.timing.session import Listeners, TimingProcess
from workbench.run.worker.timing.timed_gpu import TimedGpu, switch_contexts
from workbench.study.config import TimingSettings
from workbench.study.params import add_shapes
from workbench.words import HEADLINE, Parameter

INSTANCES, ROUNDS = TimingSettings().instances, 10
COUNTS = (2 * INSTANCES, INSTANCES)  # of executors: the first one has an A/A control, too
SHAPE = "it"
LONG = 500.0  # microseconds of a call that may meet the power limit
SETTLE_SECONDS = {False: 0.1, True: 1.2}  # before rounds; True: of long calls
IDLE = (0.0, 50.0, 1e3, 1e4)  # microseconds between replays
IDLE_SECONDS = {False: (0.1, 0.1), True: (1.8, 0.7)}  # to settle, and to time
AT_ONCE = 16  # replays
SWITCHES, AFTER_SWITCH = 60, 3  # replays after each switch


@dataclass(frozen=True)
class Case:
    """A kernel whose calls take about so many microseconds. ``shared``: measure executors that
    share memory for their stamps, too.
    """

    microseconds: float
    study: str
    variant: str
    shape: Mapping[str, Parameter]
    sessions: int
    shared: bool = False

    @property
    def is_long(self) -> bool:
        return self.microseconds > LONG


HEADS: dict[str, Parameter] = {"causal": False, "dtype": "float16"}
CASES = (
    Case(1.5, "transpose", "vectorised", {"rows": 512, "cols": 512, "dtype": "float32"}, 16, True),
    Case(5, "attention", "fix11", {"B": 2, "H": 8, "S": 512, "D": 64, **HEADS}, 14, True),
    Case(1600, "attention", "fix30", {"B": 2, "H": 16, "S": 8192, "D": 128, **HEADS}, 5),
    Case(60, "transpose", "vectorised", {"rows": 4096, "cols": 7424, "dtype": "float32"}, 5),
)


# ---- in a process with the GPU ---------------------------------------------------------------
class Opened:
    """The study of a case is opened by each process for itself."""

    def __init__(self, case: Case) -> None:
        folder = ROOT / "kernels" / case.study
        names = tuple(sorted(path.name for path in folder.iterdir() if path.is_file()))
        sources = {case.variant: names}
        self.guard = Guard(folder, sources)
        self.study = self.guard.load(folder / "study.py", "workbench_study")
        add_shapes(self.study.shapes, {SHAPE: dict(case.shape)})
        self.loader = Loader(folder, {}, self.guard)
        self.job = SessionsJob(
            study=case.study, shape=SHAPE, params={}, sources=sources, references=(),
            controls=(case.variant,), sessions=1, instances=INSTANCES, rounds=ROUNDS,
            graph_microseconds=TimingSettings().graph_microseconds,
        )  # fmt: skip


class Today(NamedTuple):
    """A session of today sends the number of calls in a graph, and the times of both groups."""

    calls: int
    times: tuple[Timed, Timed]


def session(case: Case, answer: Connection) -> None:
    """Time a kernel and its control in one process, and send a Today."""
    opened = Opened(case)

    def fail(variant: str, error: BaseException) -> None:
        raise error

    process = TimingProcess(opened.job, opened.study, opened.loader, opened.guard, Listeners(fail))
    groups = Group(case.variant), Group(case.variant, control=True)
    for _ in range(INSTANCES):
        for group in random.sample(groups, len(groups)):
            process.one(group, {case.variant: case.microseconds})
    rounds = Rounds(process.setup.gpu, process.instances, process.setup.with_neighbours)
    switch_contexts()
    process.warm_up(rounds)
    process.rounds(rounds)

    def timed(group: Group) -> Timed:
        places = [i for i, instance in enumerate(process.instances) if instance.group == group]
        columns = [rounds.columns[place, HEADLINE] for place in places]
        return Timed.of([(column.microseconds, column.gaps, column.mhz) for column in columns])

    calls = process.instances[0].calls[HEADLINE]
    answer.send(Today(calls, (timed(groups[0]), timed(groups[1]))))


def built(case: Case, count: int, gpu: TimedGpu) -> list[Instance]:
    opened = Opened(case)
    inputs = Neighbours(gpu, opened.study, opened.study.shapes[SHAPE])
    setup = SessionSetup(gpu, opened.loader, inputs, opened.job.graph_microseconds)
    group = Group(case.variant)
    instances = [Instance(setup, group, case.microseconds) for _ in range(count)]
    for instance in instances:
        instance.require_nodes()  # sessions do it, and allocations should be alike
    return instances


# ---- the referee -----------------------------------------------------------------------------
@contextmanager
def executors(case: Case, calls: int, shared: bool) -> Iterator[Referee]:
    pages = [Page() for _ in COUNTS]
    with ExitStack() as stack:
        memory = None
        if shared:
            function, arguments = stack.enter_context(child(lend))
            memory = partial(function, *arguments)
        for page, count in zip(pages, COUNTS, strict=True):
            build = partial(built, case, count)
            process = FORK.Process(target=execute, args=(page, build, memory))
            process.start()
            stack.callback(process.join)
            stack.callback(process.kill)
        for page in pages:
            page.until(STATE, READY)
        yield Referee([Executor(page, calls) for page in pages])


def in_session(case: Case) -> Today:
    with child(session, case) as answer:
        assert isinstance(answer, Today)
        return answer


def turns(places: Sequence[tuple[int, int]], number: int) -> list[Turn]:
    """Draw a round of some executors' instances, with all graphs that a session has in it."""
    graphs = [*EVERY]
    return [
        Turn(*places[drawn.instance], len(graphs) if drawn.marked else graphs.index(drawn.regime))
        for drawn in order_of(range(len(places)), number)
    ]


def mixed(number: int) -> list[Turn]:
    """Draw a round of both executors in random order."""
    return turns([(e, i) for e, count in enumerate(COUNTS) for i in range(count)], number)


def in_blocks(number: int) -> list[Turn]:
    """Draw a round of one executor, then one of the other, each after an uncounted replay."""
    order: list[Turn] = []
    for executor in random.sample(range(len(COUNTS)), len(COUNTS)):
        block = turns([(executor, i) for i in range(COUNTS[executor])], number)
        order += [block[0]._replace(follows=True), *block]
    return order


ORDERS: Mapping[str, Callable[[int], list[Turn]]] = {MIXED: mixed, BLOCKS: in_blocks}


def timed(replays: Sequence[Replay], executor: int, instances: Sequence[int]) -> Timed:
    by_instance: dict[int, list[Replay]] = defaultdict(list)
    for replay in replays:
        if replay.turn.executor == executor and replay.turn.instance in instances:
            by_instance[replay.turn.instance].append(replay)
    return Timed.of(
        [([r.call for r in same], [r.gap for r in same], [r.mhz for r in same])
         for same in by_instance.values()]
    )  # fmt: skip


def halves(count: int) -> tuple[list[int], list[int]]:
    """Draw two groups of instances: one each of every pair that was built in succession."""
    pairs = [random.sample((first, first + 1), 2) for first in range(0, count, 2)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def after_switches(referee: Referee) -> list[AfterSwitch]:
    """Time the first replays after the GPU goes over to the other executor."""
    order = [Turn(number % 2, 0) for number in range(SWITCHES) for _ in range(AFTER_SWITCH)]
    replays = referee.run(order)[AFTER_SWITCH:]
    return [
        AfterSwitch(
            call=median(replay.call for replay in replays[place::AFTER_SWITCH]),
            replay=median(replay.gpu for replay in replays[place::AFTER_SWITCH]),
            arrival=median(replay.arrival for replay in replays[place::AFTER_SWITCH]),
        )
        for place in range(AFTER_SWITCH)
    ]


def beside(case: Case, referee: Referee, parked: bool) -> dict[str, Spread]:
    """Time replays of one executor. ``parked``: a replay of the other waits at its gate."""
    other, turn = referee.executors[1], Turn(1, 0)
    if parked:
        other.post(turn)
        other.arrive()
    replays = referee.run([Turn(0, 0)] * (SWITCHES // (3 if case.is_long else 1)))
    if parked:
        other.open(turn, 0.0)
        list(other.times())
    return {
        "call": Spread.of([replay.call for replay in replays]),
        "replay": Spread.of([replay.gpu for replay in replays]),
        "arrival": Spread.of([replay.arrival for replay in replays]),
    }


def after_idle(case: Case, referee: Referee) -> dict[str, AfterIdle]:
    """Time calls of replays that were queued, that take turns with the other executor's, and that
    follow idle time of the GPU.
    """
    alone, by_turns = [Turn(0, 0)], [Turn(0, 0), Turn(1, 0)]
    ways = [("queued", alone, True, 0.0), ("in turn", by_turns, False, 0.0)]
    ways += [(f"{idle:g}", alone, False, idle) for idle in IDLE]
    settle, timed_for = IDLE_SECONDS[case.is_long]
    answers = {}
    for name, order, queued, idle in random.sample(ways, len(ways)):
        replays: list[Replay] = []
        settled = time.monotonic() + settle
        end = settled + timed_for
        while time.monotonic() < end or not replays:
            latest = referee.run(order * AT_ONCE, queued=queued, idle_us=idle)
            replays += latest if time.monotonic() > settled else []
        times = [replay.call for replay in replays if replay.turn.executor == 0]
        answers[name] = AfterIdle(median(times), median(replay.mhz for replay in replays))
    return {name: answers[name] for name, *_ in ways}


class Measurement:
    """The measurement of a case."""

    def __init__(self, case: Case, gauge: Gauge) -> None:
        self.case, self.gauge = case, gauge
        calls = in_session(case).calls  # compiles, too
        self.measured = Measured(case.study, case.variant, dict(case.shape), calls)
        self.replays: dict[str, list[Replay]] = defaultdict(list)

    def of_today(self) -> None:
        self.measured.add(SESSION, *in_session(self.case).times)

    def of_executors(self, shared: bool = False) -> None:
        before, measured = used_mib(), self.measured
        with executors(self.case, measured.calls, shared) as referee:
            (first, control), second = halves(COUNTS[0]), range(COUNTS[1])
            for design in [BLOCKS] if shared else random.sample(tuple(ORDERS), len(ORDERS)):
                replays = self.in_rounds(referee, design)
                self.replays[design] += replays
                ours, theirs = timed(replays, 0, first), timed(replays, 1, second)
                measured.add(SHARED if shared else design, ours, theirs)
                if design == BLOCKS and not shared:
                    measured.add(ONE, ours, timed(replays, 0, control))
            if not measured.after_switch:
                measured.executor_mib = (used_mib() - before) / len(COUNTS)
                measured.after_switch = after_switches(referee)
                measured.beside = [beside(self.case, referee, parked) for parked in (False, True)]
                measured.after_idle = after_idle(self.case, referee)

    def in_rounds(self, referee: Referee, design: str) -> list[Replay]:
        """Replay rounds of a design when the clock has settled in it; keep what counts."""
        order, queued = ORDERS[design], design == BLOCKS
        end, number = time.monotonic() + SETTLE_SECONDS[self.case.is_long], 0
        while time.monotonic() < end:
            referee.run(order(number), queued=queued)
            reasons = {*self.measured.reasons, *self.gauge.load().reasons}
            self.measured.reasons = sorted(reasons)
            number += 1
        rounds = [turn for number in range(ROUNDS) for turn in order(number)]
        return [replay for replay in referee.run(rounds, queued=queued) if replay.turn.counts]

    def run(self, sessions: int) -> Measured:
        kinds = {SESSION: self.of_today, BLOCKS: self.of_executors}
        kinds |= {SHARED: partial(self.of_executors, shared=True)} if self.case.shared else {}
        seconds: dict[str, list[float]] = defaultdict(list)
        for _ in range(sessions):
            for kind in random.sample(tuple(kinds), len(kinds)):
                began = time.monotonic()
                kinds[kind]()
                seconds[kind].append(time.monotonic() - began)
        self.measured.seconds = {kind: median(took) for kind, took in seconds.items()}
        for design, replays in self.replays.items():
            excess = [replay.clock - replay.gpu for replay in replays]
            self.measured.excess[design] = Spread.of(excess)
            self.measured.answer[design] = Spread.of([replay.answer for replay in replays])
        return self.measured


def record(cases: Sequence[Case], to: Path) -> None:
    os.environ.update(ENVIRONMENT)
    gpu = look().gpus[0]
    recording = Recording(gpu.name, gpu.driver, f"{datetime.now(UTC):%Y-%m-%d}", contexts())
    gauge = Gauge(gpu.uuid)
    with tempfile.TemporaryDirectory() as cubins:
        os.environ[CUBIN_FOLDER] = cubins
        for case in cases:
            print(case.study, case.variant, flush=True)
            recording.cases.append(Measurement(case, gauge).run(case.sessions))
            to.write_bytes(msgspec.json.encode(recording) + b"\n")


def main() -> None:
    if "--table" not in sys.argv:
        record(CASES, RECORDED)
    write_table(msgspec.json.decode(RECORDED.read_bytes(), type=Recording))


if __name__ == "__main__":
    main()
