"""The tables of docs/measuring.md, from a recording."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from benchmarks.chained import BACK_TO_BACK, BARE, CHAINED, Case
from benchmarks.intervals import (
    FASTER,
    OPEN,
    SAME,
    SLOWER,
    ratio_interval,
    spread,
    verdict,
)

from workbench.derive.intervals import T_975, Interval
from workbench.run.worker.timing.card import Array

SESSIONS, INSTANCES = 5, 4  # of one comparison
REGIMES = (CHAINED, BARE, BACK_TO_BACK)
GROUPINGS = 100
PERCENT = 100.0


@dataclass(frozen=True)
class Recording:
    """Samples of all sessions; by shape the cases; per session the seconds that its parts took."""

    gpu: str
    shapes: tuple[str, ...]
    cases: tuple[tuple[Case, ...], ...]
    samples: Array
    marks: tuple[dict[str, float], ...]
    steady: Array


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * 2 + ["--:"] * (len(header) - 2), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def name_of(case: Case) -> str:
    given = ",".join(f"{key}={value}" for key, value in case.parameters.items())
    return f"{case.variant}[{given}]" if given else case.variant


class Times:
    """Of one case: nanoseconds a call, [session, instance, round], by regime."""

    def __init__(self, samples: Array, before: bool = False) -> None:
        rounds = samples["round"]
        samples = samples[(rounds < 0) & (rounds > -100) if before else rounds >= 0]
        order = np.lexsort((samples["round"], samples["instance"], samples["session"]))
        samples = samples[order]
        self.each = samples["nanoseconds"] / samples["calls"]
        self.clock = samples["cycles"] / samples["nanoseconds"] * 1e3
        self.samples = samples

    def regime(self, regime: str, values: Array | None = None) -> Array:
        mine = self.samples["regime"] == REGIMES.index(regime)
        sizes = [len(np.unique(self.samples[mine][n])) for n in ("session", "instance", "round")]
        found: Array = (self.each if values is None else values)[mine].reshape(sizes)
        return found

    def added(self) -> Array:
        """Microseconds that a call adds to the neighbours: [session, instance]."""
        found: Array = np.median(self.regime(CHAINED) - self.regime(BARE), axis=2) / 1e3
        return found


class Reader:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    def cases(self, shape: str) -> tuple[Case, ...]:
        return self.recording.cases[self.recording.shapes.index(shape)]

    def times(self, shape: str, case: Case, before: bool = False) -> Times:
        samples = self.recording.samples
        at = self.recording.shapes.index(shape)
        mine = (samples["shape"] == at) & (samples["case"] == self.cases(shape).index(case))
        return Times(samples[mine], before)

    def twins(self) -> Iterator[tuple[str, Case]]:
        """The cases with instances for several comparisons: no parameters, nothing planted."""
        for shape in self.recording.shapes:
            for case in self.cases(shape):
                if not case.planted and not case.parameters:
                    yield shape, case

    def planted(self, shape: str, of: Case) -> list[Case]:
        return [c for c in self.cases(shape) if c.variant == of.variant and c.planted]


def groups(added: Array) -> list[Array]:
    """Cut into comparisons' halves of SESSIONS x INSTANCES that share nothing."""
    sessions, instances = (len(axis) // n for axis, n in ((added, SESSIONS), (added[0], INSTANCES)))
    return [
        added[s * SESSIONS :, i * INSTANCES :][:SESSIONS, :INSTANCES]
        for s in range(sessions)
        for i in range(instances)
    ]


def runs(added: Array) -> list[list[Array]]:
    """The same halves, by run: those of the same SESSIONS sessions together."""
    halves = groups(added)
    each = added.shape[1] // INSTANCES
    return [halves[at : at + each] for at in range(0, len(halves), each)]


def pairs(added: Array) -> list[Interval]:
    return [
        ratio_interval(run[at], run[at + 1])
        for run in runs(added)
        for at in range(0, len(run) - 1, 2)
    ]


def regrouped(added: Array, generator: np.random.Generator) -> Array:
    """The same instances of every session in another order."""
    order = np.tile(np.arange(added.shape[1]), (len(added), 1))
    return np.take_along_axis(added, generator.permuted(order, axis=1), axis=1)


def percent(part: int, whole: int) -> str:
    return f"{PERCENT * part / whole:.1f} %" if whole else "none"


def regimes(reader: Reader) -> str:
    rows = []
    for shape in reader.recording.shapes:
        for case in reader.cases(shape):
            if case.planted:
                continue
            times = reader.times(shape, case)
            added, per = times.added(), spread(times.added())
            alone = float(np.median(times.regime(BACK_TO_BACK))) / 1e3
            clock = float(np.median(times.regime(CHAINED, times.clock)))
            rows.append(
                [
                    shape,
                    name_of(case),
                    f"{np.median(added):.3f}",
                    f"{alone:.3f}",
                    f"{np.median(times.regime(BARE)) / 1e3:.3f}",
                    f"{clock:.0f}",
                    f"{PERCENT * per.instances:.2f} %",
                    f"{PERCENT * per.sessions:.2f} %",
                ]
            )
    header = ["shape", "kernel", "chained, µs", "back to back, µs", "neighbours alone, µs"]
    return table([*header, "SM clock, MHz", "between instances", "between sessions"], rows)


def contexts(reader: Reader) -> str:
    """Before the card has switched contexts, and after: medians of sessions, lowest to highest."""
    rows = []
    for shape in reader.recording.shapes:
        for case in reader.cases(shape):
            if case.planted:
                continue
            row = [shape, name_of(case)]
            for before in (True, False):
                times = reader.times(shape, case, before)
                bare = np.median(times.regime(BARE), axis=(1, 2)) / 1e3
                added = np.median(times.added(), axis=1)
                row += [f"{v.min():.3f} to {v.max():.3f}" for v in (bare, added)]
            rows.append(row)
    header = ["neighbours before, µs", "chained before, µs", "neighbours after, µs"]
    return table(["shape", "kernel", *header, "chained after, µs"], rows)


def twin_rows(reader: Reader) -> str:
    rows = []
    every: list[Interval] = []
    others: list[Interval] = []
    generator = np.random.default_rng(0)
    for shape, case in reader.twins():
        added = reader.times(shape, case).added()
        found = pairs(added)
        again = [one for _ in range(GROUPINGS) for one in pairs(regrouped(added, generator))]
        every += found
        others += again
        rows.append([shape, name_of(case), *twin_row(found, again)])
    rows.append(["all", "", *twin_row(every, others)])
    header = ["shape", "kernel", "comparisons", "leave out 1", f"in {GROUPINGS} regroupings"]
    header += ["half-width, median", "90th percent", "furthest ratio"]
    return table([*header, SAME, OPEN, "other verdict"], rows)


def twin_row(found: list[Interval], again: list[Interval]) -> list[str]:
    widths = [PERCENT * (one.half_width or 0.0) for one in found]
    verdicts = Counter(verdict(one) for one in found)
    furthest = max((one.value for one in found), key=lambda ratio: abs(np.log(ratio)))
    return [
        str(len(found)),
        percent(sum(not one.holds(1.0) for one in found), len(found)),
        percent(sum(not one.holds(1.0) for one in again), len(again)),
        f"{np.median(widths):.2f} %",
        f"{np.quantile(widths, 0.9):.2f} %",
        f"{furthest:.4f}",
        str(verdicts[SAME]),
        str(verdicts[OPEN]),
        str(verdicts[FASTER] + verdicts[SLOWER]),
    ]


def planted_rows(reader: Reader) -> str:
    rows = []
    for shape, case in reader.twins():
        base = reader.times(shape, case).added()
        for other in reader.planted(shape, case):
            slow = reader.times(shape, other).added()
            found = [
                ratio_interval(half, against)
                for halves, slowed in zip(runs(base), runs(slow), strict=True)
                for half, against in zip(halves, slowed, strict=False)
            ]
            verdicts = Counter(verdict(one) for one in found)
            rows.append(
                [
                    shape,
                    name_of(case),
                    str(other.planted),
                    f"{np.exp(np.log(base).mean() - np.log(slow).mean()):.4f}",
                    str(len(found)),
                    percent(
                        sum(one.high is not None and one.high < 1 for one in found), len(found)
                    ),
                    *(str(verdicts[word]) for word in (SLOWER, OPEN, SAME, FASTER)),
                ]
            )
    header = ["shape", "kernel", "cycles planted", "ratio of all", "comparisons", "below 1"]
    return table([*header, SLOWER, OPEN, SAME, FASTER], rows)


def later_rows(reader: Reader) -> str:
    """Ratios of different kernels: is a run's value in the interval of the run before it?"""
    rows = []
    for shape in reader.recording.shapes:
        cases = [case for at, case in reader.twins() if at == shape]
        for first, second in itertools.combinations(cases, 2):
            a, b = (runs(reader.times(shape, case).added()) for case in (first, second))
            found = [
                [ratio_interval(*halves) for halves in zip(*run, strict=True)]
                for run in zip(a, b, strict=True)
            ]
            held = [
                was.holds(now.value)
                for before, after in itertools.pairwise(found)
                for was, now in zip(before, after, strict=True)
            ]
            flat = [one for run in found for one in run]
            rows.append(
                [
                    shape,
                    f"{name_of(first)} ÷ {name_of(second)}",
                    f"{np.exp(np.mean([np.log(one.value) for one in flat])):.3f}",
                    f"{PERCENT * np.std([np.log(one.value) for one in flat], ddof=1):.2f} %",
                    str(len(held)),
                    percent(sum(held), len(held)),
                ]
            )
    header = ["shape", "ratio", "value", "between runs", "pairs of runs", "later within earlier"]
    return table(header, rows)


def round_rows(reader: Reader) -> str:
    """What intervals over the rounds of one instance each, in one session, would have claimed."""
    rows = []
    for shape, case in reader.twins():
        times = reader.times(shape, case)
        logs = np.log(times.regime(CHAINED) - times.regime(BARE))
        missed, widths = [], []
        for session in logs:
            for one, other in zip(session[::2], session[1::2], strict=True):
                apart = one - other
                width = T_975[len(apart) - 2] * apart.std(ddof=1) / np.sqrt(len(apart))
                missed.append(abs(apart.mean()) > width)
                widths.append(width)
        row = [shape, name_of(case), str(len(missed)), percent(sum(missed), len(missed))]
        rows.append([*row, f"{PERCENT * np.median(widths):.2f} %"])
    header = ["shape", "kernel", "comparisons", "leave out 1", "half-width, median"]
    return table(header, rows)


def steady_rows(reader: Reader) -> str:
    """Alone until steady, beside timed in turn with the others, at the last shape."""
    shape = reader.recording.shapes[-1]
    steady = reader.recording.steady
    rows = []
    for at, case in enumerate(case for where, case in reader.twins() if where == shape):
        mine = steady[(steady["case"] == at) & (steady["round"] >= 0)]
        alone = np.median(mine["nanoseconds"] / mine["calls"]) / 1e3
        cycles = np.median(mine["cycles"] / mine["calls"]) / 1e3
        clock = np.median(mine["cycles"] / mine["nanoseconds"]) * 1e3
        times = reader.times(shape, case)
        turn = np.median(times.regime(CHAINED)) / 1e3
        turn_clock = np.median(times.regime(CHAINED, times.clock))
        row = [shape, name_of(case), f"{alone:.1f}", f"{clock:.0f}", f"{cycles:.1f}"]
        rows.append([*row, f"{turn:.1f}", f"{turn_clock:.0f}", f"{turn * turn_clock / 1e3:.1f}"])
    header = ["shape", "kernel", "alone, µs", "MHz", "kilocycles", "in turn, µs", "MHz"]
    return table([*header, "kilocycles"], rows)


def mark_rows(recording: Recording) -> str:
    names = list(recording.marks[0])
    rows = [
        ["seconds of a session", name, f"{np.median([mark[name] for mark in recording.marks]):.2f}"]
        for name in names
    ]
    return table(["", "part", "median"], rows)


def tables(recording: Recording) -> str:
    reader = Reader(recording)
    parts = {
        f"{len(recording.marks)} sessions on {recording.gpu}": mark_rows(recording),
        "What a call takes": regimes(reader),
        "Before and after the card has switched contexts": contexts(reader),
        f"Twins: {SESSIONS} sessions of {INSTANCES} instances each": twin_rows(reader),
        "Planted slowdowns": planted_rows(reader),
        "A later run": later_rows(reader),
        "Intervals over rounds instead": round_rows(reader),
        "The card's steady state": steady_rows(reader),
    }
    return "\n\n".join(f"## {title}\n{body}" for title, body in parts.items())
