"""Holds what benchmarks.referee records, and writes its table into docs/measuring.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

import msgspec
import numpy as np
from tools.pages import DOCS, ROOT, table, with_part

from workbench.derive.speedup import T_975, between_sessions, over_sessions, quantile_of

PAGE = DOCS / "measuring.md"
RECORDED = ROOT / "benchmarks" / "recorded" / "referee.json"
# Both groups of instances are in one process: a session of today, or an executor beside another. Or
# they are in two executors. These replay in random order, or in blocks, queued behind each other,
# and the latter also with shared memory for stamps.
SESSION, ONE = "session", "one executor"
MIXED, BLOCKS, SHARED = "executors, mixed", "executors, in blocks", "executors, shared stamps"
DESIGNS = (SESSION, ONE, MIXED, BLOCKS, SHARED)
WIDER, BIASED = 1.5, 0.01  # the rule: at most so many times as wide, and so far off
SHORT = 10.0  # microseconds, below which the rule is for widths, too
SESSIONS = 8  # of an interval
DRAWS = 2000  # of sessions, for the interval of a width

Samples = Sequence[tuple[Sequence[float], Sequence[float], Sequence[float]]]


class Spread(msgspec.Struct, frozen=True):
    """Microseconds; ``high`` is the 99th percentile."""

    count: int
    mean: float
    deviation: float
    high: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        high = sorted(values)[math.ceil(0.99 * len(values)) - 1]
        return cls(len(values), fmean(values), stdev(values), high, max(values))


class Timed(msgspec.Struct, frozen=True):
    """A group in a session has means over its instances, of medians over rounds.

    logarithm: A call's microseconds.
    gap: Microseconds between two stamps with nothing between.
    """

    logarithm: float
    gap: float
    mhz: float

    @classmethod
    def of(cls, instances: Samples) -> Timed:
        """Take calls, gaps and clocks of each instance by round."""
        medians = [[median(values) for values in instance] for instance in instances]
        times, gaps, clocks = zip(*medians, strict=True)
        return cls(fmean(map(math.log, times)), fmean(gaps), fmean(clocks))


Groups = tuple[Timed, Timed]


class AfterIdle(msgspec.Struct, frozen=True):
    """Medians of replays."""

    microseconds: float
    mhz: float


class AfterSwitch(msgspec.Struct, frozen=True):
    """Medians in microseconds: a call, the whole replay, and the way to the gate."""

    call: float
    replay: float
    arrival: float


class Measured(msgspec.Struct):
    """A case holds both groups of each session by design.

    excess: By how much the referee's clock exceeds the GPU's in a replay, by design.
    answer: From the referee's flag to the gate's answer, by design.
    after_switch: The first replays after a switch of contexts.
    beside: Replays beside an executor with nothing queued, and beside one at its gate.
    after_idle: Replays after some microseconds without work.
    """

    study: str
    variant: str
    shape: dict[str, int | float | str | bool]
    calls: int
    sessions: dict[str, list[Groups]] = {}
    seconds: dict[str, float] = {}
    excess: dict[str, Spread] = {}
    answer: dict[str, Spread] = {}
    after_switch: list[AfterSwitch] = []
    beside: list[dict[str, Spread]] = []
    after_idle: dict[str, AfterIdle] = {}
    reasons: list[str] = []
    executor_mib: float = 0.0

    def add(self, design: str, first: Timed, second: Timed) -> None:
        self.sessions.setdefault(design, []).append((first, second))


class Recording(msgspec.Struct):
    """``contexts`` are MiB of the GPU and of the host that each further context takes."""

    gpu: str = ""
    driver: str = ""
    date: str = ""
    contexts: list[tuple[float, float]] = []
    cases: list[Measured] = []


class Compared(msgspec.Struct, frozen=True):
    """A design at a case, compared with sessions of today.

    half: Half the width of an interval over SESSIONS sessions, a logarithm.
    excluding: How many of the intervals exclude 1.
    wider: How many times as wide, with its 95 % interval.
    bias: By how much its time differs, a logarithm, with its 95 % interval.
    """

    sessions: int
    half: float
    excluding: int
    intervals: int
    microseconds: float
    wider: tuple[float, float, float]
    bias: tuple[float, float, float]


def ratios(groups: Sequence[Groups]) -> list[float]:
    return [first.logarithm - second.logarithm for first, second in groups]


def times(groups: Sequence[Groups]) -> list[float]:
    return [(first.logarithm + second.logarithm) / 2 for first, second in groups]


def compared(case: Measured, design: str) -> Compared:
    ours, today = (ratios(case.sessions[name]) for name in (design, SESSION))
    last = max(1, len(ours) - SESSIONS + 1)  # the start of the last whole interval
    intervals = [
        over_sessions(ours[first : first + SESSIONS]) for first in range(0, last, SESSIONS)
    ]
    excluding = sum(not (i.low or 0.0) <= 1 <= (i.high or 0.0) for i in intervals)
    rng = np.random.default_rng(0)
    draws = [rng.choice(drawn, (DRAWS, len(drawn))).std(1, ddof=1) for drawn in (ours, today)]
    varied = draws[1] > 0
    low, high = np.percentile(draws[0][varied] / draws[1][varied], (2.5, 97.5))
    logarithms = times(case.sessions[design])
    bias = between_sessions(times(case.sessions[SESSION]), logarithms)
    return Compared(
        sessions=len(ours),
        half=quantile_of(T_975, SESSIONS - 1) * stdev(ours) / math.sqrt(SESSIONS),
        excluding=excluding,
        intervals=len(intervals),
        microseconds=math.exp(fmean(logarithms)),
        wider=(stdev(ours) / stdev(today), float(low), float(high)),
        bias=(math.log(bias.value), math.log(bias.low or 1.0), math.log(bias.high or 1.0)),
    )


def misses(recording: Recording, design: str) -> list[str]:
    """Say where a design misses the rule."""
    results = [compared(case, design) for case in recording.cases if design in case.sessions]
    wide = [r for r in results if r.microseconds < SHORT and r.wider[0] > WIDER]
    biased = [r for r in results if abs(r.bias[0]) > BIASED]
    return [
        *(f"{r.wider[0]:.1f} times as wide at {r.microseconds:.4g} µs" for r in wide),
        *(f"{100 * r.bias[0]:+.1f} % at {r.microseconds:.4g} µs" for r in biased),
    ]


def ordered(recording: Recording) -> list[Measured]:
    """Sort cases by the time of a call."""
    return sorted(recording.cases, key=lambda case: case.sessions[SESSION][0][0].logarithm)


def shown(recording: Recording) -> str:
    """Write the part of docs/measuring.md."""
    head, rows = ["timed in"], [[design] for design in DESIGNS]
    for case in ordered(recording):
        today = compared(case, SESSION).microseconds
        columns = ["A/A ± %", "times as wide", "bias, %"][0 if today < SHORT else 2 :]
        head += [f"{today:.{2 if today < 100 else 4}g} µs: {columns[0]}", *columns[1:]]
        for design, row in zip(DESIGNS, rows, strict=True):
            cells = ["", "", ""]
            if design in case.sessions:
                result = compared(case, design)
                cells[0] = f"{100 * result.half:.2f}"
                if design != SESSION:
                    cells[1] = "{:.1f} [{:.1f}, {:.1f}]".format(*result.wider)
                    cells[2] = f"{100 * result.bias[0]:+.1f}"
            row += cells[-len(columns) :]
    return f"{table(head, rows)}\n"


def details(recording: Recording) -> str:
    """Write all that the page has no room for."""
    cases = ordered(recording)
    widths = [
        (design, f"{r.microseconds:.4g}", r.sessions, f"{100 * r.half:.2f}",
         f"{r.excluding} of {r.intervals}", "{:.2f} [{:.2f}, {:.2f}]".format(*r.wider),
         "{:+.2f} [{:+.2f}, {:+.2f}]".format(*(100 * value for value in r.bias)))
        for case in cases for design in DESIGNS if design in case.sessions
        for r in [compared(case, design)]
    ]  # fmt: skip
    clocks = []
    for case in cases:
        excess, first, last = case.excess[MIXED], case.after_switch[0], case.after_switch[-1]
        free, parked = case.beside
        clocks.append((
            f"{last.call:.4g}", case.calls, f"{excess.mean:.2f} ± {excess.deviation:.2f}",
            f"{excess.high:.2f}", f"{excess.deviation / case.calls:.3f}",
            f"{case.answer[MIXED].mean:.2f}", f"{first.arrival - last.arrival:+.0f}",
            f"{first.call - last.call:+.3f}",
            f"{parked['arrival'].mean - free['arrival'].mean:+.0f}",
            f"{parked['call'].mean - free['call'].mean:+.3f}",
        ))  # fmt: skip
    names = list(cases[0].after_idle)
    idle = []
    for case in cases:
        queued = case.after_idle["queued"].microseconds
        after = [case.after_idle[name] for name in names]
        changes = [f"{100 * (a.microseconds / queued - 1):+.1f} ({a.mhz:.0f})" for a in after]
        idle.append((f"{queued:.4g}", *changes))
    parts = [
        f"{recording.gpu}, driver {recording.driver}, {recording.date}",
        f"MiB of each context on GPU and host: {recording.contexts}",
        *(f"{design}: {'; '.join(misses(recording, design)) or 'keeps the rule'}"
          for design in DESIGNS[1:]),
        table(("timed in", "µs", "sessions", "A/A ± %", "exclude 1", "times as wide", "bias, %"),
              widths),
        table(("µs", "calls", "referee − GPU, µs", "p99", "deviation of a call", "answer",
               "switch: to the gate", "call", "parked: to the gate", "call"), clocks, left=0),
        table(("µs", *(f"{name}: % (MHz)" for name in names)), idle, left=0),
    ]  # fmt: skip
    return "\n\n".join(parts)


def write_table(recording: Recording) -> None:
    print(details(recording))
    PAGE.write_text(with_part(PAGE.read_text("utf-8"), "referee", shown(recording)), "utf-8")
