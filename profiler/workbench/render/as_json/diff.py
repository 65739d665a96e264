"""Diffs and what their lines cost as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.derive.diff.costs import NUMBERS, Cost
from workbench.derive.diff.model import Hunk, Line, Shift, SourceDiff
from workbench.derive.diff.relocated import RelocatedBlock
from workbench.derive.figures import Figure
from workbench.derive.sass import Costed, Listing
from workbench.judge.pairs import VariantPair
from workbench.judge.rows import Ablation
from workbench.render.as_json import plain_data
from workbench.render.as_json.ladder import comparison, full_row, shape

MOST_SHIFTS = 20
SIDES = ("before", "after")
Data = dict[str, Any]


def variant_pair(found: Ablation, pair: VariantPair, changes: SourceDiff) -> Data:
    rows = (pair.before, pair.after)
    return {
        "study": found.study,
        "shape": shape(found.shape, found.parameters),
        "gpu": found.gpu,
        "before": pair.before.variant,
        "after": pair.after.variant,
        "warnings": list(pair.warnings),
        "speedup": plain_data(pair.speedup),
        "speedups": plain_data(pair.speedups),
        "comparison": comparison(pair.comparison),
        "versions": [full_row(found, row) for row in rows],
        "figures": figure_pairs(pair.before.figures, pair.after.figures),
        **source_diff(changes),
    }


def source_diff(changes: SourceDiff) -> Data:
    return {
        "not_collected": {n: why for n, why in zip(SIDES, changes.why, strict=True) if why},
        "hunks": [hunk(each) for each in changes.hunks],
        "outside_hunks": _both(changes.unchanged),
        "outside_sources": [
            {"file": file or None, **_both(costs)} for file, costs in changes.elsewhere.items()
        ],
        "total": _both(changes.totals),
        "moved": [moved(each) for each in changes.relocated],
        "unchanged_lines": [shift(each) for each in changes.shifts[:MOST_SHIFTS]],
    }


def cost(lines: Cost) -> Data:
    """Every number of a cost, ``null`` where it was not collected, and samples by reason."""
    return {**{name: getattr(lines, name) for name in NUMBERS}, "stalls": dict(lines.stalls)}


def _both(costs: tuple[Cost, Cost]) -> Data:
    return dict(zip(SIDES, map(cost, costs), strict=True))


def line(text: Line | None) -> Data | None:
    if text is None:
        return None
    return {
        "line": text.number,
        "text": text.text,
        "share": text.cost.share,
        "samples": text.cost.samples,
        "microseconds": text.cost.microseconds,
        "top_stall": text.cost.top_stall,
        "top_stalls": list(text.cost.top_stalls),
    }


def _span(file: str, lines: tuple[int, int] | None) -> Data | None:
    return {"file": file, "first": lines[0], "last": lines[1]} if lines else None


def hunk(each: Hunk) -> Data:
    spans = tuple(_span(each.files[side], each.span(side)) for side in (0, 1))
    measured = not each.cosmetic and not each.host
    return {
        "hunk": each.number,
        "function": each.function,
        "comments_only": each.cosmetic,
        "host": each.host,
        "lines_before": spans[0],
        "lines_after": spans[1],
        "before": cost(each.before) if spans[0] and measured else None,
        "after": cost(each.after) if spans[1] and measured else None,
        "tied": list(each.tied),
        "together": [cost(side) for side in each.together] if each.tied and measured else None,
        "rows": [
            {"kind": row.kind, "before": line(row.before), "after": line(row.after)}
            for row in each.rows
        ],
    }


def shift(each: Shift) -> Data:
    return {
        "file_before": each.files[0],
        "file_after": each.files[1],
        "change_microseconds": each.change,
        "before": line(each.before),
        "after": line(each.after),
    }


def moved(block: RelocatedBlock) -> Data:
    return {
        "lines_before": _span(block.files[0], block.before_lines),
        "lines_after": _span(block.files[1], block.after_lines),
        "before": cost(block.before),
        "after": cost(block.after),
    }


def figure_pairs(before: Mapping[str, Figure], after: Mapping[str, Figure]) -> Data:
    """Figure id to both values; ``null`` on a side that has not collected it."""
    return {key: _pair(before.get(key), after.get(key)) for key in {**before, **after}}


def _pair(before: Figure | None, after: Figure | None) -> Data:
    known = before or after
    assert known is not None
    factor = after.value / before.value if before and after and before.value else None
    return {
        "before": before.value if before else None,
        "after": after.value if after else None,
        "factor": factor,
        "unit": known.unit,
        "metric": known.metric,
    }


def instructions(found: Listing) -> list[Data]:
    """One object an instruction, in the order of launches and addresses."""
    return [instruction(one) for one in found.instructions]


def instruction(one: Costed) -> Data:
    file, line = one.place
    return {
        "launch": one.launch,
        "address": one.address,
        "sass": one.sass,
        "ptx": one.ptx or None,
        "file": file or None,
        "line": line or None,
        "executed": one.executed,
        "samples": one.samples,
        "share": one.share,
        "microseconds": one.microseconds,
        "stalls": dict(one.stalls),
    }
