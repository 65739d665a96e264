"""The costs of lines and instructions: stall samples as time, executions, excess traffic. Pure.

The time of a line is its share of a launch's warp state samples times the launch's duration, added
over the launches of a variant. The samples of ``selected`` (the warp issued) are part of the whole
and of no line's stall: the stall times of all lines and the issuing time add up to the duration.
The time of an instruction is its share of the samples likewise: by line they add up to the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from workbench.derive.figures import DURATION, ISSUING, added, by_launch, totals
from workbench.ncu.capture import ColumnTable
from workbench.ncu.disassembly import Code
from workbench.words import grouped, shown

INSTRUCTIONS, SECTORS, WAVEFRONTS = (
    "instructions",
    "excess_global_sectors",
    "excess_shared_wavefronts",
)
COUNTERS = (INSTRUCTIONS, SECTORS, WAVEFRONTS)
NO_STALLS: Mapping[str, float] = MappingProxyType({})
NS_PER_US = 1e3
Place = tuple[str, int]


@dataclass(frozen=True)
class Cost:
    """What some lines cost; None is not collected, 0 is a counter that stayed at zero.

    ``samples``: stall samples, warps that waited. ``share``: their part of all samples of the
    variant (0 to 1). ``microseconds``: that share of the duration under ncu. ``instructions``: warp
    instructions executed. ``excess_global_sectors``: 32-byte sectors beyond the ideal;
    ``excess_shared_wavefronts``: shared memory passes beyond the ideal, bank conflicts among them.
    ``stalls``: stall reason to its samples.
    """

    samples: float | None = None
    share: float | None = None
    microseconds: float | None = None
    instructions: float | None = None
    excess_global_sectors: float | None = None
    excess_shared_wavefronts: float | None = None
    stalls: Mapping[str, float] = field(default_factory=lambda: NO_STALLS)

    @property
    @shown
    def top_stall(self) -> str:
        """The reason with the most samples; "" where there is none."""
        return _most(self.stalls)


def _most(stalls: Mapping[str, float]) -> str:
    return min(stalls, key=lambda name: (-stalls[name], name), default="")


NUMBERS = ("samples", "share", "microseconds", *COUNTERS)


def add(costs: Iterable[Cost]) -> Cost:
    """The sum; None where no part was collected. An empty sum is not collected."""
    sums: dict[str, float | None] = dict.fromkeys(NUMBERS)
    every = list(costs)
    for cost in every:
        for name in NUMBERS:
            part = getattr(cost, name)
            if part is not None:
                sums[name] = (sums[name] or 0.0) + part
    stalls = totals(item for cost in every for item in cost.stalls.items())
    return Cost(**sums, stalls=MappingProxyType(stalls))


@dataclass(frozen=True)
class LineCosts:
    """Costs by (file, line); line 0 of "" is code without a known line. ``nothing`` is that of a
    line without an entry: zeros where the counter was collected.
    """

    lines: Mapping[Place, Cost]
    nothing: Cost
    duration: float | None

    def of(self, file: str, line: int) -> Cost:
        """The cost of a line; that of nothing where the capture has no entry for it."""
        return self.lines.get((file, line), self.nothing)

    def by_file(self) -> dict[str, Cost]:
        """File to the cost of all of its lines."""
        files = sorted({file for file, _ in self.lines})
        return {f: add(c for (file, _), c in self.lines.items() if file == f) for f in files}

    @property
    def total(self) -> Cost:
        """The cost of all lines, with and without a known place."""
        return add([self.nothing, *self.lines.values()])

    @property
    def has_lines(self) -> bool:
        """Whether any cost has a known line."""
        return any(line > 0 for _, line in self.lines)


NO_COSTS = LineCosts({}, Cost(), None)  # of a side without source lines


def line_costs(lines: ColumnTable, metrics: ColumnTable, collected: Collection[str]) -> LineCosts:
    """From a capture's ``lines`` and ``metrics`` tables.

    ``collected`` names the counters of ``COUNTERS`` that the report holds, zero or not, and
    "samples" where it holds warp state samples.
    """
    rows = lines.rows("launch", "counter", "value")
    taken = totals((int(launch), float(n)) for launch, name, n in rows if name not in COUNTERS)
    weights, whole = sample_weights(taken, metrics)
    zeros = _zeros(collected, whole is not None)

    def cost(numbers: Mapping[str, float], stalls: Mapping[str, float]) -> Cost:
        known = {k: None if zero is None else numbers.get(k, zero) for k, zero in zeros.items()}
        if known["microseconds"] is not None and whole is not None:
            known["microseconds"] = (known["share"] or 0.0) * whole / NS_PER_US
        return Cost(**known, stalls=MappingProxyType(stalls))

    return LineCosts(
        lines={place: cost(*found) for place, found in _sums(lines, weights).items()},
        nothing=Cost(**zeros, stalls=NO_STALLS),
        duration=None if whole is None else whole / NS_PER_US,
    )


def sample_weights(
    samples: Mapping[int, float], metrics: ColumnTable
) -> tuple[dict[int, float], float | None]:
    """Launch to the share of all samples that one of its own is, and the duration of all launches
    in nanoseconds; None where one was not timed.
    """
    every = by_launch(metrics).items()
    durations = {launch: values[DURATION] for launch, values in every if DURATION in values}
    timed = bool(samples) and samples.keys() <= durations.keys()
    whole = added(durations.values()) if timed else added(samples.values())
    # A launch's samples weigh as much as its duration: sampling intervals may differ.
    weights = {k: (durations[k] / n if timed else 1.0) / whole for k, n in samples.items() if n}
    return weights, whole if timed else None


def _zeros(collected: Collection[str], timed: bool) -> dict[str, float | None]:
    """The numbers of a line without an entry: zero where the counter was collected, else None."""
    sampled = 0.0 if "samples" in collected else None
    return {
        **{counter: 0.0 if counter in collected else None for counter in COUNTERS},
        "samples": sampled,
        "share": sampled,
        "microseconds": sampled if timed else None,
    }


Sums = dict[Place, tuple[dict[str, float], dict[str, float]]]  # numbers and stalls of a line


def _sums(lines: ColumnTable, weights: Mapping[int, float]) -> Sums:
    """What the table has of each line, over all launches."""
    sums: Sums = {}
    columns = ("launch", "file", "line", "counter", "value")
    for launch, file, line, counter, value in lines.rows(*columns):
        numbers, stalls = sums.setdefault((str(file), int(line)), ({}, {}))
        name, amount = str(counter), float(value)
        if name in COUNTERS:
            numbers[name] = numbers.get(name, 0.0) + amount
        elif name != ISSUING:
            stalls[name] = stalls.get(name, 0.0) + amount
            numbers["samples"] = numbers.get("samples", 0.0) + amount
            numbers["share"] = numbers.get("share", 0.0) + amount * weights[int(launch)]
    return sums


@dataclass(frozen=True)
class InstructionCost:
    """One instruction of one launch; ``address`` is in bytes from the first.

    ``executed`` counts warps, ``samples`` those that waited there, ``share`` is their part of all
    samples of the variant (0 to 1), and ``microseconds`` that share of the duration under ncu; None
    is not collected. ``stalls`` is stall reason to samples. ``place`` is the file and the line that
    it is charged to.
    """

    launch: int
    address: int
    sass: str
    place: Place
    executed: float | None
    samples: float | None
    share: float | None
    microseconds: float | None
    stalls: Mapping[str, float] = field(default_factory=lambda: NO_STALLS)

    @property
    def top_stall(self) -> str:
        """The reason with the most samples; "" where there is none."""
        return _most(self.stalls)


@dataclass(frozen=True)
class Listing:
    """A variant's launches one after the other; ``duration`` is in microseconds under ncu."""

    instructions: tuple[InstructionCost, ...]
    duration: float | None

    @cached_property
    def by_line(self) -> Mapping[Place, Sequence[InstructionCost]]:
        return grouped((one.place, one) for one in self.instructions)


def listing(codes: Sequence[Code | None], metrics: ColumnTable) -> Listing:
    """From a capture's ``code`` and ``metrics``."""
    known = {launch: code for launch, code in enumerate(codes) if code is not None}
    taken = {launch: _samples(code) for launch, code in known.items()}
    weights, whole = sample_weights(taken, metrics)
    found = [
        one
        for launch, code in known.items()
        for one in _costed(launch, code, weights.get(launch), whole)
    ]
    duration = None if whole is None else whole / NS_PER_US
    return Listing(tuple(found), duration)


def _samples(code: Code) -> float:
    return added(count for found in code.samples.values() for count in found.values())


def _costed(
    launch: int, code: Code, weight: float | None, whole: float | None
) -> Iterable[InstructionCost]:
    """``weight`` of a sample in all of the variant's; None where the launch has none."""
    stalls: dict[int, dict[str, float]] = {}
    for reason, found in code.samples.items():
        if reason != ISSUING:
            for index, count in found.items():
                stalls.setdefault(index, {})[reason] = count
    for index, (address, sass, place) in enumerate(
        zip(code.addresses, code.sass, code.places, strict=True)
    ):
        mine = stalls.get(index, {})
        samples = added(mine.values())
        share = None if weight is None else samples * weight
        yield InstructionCost(
            launch=launch,
            address=address,
            sass=sass,
            place=place,
            executed=code.executed[index] if code.executed is not None else None,
            samples=None if weight is None else samples,
            share=share,
            microseconds=None if share is None or whole is None else share * whole / NS_PER_US,
            stalls=MappingProxyType(mine),
        )
