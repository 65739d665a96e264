"""The page's account of a comparison: factors as a small figure, stall time, moves and rules."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from workbench.derive.factors import SpeedupFactors
from workbench.judge.comparison import Comparison
from workbench.judge.rows import Ablation
from workbench.render import sections, why
from workbench.render.page_stalls import reasons, stacked
from workbench.render.spans import spans
from workbench.render.stall_chart import OTHER
from workbench.render.tables import factor, number

ROOM = 4.0  # percent of the figure's width left free on both sides


def ladder(ablation: Ablation) -> dict[str, Any]:
    """The whole ladder: every step's factors, NVIDIA's promises, and how predictions came out."""
    shown = [entry["key"] for entry in reasons(ablation)]
    return {
        "header": why.LADDER_HEADER,
        "rows": why.ladder_rows(ablation),
        "explained": sections.explained(ablation),
        "whole": account(ablation.whole, shown) if ablation.whole else None,
        "promise_header": why.PROMISE_HEADER,
        "promises": why.promise_rows(ablation),
        "score": spans(sections.score(ablation)),
        "noise": why.noise(ablation.noise),
    }


def account(found: Comparison, shown: list[str]) -> dict[str, Any]:
    """A variant against another; ``shown`` are the stall reasons with a colour of their own."""
    return {
        "before": found.before,
        "after": found.after,
        "anatomy": anatomy(found.factors) if found.factors else None,
        "times": times(found, shown) if found.stall_times else None,
        "moves": _moves(found),
        "launch": why.launch(found),
        "paced": why.paced(found),
        "rules": why.rule_rows(found),
        "rules_collected": bool(found.rules),
        "rules_alike": why.rules_alike(found),
        "promise": why.promised(why.largest_promise(found)),
        "realised": why.realised(found),
    }


def anatomy(found: SpeedupFactors) -> dict[str, Any]:
    """Factors as bars that each start where the one before ended, on a logarithmic scale: the last
    one ends at the ratio of the captures.
    """
    ends = [0.0]
    for part in found.factors:
        ends.append(ends[-1] + math.log(part.gain))
    whole = math.log(found.measured)
    low, high = min(0.0, whole, *ends), max(0.0, whole, *ends)

    def at(place: float) -> float:
        span = high - low
        return round(ROOM + (100 - 2 * ROOM) * ((place - low) / span if span else 0.5), 2)

    def bar(start: float, end: float) -> dict[str, Any]:
        left, right = sorted((at(start), at(end)))
        return {"x": left, "width": round(max(right - left, 0.4), 2), "faster": end >= start}

    rows = [
        {
            "label": part.label,
            "unit": part.unit,
            "metric": part.metric,
            "before": number(part.before),
            "after": number(part.after),
            "gain": factor(part.gain),
            "bar": bar(*span),
        }
        for part, span in zip(found.factors, pairwise(ends), strict=True)
    ]
    return {
        "equation": why.equation(found),
        "rows": rows,
        "one": at(0.0),
        "residual": {"text": factor(found.residual), "bar": bar(ends[-1], whole)},
        "total": {
            "before": number(found.before_us),
            "after": number(found.after_us),
            "gain": factor(found.measured),
            "bar": bar(0.0, whole),
        },
    }


def times(found: Comparison, shown: list[str]) -> dict[str, Any]:
    """Two bars of microseconds on one scale, and the table with the same figures."""
    sides = [
        {t.reason: getattr(t, side) for t in found.stall_times} for side in ("before", "after")
    ]
    longest = max(sum(side.values()) for side in sides)
    bars = []
    for name, side in zip((found.before, found.after), sides, strict=True):
        parts = [(key, side.get(key, 0.0)) for key in shown if key != OTHER]
        parts.append((OTHER, max(0.0, sum(side.values()) - sum(time for _, time in parts))))
        shares = [(key, time / longest) for key, time in parts]
        bars.append(
            {
                "name": name,
                "total": f"{number(sum(side.values()))} µs",
                "parts": stacked(shares, lambda share: number(share * longest)),
            }
        )
    return {"bars": bars, "header": why.time_header(found), "rows": why.time_rows(found)}


def _moves(found: Comparison) -> list[list[str]]:
    """Each with the metric behind it last."""
    return [
        [*row, move.metric]
        for row, move in zip(why.move_rows(found), found.standouts.top, strict=True)
    ]
