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
from workbench.derive.largest_changes import LargestChanges, largest_changes
from workbench.judge.bottlenecks import READABLE
from workbench.words import RuleMove

if TYPE_CHECKING:
    from workbench.ncu.capture import Capture, ColumnTable


@dataclass(frozen=True)
class Comparison:
    """A variant against another. What a capture cannot give is None or empty: not collected.

    ``stall_microseconds`` are in microseconds under ncu, the largest change first.
    """

    before: str
    after: str
    decomposition: SpeedupFactors | None
    stall_microseconds: tuple[StallTime, ...]
    largest_changes: LargestChanges
    rules: tuple[RuleChange, ...]


def compare(
    before: Capture,
    after: Capture,
    names: tuple[str, str],
    known: tuple[Mapping[str, Figure], Mapping[str, Figure]] | None = None,
) -> Comparison:
    """``names`` are what the two are called; ``known`` their figures, where already computed."""
    old, new = known or (figures(before.metrics), figures(after.metrics))
    factors = _factors(before, after, names)
    return Comparison(
        before=names[0],
        after=names[1],
        decomposition=factors,
        stall_microseconds=tuple(
            compare_times(stall_times(before.metrics), stall_times(after.metrics))
        ),
        largest_changes=largest_changes(old, new, factors),
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


Said = tuple[str, float]  # scope, and the estimate in percent: NaN where a rule gave none
NOTHING: Said = ("", math.nan)


def _largest(rules: ColumnTable) -> dict[Key, Said]:
    """Rule and title to its largest estimate over the kernels."""
    largest: dict[Key, Said] = {}
    columns = ("rule", "title", "scope", "estimated_speedup_pct")
    for rule, title, scope, estimate in rules.rows(*columns):
        key = str(rule), str(title)
        known = largest.get(key, NOTHING)[1]
        if math.isnan(known) or estimate > known:
            largest[key] = str(scope), float(estimate)
    return largest


def rule_changes(before: ColumnTable, after: ColumnTable) -> tuple[RuleChange, ...]:
    """Vanished, changed, appeared, then the same; within each by the larger estimate.

    Empty where either capture has no rule results: that is "not collected", not "no advice".
    """
    if not before or not after:
        return ()
    old, new = _largest(before), _largest(after)
    changes = [_change(key, old.get(key), new.get(key)) for key in {**old, **new}]
    return tuple(sorted(changes, key=lambda c: (ORDER.index(c.change), -_size(c), c.rule, c.title)))


def _size(change: RuleChange) -> float:
    estimates = (change.estimated_before_pct, change.estimated_after_pct)
    return max((value for value in estimates if math.isfinite(value)), default=-1.0)


def _change(key: Key, old: Said | None, new: Said | None) -> RuleChange:
    (scope, before), (later, after) = old or NOTHING, new or NOTHING
    moved = RuleMove.CHANGED if abs(after - before) >= LEAST_POINTS else RuleMove.SAME
    one_side = RuleMove.APPEARED if old is None else RuleMove.VANISHED
    return RuleChange(
        rule=key[0],
        title=rule_words(*key),
        scope=scope or later,
        change=moved if old and new else one_side,
        estimated_before_pct=before,
        estimated_after_pct=after,
    )


def rule_words(rule: str, title: str) -> str:
    """Which rule it is, for people."""
    if not title:
        return READABLE.get(rule, rule)
    return f"{title} (launch configuration)" if rule == "LaunchConfiguration" else title
