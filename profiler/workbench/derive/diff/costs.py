"""What each source line costs: stall samples turned into time, instructions, excess traffic. Pure.

The time of a line is its share of a launch's warp state samples times the launch's duration, added
over the launches of a variant. The samples of ``selected`` (the warp issued) are part of the whole
and of no line's stall: the stall times of all lines and the issuing time add up to the duration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from workbench.derive.figures import DURATION, ISSUING

if TYPE_CHECKING:
    import pandas as pd

INSTRUCTIONS, SECTORS, WAVEFRONTS = (
    "instructions",
    "excess_global_sectors",
    "excess_shared_wavefronts",
)
COUNTERS = (INSTRUCTIONS, SECTORS, WAVEFRONTS)
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
    stalls: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def top_stall(self) -> str:
        """The reason with the most samples; "" where there is none."""
        return max(self.stalls, key=lambda reason: (self.stalls[reason], reason), default="")


NUMBERS = ("samples", "share", "microseconds", *COUNTERS)


def add(costs: Iterable[Cost]) -> Cost:
    """The sum; None where no part was collected. An empty sum is not collected."""
    sums: dict[str, float | None] = dict.fromkeys(NUMBERS)
    stalls: dict[str, float] = {}
    for cost in costs:
        for name in NUMBERS:
            part = getattr(cost, name)
            if part is not None:
                sums[name] = (sums[name] or 0.0) + part
        for reason, samples in cost.stalls.items():
            stalls[reason] = stalls.get(reason, 0.0) + samples
    return _cost(sums, stalls)


def _cost(numbers: Mapping[str, float | None], stalls: Mapping[str, float]) -> Cost:
    return Cost(
        numbers["samples"],
        numbers["share"],
        numbers["microseconds"],
        numbers[INSTRUCTIONS],
        numbers[SECTORS],
        numbers[WAVEFRONTS],
        MappingProxyType(dict(stalls)),
    )


@dataclass(frozen=True)
class LineCosts:
    """The lines of one variant by (file, line); line 0 of "" is code without a known line.

    ``nothing`` is the cost of a line that the capture has no entry for: zeros where the counter
    was collected.
    """

    lines: Mapping[Place, Cost]
    nothing: Cost
    duration: float | None

    def of(self, file: str, line: int) -> Cost:
        return self.lines.get((file, line), self.nothing)

    def by_file(self) -> dict[str, Cost]:
        files = sorted({file for file, _ in self.lines})
        return {f: add(c for (file, _), c in self.lines.items() if file == f) for f in files}

    @property
    def total(self) -> Cost:
        return add([self.nothing, *self.lines.values()])

    @property
    def has_lines(self) -> bool:
        return any(line > 0 for _, line in self.lines)


def line_costs(lines: pd.DataFrame, metrics: pd.DataFrame, collected: Collection[str]) -> LineCosts:
    """From a capture's ``lines`` and ``metrics`` tables.

    ``collected`` names the counters of ``COUNTERS`` that the report holds, zero or not, and
    "samples" where it holds warp state samples.
    """
    durations = {
        int(launch): float(value)
        for launch, name, value in zip(
            metrics["launch"], metrics["metric"], metrics["value"], strict=True
        )
        if name == DURATION
    }
    stalled = lines[~lines["counter"].isin(COUNTERS)]
    samples = {int(k): float(v) for k, v in stalled.groupby("launch")["value"].sum().items()}  # type: ignore[call-overload]
    timed = bool(samples) and samples.keys() <= durations.keys()
    whole = sum(durations[launch] for launch in durations) if timed else sum(samples.values())
    # A launch's samples weigh as much as its duration: sampling intervals may differ.
    weight = {k: (durations[k] / n if timed else 1.0) / whole for k, n in samples.items() if n}
    sums: dict[Place, dict[str, float]] = {}
    stalls: dict[Place, dict[str, float]] = {}
    for launch, file, line, counter, value in zip(
        *(lines[c] for c in ("launch", "file", "line", "counter", "value")), strict=True
    ):
        place = (str(file), int(line))
        mine = sums.setdefault(place, {})
        if counter in COUNTERS:
            mine[counter] = mine.get(counter, 0.0) + float(value)
        elif counter != ISSUING:
            mine["samples"] = mine.get("samples", 0.0) + float(value)
            mine["share"] = mine.get("share", 0.0) + float(value) * weight[int(launch)]
            reasons = stalls.setdefault(place, {})
            reasons[counter] = reasons.get(counter, 0.0) + float(value)
    sampled = "samples" in collected
    zeros: dict[str, float | None] = {c: 0.0 if c in collected else None for c in COUNTERS}
    zeros |= dict.fromkeys(("samples", "share"), 0.0 if sampled else None)
    zeros["microseconds"] = 0.0 if sampled and timed else None
    found = {}
    for place, values in sums.items():
        known = {**zeros, **{k: v for k, v in values.items() if zeros[k] is not None}}
        if known["microseconds"] is not None:
            known["microseconds"] = (known["share"] or 0.0) * whole / NS_PER_US
        found[place] = _cost(known, stalls.get(place, {}))
    return LineCosts(found, _cost(zeros, {}), whole / NS_PER_US if timed else None)
