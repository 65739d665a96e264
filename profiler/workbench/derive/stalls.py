"""Where the time went: the duration under ncu, shared out by what the warps were doing.

Microseconds of a reason = its share of a launch's warp state samples times that launch's duration,
summed over the launches. It apportions elapsed time; it does not promise that removing a reason
would save all of it, since other warps may have been running meanwhile.

A share p of n samples has the standard error sqrt(p (1 - p) / n), and the difference of two shares
p and q of the same samples sqrt((p + q - (p - q)^2) / n): they are counts of one multinomial. Both
take samples for independent, which is the least error there can be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.derive.figures import DURATION, ISSUING, by_launch, stall_samples
from workbench.derive.sums import added

if TYPE_CHECKING:
    from workbench.ncu.capture import Table


UNSAMPLED = "not_sampled"  # the duration of launches too short for a single sample


@dataclass(frozen=True)
class StallTime:
    """Microseconds of one reason before and after; ``selected`` is warps that issued."""

    reason: str
    before: float
    after: float

    @property
    def change(self) -> float:
        """Microseconds after less those before."""
        return self.after - self.before


def stall_times(metrics: Table) -> dict[str, float]:
    """Reason to microseconds, largest first; they sum to the duration. Empty if no samples."""
    launches = by_launch(metrics).values()
    if not all(DURATION in values for values in launches):
        return {}
    times: dict[str, float] = {}
    for values in launches:
        for reason, share in _shares(values).items():
            times[reason] = times.get(reason, 0.0) + share * values[DURATION] * 1e-3
    if not times.keys() - {UNSAMPLED}:
        return {}
    return dict(sorted(times.items(), key=lambda item: (-item[1], item[0])))


def _shares(values: Mapping[str, float]) -> dict[str, float]:
    """Of the samples of one launch."""
    samples = stall_samples(values)
    total = added(samples.values())
    return {r: count / total for r, count in samples.items()} if total else {UNSAMPLED: 1.0}


def compare_times(before: Mapping[str, float], after: Mapping[str, float]) -> list[StallTime]:
    """Every reason of either side, the largest change first; empty where one side has none."""
    if not before or not after:
        return []
    times = [StallTime(r, before.get(r, 0.0), after.get(r, 0.0)) for r in {**before, **after}]
    return sorted(times, key=lambda time: (-abs(time.change), time.reason))


NAMED = 3  # reasons; a tie of more says nothing


@dataclass(frozen=True)
class TopStall:
    """The reason with the most samples, and those that it does not lead by a standard error.

    ``share`` is the first one's, from 0 to 1, and ``error`` its standard error: None where the
    number of samples is not known. ``reasons`` has more than one where they tie.
    """

    reasons: tuple[str, ...]
    share: float
    error: float | None

    @property
    def ties(self) -> bool:
        return len(self.reasons) > 1


def standard_error(share: float, samples: float | None) -> float | None:
    """Of a share from 0 to 1 of this many samples; None where that is not known."""
    return math.sqrt(max(0.0, share * (1 - share)) / samples) if samples else None


def lead_error(first: float, second: float, samples: float) -> float:
    """Standard error of the difference of two shares of the same samples."""
    return math.sqrt(max(0.0, first + second - (first - second) ** 2) / samples)


def top_stall(shares: Mapping[str, float], samples: float | None) -> TopStall | None:
    """None where nothing stalled; issuing is no stall. ``shares`` are of all ``samples``."""
    stalls = {name: share for name, share in shares.items() if name != ISSUING and share > 0}
    ranked = sorted(stalls, key=lambda name: (-stalls[name], name))
    if not ranked:
        return None
    most = stalls[ranked[0]]
    tied = [
        name
        for name in ranked[1:]
        if samples and most - stalls[name] <= lead_error(most, stalls[name], samples)
    ]
    return TopStall((ranked[0], *tied), most, standard_error(most, samples))
