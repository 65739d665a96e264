"""Two captures side by side: how the ratio of their durations multiplies out, and what changed.

``compare`` needs nothing but captures, so that it serves any two of them, in a ladder or not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.derive.factors import SpeedupFactors, duration_parts, speedup_factors
from workbench.derive.figures import Figure, StallTime, compare_times, figures, stall_times
from workbench.derive.noise import ASSUMED_NOISE, Noise
from workbench.derive.standouts import Standouts, standouts
from workbench.judge.bottlenecks import READABLE
from workbench.words import RuleMove

if TYPE_CHECKING:
    from workbench.ncu.capture import Capture, Table


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


LEAST_POINTS = 1.0  # an estimate that moved by less says the same as before
Key = tuple[str, str]  # rule and title
ORDER = (RuleMove.VANISHED, RuleMove.CHANGED, RuleMove.APPEARED, RuleMove.SAME)


@dataclass(frozen=True)
class RuleChange:
    """One rule before and after a step; the estimates are NVIDIA's, NaN where it gave none.

    ``estimated_before_pct`` is the cut of the runtime (scope ``global``) or of the rule's own part
    of it (``local``) that ncu promised at the parent. Estimates overlap: they are never added.
    """

    rule: str
    title: str
    scope: str
    change: RuleMove
    estimated_before_pct: float
    estimated_after_pct: float


@dataclass(frozen=True)
class _Advice:
    """What a rule says of one capture; ``estimate`` in percent, NaN where it gave none."""

    scope: str = ""
    estimate: float = math.nan

    @property
    def is_rated(self) -> bool:
        return math.isfinite(self.estimate)


def _advice(rules: Table) -> dict[Key, _Advice]:
    """Rule and title to its largest estimate over the kernels."""
    largest: dict[Key, _Advice] = {}
    columns = ("rule", "title", "scope", "estimated_speedup_pct")
    for rule, title, scope, estimate in rules.rows(*columns):
        key, advice = (str(rule), str(title)), _Advice(str(scope), float(estimate))
        known = largest.get(key)
        if known is None or not known.is_rated or advice.estimate > known.estimate:
            largest[key] = advice
    return largest


def rule_changes(before: Table, after: Table) -> tuple[RuleChange, ...]:
    """Vanished, changed, appeared, then the same; within each by the larger estimate.

    Empty where either capture has no rule results: that is "not collected", not "no advice".
    """
    if not before or not after:
        return ()
    old, new = _advice(before), _advice(after)
    changes = [_change(key, old.get(key), new.get(key)) for key in {**old, **new}]
    return tuple(sorted(changes, key=lambda c: (ORDER.index(c.change), -_size(c), c.rule, c.title)))


def _size(change: RuleChange) -> float:
    estimates = (change.estimated_before_pct, change.estimated_after_pct)
    return max((value for value in estimates if math.isfinite(value)), default=-1.0)


def _change(key: Key, old: _Advice | None, new: _Advice | None) -> RuleChange:
    rule, title = key
    before, after = old or _Advice(), new or _Advice()
    return RuleChange(
        rule=rule,
        title=rule_words(rule, title),
        scope=before.scope or after.scope,
        change=_move(old, new),
        estimated_before_pct=before.estimate,
        estimated_after_pct=after.estimate,
    )


def _move(old: _Advice | None, new: _Advice | None) -> RuleMove:
    if old is None:
        return RuleMove.APPEARED
    if new is None:
        return RuleMove.VANISHED
    changed = old.is_rated and new.is_rated and abs(new.estimate - old.estimate) >= LEAST_POINTS
    return RuleMove.CHANGED if changed else RuleMove.SAME


def rule_words(rule: str, title: str) -> str:
    """Which rule it is, for people."""
    if not title:
        return READABLE.get(rule, rule)
    return f"{title} (launch configuration)" if rule == "LaunchConfiguration" else title
