"""The page's parts about one step or one variant."""

from __future__ import annotations

from typing import Any

from workbench.derive.diff.model import Profiled, SourceDiff, Sources, base
from workbench.judge.bottlenecks import Bottleneck
from workbench.judge.predictions import PredictionOutcome
from workbench.judge.rows import Ablation, Row
from workbench.render import hunks, narrative, page_why, sections
from workbench.render.markdown import shorten
from workbench.render.page_roofline import kind
from workbench.render.page_sources import Files
from workbench.render.page_stalls import reasons
from workbench.render.spans import paragraphs, spans
from workbench.render.tables import factor, has_figures, interval, number, percent, reason, verdict
from workbench.study.model import Step
from workbench.words import ABSENT, NONE, Status, Verdict

WORTH_SAYING = 0.005


def steps(ablation: Ablation, sources: Sources) -> list[dict[str, Any]]:
    shown = [entry["key"] for entry in reasons(ablation)]
    return [
        _step(row, row.step, sources.diffs.get(row.variant), shown)
        for row in ablation.rows
        if row.step and row.verdict != Verdict.BASELINE
    ]


def _step(row: Row, step: Step, diff: SourceDiff | None, shown: list[str]) -> dict[str, Any]:
    current = row.status == Status.CURRENT
    return {
        "variant": row.variant,
        "label": row.label,
        "parent": step.parent,
        "kind": kind(row),
        "word": verdict(row),
        "change": spans(step.key_change),
        "time": narrative.microseconds(row) if current else "",
        "over_parent": interval(row.over_parent) if current else "",
        "decision": spans(narrative.decision(row)) if current and row.judged_at else [],
        "at": row.judged_at,
        "compared_at": row.compared_at,
        "why_absent": "" if current else reason(row),
        "bottleneck": paragraphs(step.bottleneck),
        "rationale": paragraphs(step.rationale),
        "lesson": paragraphs(step.lesson),
        "predicted": bool(step.predictions),
        "predictions": [_prediction(outcome) for outcome in row.predictions],
        "gates": [
            {
                "name": g.name,
                "why": g.why,
                "result": {True: "passed", False: "failed", None: "open"}[g.passed],
            }
            for g in row.gates
        ],
        "why": page_why.account(row.against_parent, shown) if row.against_parent else None,
        "limits": bottleneck(row.limits[0]) if row.limits else None,
        "lines": _lines(diff, (step.parent or "", row.variant)) if diff else None,
        "diff": diff is not None and bool(diff.hunks),
        "same": diff is not None and diff.is_same,
    }


def _lines(found: SourceDiff, names: tuple[str, str]) -> dict[str, Any]:
    """What the changed lines cost, or why that is not known."""
    header, rows = hunks.hunk_rows(found) if found.has_costs else ([], [])
    return {
        "absent": hunks.absences(found, names),
        "header": header,
        "rows": rows,
        "moved": hunks.moved_lines(found),
        "shifts": [spans(line) for line in hunks.shift_lines(found)],
    }


def _prediction(found: PredictionOutcome) -> dict[str, str]:
    return {
        "label": found.label,
        "unit": found.unit,
        "expected": found.expected,
        "before": number(found.before),
        "after": number(found.after),
        "factor": factor(found.after / found.before)
        if found.before and found.after is not None
        else NONE,
        "result": found.result,
    }


def bottleneck(found: Bottleneck) -> dict[str, Any]:
    return {
        "title": found.title,
        "estimate": spans(sections.estimate(found)),
        "evidence": spans(sections.evidence(found)),
        "line": spans(sections.hot_line(found)),
        "message": shorten(found.message, sections.MESSAGE_WIDTH) if found.message else ABSENT,
    }


def variants(ablation: Ablation, sources: Sources, files: Files) -> list[dict[str, Any]]:
    """What is known of each variant by itself: kernels, limits, every figure, its files."""
    return [
        {
            "variant": row.variant,
            "label": row.label,
            "kind": kind(row),
            "word": verdict(row),
            "change": spans(row.step.key_change if row.step else row.title),
            "step": row.step is not None and row.step.parent is not None,
            "why_absent": "" if has_figures(row) else reason(row),
            "kernels": [shorten(name, sections.KERNEL_WIDTH) for name in row.kernels],
            "capture": row.capture or ABSENT,
            "adopted": row.adopted.file if row.adopted else "",
            "bottlenecks": [bottleneck(b) for b in row.bottlenecks],
            "figures": [
                {"label": f.label, "value": number(f.value), "unit": f.unit, "metric": f.metric}
                for f in row.figures.values()
            ],
            "times": [
                {
                    "label": f"Time, {t.mode}",
                    "value": number(t.median),
                    "note": f"{number(t.low)} to {number(t.high)}, {t.samples} samples",
                }
                for t in (row.warm, row.cold)
                if t
            ],
            "files": [key for _, key in files.of(row.variant)],
            "heat_note": heat_note(sources.sides.get(row.variant), files.of(row.variant)),
        }
        for row in ablation.everything
    ]


def heat_note(side: Profiled | None, shown: list[tuple[str, str]]) -> str:
    """Which part of the samples the shown lines do not account for, or why nothing is known."""
    if side is None or side.costs is None:
        why = f": {side.why}" if side and side.why else ""
        return f"Costs by line are {ABSENT}{why}."
    names = {name for name, _ in shown}
    parts = [
        f"{percent(cost.share)} on {f'lines of {base(file)}' if file else 'no known line'}"
        for file, cost in side.costs.by_file().items()
        if file not in names and (cost.share or 0.0) >= WORTH_SAYING
    ]
    return f"Of all samples, {' and '.join(parts)}, not shown here." if parts else ""
