"""What ``workbench diff --json`` prints; the names are documented in docs/json.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.derive.diff.costs import NUMBERS, Cost
from workbench.derive.diff.model import DiffRow, Hunk, Line, Shift, SourceDiff
from workbench.derive.diff.relocated import RelocatedBlock
from workbench.derive.figures import Figure


def cost(found: Cost) -> dict[str, Any]:
    """Every number of a cost, ``null`` where it was not collected, and samples by reason."""
    return {**{name: getattr(found, name) for name in NUMBERS}, "stalls": dict(found.stalls)}


def line(found: Line | None) -> dict[str, Any] | None:
    if found is None:
        return None
    share = found.cost.share
    return {
        "line": found.number,
        "text": found.text,
        "share": share,
        "samples": found.cost.samples,
        "microseconds": found.cost.microseconds,
        "top_stall": found.cost.top_stall,
    }


def row(found: DiffRow) -> dict[str, Any]:
    return {"kind": found.kind, "before": line(found.before), "after": line(found.after)}


def _span(hunk: Hunk, side: int) -> dict[str, Any] | None:
    found = hunk.span(side)
    if found is None:
        return None
    return {"file": hunk.files[side], "first": found[0], "last": found[1]}


def hunk(found: Hunk) -> dict[str, Any]:
    spans = _span(found, 0), _span(found, 1)
    measured = not found.cosmetic and not found.host
    return {
        "hunk": found.number,
        "function": found.function,
        "comments_only": found.cosmetic,
        "host": found.host,
        "lines_before": spans[0],
        "lines_after": spans[1],
        "before": cost(found.before) if spans[0] and measured else None,
        "after": cost(found.after) if spans[1] and measured else None,
        "rows": [row(r) for r in found.rows],
    }


def shift(found: Shift) -> dict[str, Any]:
    return {
        "file_before": found.files[0],
        "file_after": found.files[1],
        "change_microseconds": found.change,
        "before": line(found.before),
        "after": line(found.after),
    }


def moved(found: RelocatedBlock) -> dict[str, Any]:
    spans = zip(found.files, (found.before_lines, found.after_lines), strict=True)
    before, after = ({"file": f, "first": first, "last": last} for f, (first, last) in spans)
    return {
        "lines_before": before,
        "lines_after": after,
        "before": cost(found.before),
        "after": cost(found.after),
    }


MOST_SHIFTS = 20


def source_diff(found: SourceDiff) -> dict[str, Any]:
    names = ("before", "after")
    return {
        "not_collected": {n: why for n, why in zip(names, found.why, strict=True) if why},
        "hunks": [hunk(h) for h in found.hunks],
        "outside_hunks": dict(zip(names, map(cost, found.unchanged), strict=True)),
        "outside_sources": [
            {"file": file or None, "before": cost(before), "after": cost(after)}
            for file, (before, after) in found.elsewhere.items()
        ],
        "total": dict(zip(names, map(cost, found.totals), strict=True)),
        "moved": [moved(m) for m in found.relocated],
        "unchanged_lines": [shift(s) for s in found.shifts[:MOST_SHIFTS]],
    }


def figure_pairs(
    before: Mapping[str, Figure], after: Mapping[str, Figure]
) -> dict[str, dict[str, Any]]:
    """Figure id to both values; ``null`` on a side that has not collected it."""
    found = {}
    for key in dict.fromkeys([*before, *after]):
        one = before.get(key) or after[key]
        values = (side[key].value if key in side else None for side in (before, after))
        was, came = values
        factor = came / was if was and came is not None else None
        found[key] = {
            "before": was,
            "after": came,
            "factor": factor,
            "unit": one.unit,
            "metric": one.metric,
        }
    return found
