"""The page's ladder: one row a variant, every cell with its text and what it sorts by."""

from __future__ import annotations

from typing import Any

from workbench.derive.figures import ISSUING
from workbench.derive.speedup import Ratio, Time
from workbench.judge.rows import Ablation, Row
from workbench.render.markdown import one_line
from workbench.render.page_roofline import kind
from workbench.render.sections import COLUMNS
from workbench.render.spans import spans
from workbench.render.tables import (
    factor,
    figure,
    has_figures,
    interval,
    number,
    percent,
    top_stall,
    verdict,
)
from workbench.words import ABSENT, NONE

STALL_SOURCE = "smsp__pcsamp_warps_issue_stalled_*, share of their sum"
ROOF_SOURCE = "counted FLOP over gpu__time_duration.sum, against the least ceiling over the point"


def sources_of(ablation: Ablation, name: str) -> str:
    """The ncu metrics behind a figure over all variants, or that it was not collected."""
    found = dict.fromkeys(r.figures[name].metric for r in ablation.everything if name in r.figures)
    return "; ".join(found) or ABSENT


def columns(ablation: Ablation) -> list[dict[str, Any]]:
    """``source`` is the metric or file that the column's figures come from."""
    timing = ablation.timing_file or ABSENT
    found = [
        ("version", "version", "", ""),
        ("verdict", "verdict", "", "the gates under each step"),
        ("time", "time", "warm, µs", f"samples in {timing}"),
        ("baseline", "vs baseline", "", f"paired rounds in {timing}"),
        ("parent", "vs parent", "", f"paired rounds in {timing}"),
    ]
    if ablation.reference:
        found.append(("reference", f"vs {ablation.reference}", "", f"paired rounds in {timing}"))
    metrics = dict(COLUMNS)
    found += [
        ("stall", "top stall", "of samples", STALL_SOURCE),
        ("roof", "roof", "share reached", ROOF_SOURCE),
        ("occupancy", "occupancy", "%", sources_of(ablation, metrics["occupancy %"])),
        ("dram", "DRAM", "GB/s", sources_of(ablation, metrics["DRAM GB/s"])),
        ("change", "key change", "", ""),
    ]
    words = {"version", "verdict", "stall", "change"}
    return [
        {"key": key, "label": label, "unit": unit, "source": source, "numeric": key not in words}
        for key, label, unit, source in found
    ]


def rows(ablation: Ablation) -> list[dict[str, Any]]:
    return [
        {
            "variant": row.variant,
            "label": row.label,
            "kind": kind(row),
            "word": verdict(row),
            "step": _is_step(row),
            "cells": _cells(ablation, row),
            "change": spans(row.step.key_change if row.step else row.title),
            "change_sort": one_line(row.step.key_change if row.step else row.title).lower(),
        }
        for row in ablation.everything
    ]


def _is_step(row: Row) -> bool:
    return row.step is not None and row.step.parent is not None


def _cell(text: str, sort: float | None, note: str = "", swatch: str = "") -> dict[str, Any]:
    """A cell without a value sorts last whichever way."""
    return {"text": text, "sort": sort, "note": note, "swatch": swatch}


def _cells(ablation: Ablation, row: Row) -> dict[str, dict[str, Any]]:
    ratios = {"baseline": row.over_baseline, "parent": row.over_parent}
    if ablation.reference:
        ratios["reference"] = row.over_reference
    own = {"parent": not _is_step(row)}
    found = {"time": _time(row.warm)}
    found |= {key: _ratio(ratio, nothing=own.get(key, False)) for key, ratio in ratios.items()}
    stalls = [name for name in row.stalls if name != ISSUING]
    top = max(stalls, key=lambda name: row.stalls[name], default="")
    found["stall"] = _cell(top_stall(row), row.stalls.get(top), swatch=top)
    point = row.point
    found["roof"] = _cell(percent(point.share) if point else ABSENT, point.share if point else None)
    occupancy, rate, share = (
        figure(row, name) for name in ("achieved_occupancy", "dram_bandwidth", "dram_pct")
    )
    found["occupancy"] = _cell(number(occupancy), occupancy)
    note = f"{percent(share / 100)} of peak" if share is not None else ""
    found["dram"] = _cell(number(rate), rate, note)
    return found if has_figures(row) else {key: _cell(NONE, None) for key in found}


def _time(found: Time | None) -> dict[str, Any]:
    if found is None:
        return _cell(ABSENT, None)
    note = f"{number(found.low)} to {number(found.high)}"
    return _cell(number(found.median), found.median, note)


def _ratio(found: Ratio | None, *, nothing: bool) -> dict[str, Any]:
    """``nothing`` says that the row has no such ratio by its nature."""
    if found is None:
        return _cell(NONE if nothing else ABSENT, None)
    text = factor(found.ratio)
    if found.low == found.high == found.ratio:
        return _cell(text, found.ratio)
    return _cell(text, found.ratio, interval(found).removeprefix(text).strip())
