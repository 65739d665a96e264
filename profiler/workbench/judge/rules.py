"""What ncu's rules say of a variant and of its parent, and NVIDIA's estimates beside the result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.judge.bottlenecks import READABLE
from workbench.words import RuleMove

if TYPE_CHECKING:
    import pandas as pd

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
    change: str
    estimated_before_pct: float
    estimated_after_pct: float

    @property
    def promise(self) -> float | None:
        """The estimate at the parent as a factor, for the whole runtime only."""
        left = 1 - self.estimated_before_pct / 100
        return 1 / left if self.scope == "global" and math.isfinite(left) and left > 0 else None


@dataclass(frozen=True)
class _Said:
    scope: str
    estimate: float


def _said(rules: pd.DataFrame) -> dict[Key, _Said]:
    """Rule and title to its largest estimate over the kernels."""
    found: dict[Key, _Said] = {}
    for rule, title, scope, estimate in zip(
        rules["rule"], rules["title"], rules["scope"], rules["estimated_speedup_pct"], strict=True
    ):
        key = (str(rule), str(title))
        value = float(estimate)
        old = found.get(key)
        if old is None or not math.isfinite(old.estimate) or value > old.estimate:
            found[key] = _Said(str(scope), value)
    return found


def rule_changes(before: pd.DataFrame, after: pd.DataFrame) -> tuple[RuleChange, ...]:
    """Vanished, changed, appeared, then the same; within each by the larger estimate.

    Empty where either capture has no rule results: that is "not collected", not "no advice".
    """
    if before.empty or after.empty:
        return ()
    was, came = _said(before), _said(after)
    found = [_change(key, was, came) for key in {**was, **came}]
    return tuple(sorted(found, key=lambda c: (ORDER.index(c.change), -_size(c), c.rule, c.title)))


def _size(change: RuleChange) -> float:
    known = [
        v for v in (change.estimated_before_pct, change.estimated_after_pct) if math.isfinite(v)
    ]
    return max(known, default=-1.0)


def _change(key: Key, was: Mapping[Key, _Said], came: Mapping[Key, _Said]) -> RuleChange:
    rule, title = key
    old, new = was.get(key), came.get(key)
    first = old.estimate if old else math.nan
    last = new.estimate if new else math.nan
    if old is None:
        word = RuleMove.APPEARED
    elif new is None:
        word = RuleMove.VANISHED
    elif math.isfinite(first) and math.isfinite(last) and abs(last - first) >= LEAST_POINTS:
        word = RuleMove.CHANGED
    else:
        word = RuleMove.SAME
    scope = (old.scope if old else "") or (new.scope if new else "")
    words = READABLE.get(rule, rule)
    if title:
        words = title if rule != "LaunchConfiguration" else f"{title} (launch configuration)"
    return RuleChange(rule, words, scope, word, first, last)
