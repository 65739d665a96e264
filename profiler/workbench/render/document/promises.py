"""NVIDIA's estimates beside the results: of rules that a step answers alone."""

from __future__ import annotations

import math

from workbench.judge.comparison import Comparison
from workbench.judge.rows import Ablation
from workbench.judge.rules import RuleChange
from workbench.render.document.blocks import Table
from workbench.render.document.fields import Field, field, table
from workbench.render.numbers import factor, number
from workbench.words import ABSENT, NONE, RuleMove


def cut(percent: float) -> str:
    return f"{number(percent)} %" if math.isfinite(percent) else "no estimate"


def answered(pair: Comparison) -> RuleChange | None:
    """The parent's rule with the largest estimate for the whole runtime, of those that the step
    made vanish: an estimate says nothing of a step that does not address its rule.
    """
    known = [r for r in pair.rules if r.promise is not None and r.change == RuleMove.VANISHED]
    return max(known, key=lambda r: (r.estimated_before_pct, r.title), default=None)


def promised(rule: RuleChange | None) -> str:
    if rule is None or rule.promise is None:
        return NONE
    return f"{cut(rule.estimated_before_pct)} ({factor(rule.promise)})"


def realised(pair: Comparison) -> str:
    """The cut of the duration under ncu, as NVIDIA's estimates are given."""
    if pair.factors is None:
        return ABSENT
    less = 100 * (1 - pair.factors.after_us / pair.factors.before_us)
    sign = "−" if less < 0 else ""
    return f"{sign}{number(abs(less))} % ({factor(pair.factors.measured)})"


PROMISES: list[Field[Comparison]] = [
    field("step", "step", lambda p: p.after),
    field("vanished", "rule that vanished", lambda p: _vanished(p)),
    field("promised", "promised", lambda p: promised(answered(p)), right=True),
    field("realised", "realised", lambda p: realised(p), right=True),
]


def _vanished(pair: Comparison) -> str:
    if not pair.rules:
        return ABSENT
    rule = answered(pair)
    return rule.title if rule else NONE


def table_of(ablation: Ablation) -> Table:
    pairs = [row.against_parent for row in ablation.rows if row.against_parent]
    return table("promises", PROMISES, pairs, key=lambda p: p.after)


def kept(pair: Comparison) -> str:
    """The promise that the step answers beside what it brought."""
    rule = answered(pair)
    if rule is None:
        return f"No rule with an estimate for the whole runtime vanished at {pair.after}."
    return (
        f"Of the rules that vanished, the largest estimate for the whole runtime: {rule.title}, "
        f"{promised(rule)}; realised under ncu: {realised(pair)}"
    )
