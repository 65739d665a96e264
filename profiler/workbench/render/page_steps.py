"""The page's parts about one step or one variant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.derive.heat import Heat
from workbench.judge.ablation import Ablation, Row
from workbench.judge.bottlenecks import Bottleneck
from workbench.judge.verdict import BASELINE, Outcome
from workbench.load.evidence import CURRENT
from workbench.render import narrative, sections
from workbench.render.markdown import shorten
from workbench.render.moves import moved
from workbench.render.page_ladder import word
from workbench.render.page_roofline import kind
from workbench.render.page_sources import Sources, code_first
from workbench.render.spans import paragraphs, spans
from workbench.render.tables import ABSENT, NONE, factor, interval, number, percent, reason

LIBRARY = 0.995  # of the samples on no known line: the kernel came without line information
WORTH_SAYING = 0.005


def steps(ablation: Ablation, sources: Sources) -> list[dict[str, Any]]:
    known = {row.variant: row for row in ablation.rows}
    return [
        _step(row, known.get(row.step.parent or ""), sources)
        for row in ablation.rows
        if row.step and row.verdict != BASELINE
    ]


def _step(row: Row, parent: Row | None, sources: Sources) -> dict[str, Any]:
    step = row.step
    assert step is not None
    current = row.status == CURRENT
    return {
        "variant": row.variant, "parent": step.parent, "kind": kind(row), "word": word(row),
        "change": spans(step.key_change),
        "time": narrative.microseconds(row) if current else "",
        "over_parent": interval(row.over_parent) if current else "",
        "why_absent": "" if current else reason(row),
        "bottleneck": paragraphs(step.bottleneck), "rationale": paragraphs(step.rationale),
        "lesson": paragraphs(step.lesson),
        "predicted": bool(step.predictions),
        "predictions": [_prediction(outcome) for outcome in row.predictions],
        "gates": [{"name": g.name, "why": g.why,
                   "result": {True: "passed", False: "failed", None: "open"}[g.passed]}
                  for g in row.gates],
        "moves": _moves(row, parent),
        "limits": bottleneck(row.bottlenecks[0]) if row.bottlenecks else None,
        "diff": bool(sources.pairs(step.parent, row.variant)) if step.parent else False,
    }  # fmt: skip


def _prediction(found: Outcome) -> dict[str, str]:
    return {"label": found.label, "unit": found.unit, "expected": found.expected,
            "before": number(found.before), "after": number(found.after),
            "factor": factor(found.after / found.before)
            if found.before and found.after is not None else NONE,
            "result": found.result}  # fmt: skip


def _moves(row: Row, parent: Row | None) -> list[dict[str, str]]:
    """What moved, with the metric behind it."""
    if parent is None:
        return []
    metrics = {f.label: f.metric for each in (parent, row) for f in each.figures.values()}
    found = []
    for move in moved(parent.figures, row.figures):
        times = move.factor
        found.append({"label": move.label, "unit": move.unit, "before": number(move.before),
                      "after": number(move.after), "metric": metrics.get(move.label, ""),
                      "factor": factor(times) if times is not None else NONE})  # fmt: skip
    return found


def bottleneck(found: Bottleneck) -> dict[str, Any]:
    return {
        "title": found.title, "estimate": spans(sections.estimate(found)),
        "evidence": spans(sections.evidence(found)), "line": spans(sections.hot_line(found)),
        "message": shorten(found.message, sections.MESSAGE_WIDTH) if found.message else ABSENT,
    }  # fmt: skip


def variants(ablation: Ablation, sources: Sources) -> list[dict[str, Any]]:
    """What is known of each variant by itself: kernels, limits, every figure, its files."""
    return [
        {
            "variant": row.variant, "kind": kind(row), "word": word(row),
            "change": spans(row.step.key_change if row.step else row.title),
            "step": row.step is not None and row.step.parent is not None,
            "why_absent": reason(row) if row.status != CURRENT else "",
            "kernels": [shorten(name, sections.KERNEL_WIDTH) for name in row.kernels],
            "capture": row.capture or ABSENT,
            "bottlenecks": [bottleneck(b) for b in row.bottlenecks],
            "figures": [{"label": f.label, "value": number(f.value), "unit": f.unit,
                         "metric": f.metric} for f in row.figures.values()],
            "times": [{"label": f"Time, {t.mode}", "value": number(t.median),
                       "note": f"{number(t.low)} to {number(t.high)}, {t.samples} samples"}
                      for t in (row.warm, row.cold) if t],
            "files": code_first(file.key for file in sources.files.get(row.variant, ())),
            "heat_note": heat_note(row, sources),
        }
        for row in ablation.everything
    ]  # fmt: skip


def heat_note(row: Row, sources: Sources) -> str:
    """Which part of the stall samples the shown lines do not account for, and why."""
    if not row.capture:
        return f"Stall samples by line: {ABSENT}."
    heat = sources.heat.get(row.variant)
    if heat is None:
        return f"Stall samples by line: {ABSENT} in this capture."
    if heat.unknown >= LIBRARY:
        return "The kernel came without source lines, as library kernels do."
    shown = {file.virtual for file in sources.files.get(row.variant, ())}
    parts = [f"{percent(share)} on lines of {name.rsplit('/', 1)[-1]}"
             for name, share in _others(heat, shown).items()]  # fmt: skip
    if heat.unknown >= WORTH_SAYING:
        parts.append(f"{percent(heat.unknown)} on no known line")
    return f"Of the stall samples, {' and '.join(parts)}, not shown here." if parts else ""


def _others(heat: Heat, shown: set[str]) -> Mapping[str, float]:
    shares = {name: heat.share(name) for name in heat.files if name not in shown}
    return {name: share for name, share in shares.items() if share >= WORTH_SAYING}
