"""Two captures side by side: how the ratio of their durations multiplies out, and what changed.

``compare`` needs nothing but captures, so that it serves any two of them, in a ladder or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.derive.factors import SpeedupFactors, duration_parts, speedup_factors
from workbench.derive.figures import Figure, figures
from workbench.derive.noise import ASSUMED_NOISE, Noise
from workbench.derive.stalls import StallTime, compare_times, stall_times
from workbench.derive.standouts import Standouts, standouts
from workbench.judge.rules import RuleChange, rule_changes

if TYPE_CHECKING:
    from workbench.ncu.capture import Capture


@dataclass(frozen=True)
class Comparison:
    """A variant against another. What a capture cannot give is None or empty: not collected.

    ``stall_times`` are in microseconds under ncu, the largest change first.
    """

    before: str
    after: str
    factors: SpeedupFactors | None
    stall_times: tuple[StallTime, ...]
    standouts: Standouts
    rules: tuple[RuleChange, ...]


def compare(
    before: Capture,
    after: Capture,
    names: tuple[str, str],
    noise: Noise = ASSUMED_NOISE,
    known: tuple[Mapping[str, Figure], Mapping[str, Figure]] | None = None,
) -> Comparison:
    """``names`` are what the two are called; ``known`` their figures, where already computed."""
    old, new = known or (figures(before.metrics), figures(after.metrics))
    factors = _factors(before, after, names)
    return Comparison(
        before=names[0],
        after=names[1],
        factors=factors,
        stall_times=tuple(compare_times(stall_times(before.metrics), stall_times(after.metrics))),
        standouts=standouts(old, new, factors, noise),
        rules=rule_changes(before.rules, after.rules),
    )


def _factors(before: Capture, after: Capture, names: tuple[str, str]) -> SpeedupFactors | None:
    old, new = duration_parts(before.metrics), duration_parts(after.metrics)
    return speedup_factors(old, new, names) if old and new else None
