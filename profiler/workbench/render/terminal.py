"""One variant on a terminal, as valid Markdown."""

from __future__ import annotations

import math

from workbench.derive.figures import stall_label
from workbench.judge.bottlenecks import Bottleneck
from workbench.judge.rows import Ablation, Row
from workbench.render.tables import interval, markdown_table, number, ratio, verdict
from workbench.render.why import account
from workbench.words import Status

SHOWN = (
    "duration",
    "sm_clock",
    "dram_bandwidth",
    "dram_pct",
    "l2_hit",
    "l1_hit",
    "achieved_occupancy",
    "theoretical_occupancy",
    "sm_active",
    "warps_per_scheduler",
    "issue_active",
    "warp_instructions",
    "tensor_pipe",
    "fma_pipe",
    "sectors_per_request",
    "shared_conflicts",
    "registers",
    "shared_memory",
    "grid",
    "block",
)
STALLS_SHOWN = 5


def first_line(found: Ablation) -> str:
    """Where the figures come from: the first thing a reader must know."""
    ncu = found.environment.ncu
    shape = " ".join(f"{k}={v}" for k, v in found.parameters.items())
    return (
        f"{found.source} evidence: {found.gpu}, {found.date or 'no date'}, ncu {ncu}; "
        f"{found.study} at {found.shape} ({shape})"
    )


def place(found: Bottleneck) -> str:
    line = found.hot_line
    if line is None:
        return ""
    return f"{line.file.rsplit('/', 1)[-1]}:{line.line} ({line.share:.0%} of {line.counter})"


def bottleneck_line(found: Bottleneck) -> str:
    estimate = (
        f"NVIDIA estimates {found.estimated_speedup_pct:.0f} % ({found.scope})"
        if math.isfinite(found.estimated_speedup_pct)
        else "no estimate"
    )
    value = f" = {number(found.value)}" if math.isfinite(found.value) else ""
    where = f"; hottest line {place(found)}" if found.hot_line else ""
    return f"{found.title}: {found.metric}{value}; {estimate}{where}"


def timing_table(row: Row, reference: str) -> str:
    rows = [
        [mode, number(t.median), f"{number(t.low)} to {number(t.high)}", str(t.samples)]
        if t
        else [mode, "not collected", "", ""]
        for mode, t in (("warm", row.warm), ("cold", row.cold))
    ]
    return markdown_table(["mode", "median µs", "95 % of samples", "samples"], rows, "lrrr")


def variant(row: Row, found: Ablation) -> str:
    """All of a variant: time, figures with their metrics, stalls and bottlenecks."""
    change = row.step.key_change if row.step else row.title
    parts = [f"## {row.label}: {change}"]
    if row.problem:
        parts.append(f"{row.status}: {row.problem}")
        if row.status not in (Status.CURRENT, Status.ADOPTED):
            return "\n\n".join(parts)
    parts.append(timing_table(row, found.reference))
    ratios = [f"vs {found.reference}: {interval(row.over_reference)}"] if found.reference else []
    if row.step is not None and row.step.parent:
        ratios.append(f"vs {row.step.parent} (parent): {interval(row.over_parent)}")
        if row.step.parent != found.rows[0].variant:
            ratios.append(f"vs {found.rows[0].variant}: {ratio(row.over_baseline)}")
    if ratios:
        parts.append("\n".join(f"- {text}" for text in ratios))
    if not row.figures:
        parts.append("profile: not collected")
    else:
        figures = [row.figures[key] for key in SHOWN if key in row.figures]
        rows = [[f.label, number(f.value), f.unit, f.metric] for f in figures]
        missing = [key for key in SHOWN if key not in row.figures]
        rows += [[key, "not collected", "", ""] for key in missing]
        parts.append(markdown_table(["figure", "value", "unit", "ncu metric"], rows, "lrll"))
        parts.append(f"occupancy limited by: {', '.join(row.limiters) or 'not collected'}")
        stalls = [(r, s) for r, s in row.stalls.items() if r != "selected"][:STALLS_SHOWN]
        parts.append(
            markdown_table(
                ["stall reason", "share of samples"],
                [[stall_label(reason), f"{share:.1%}"] for reason, share in stalls],
                "lr",
            )
        )
        if row.bottlenecks:
            lines = [f"{i}. {bottleneck_line(b)}" for i, b in enumerate(row.bottlenecks, start=1)]
            parts.append("Top bottlenecks:\n\n" + "\n".join(lines))
    if row.against_parent:
        parts += account(row.against_parent)
    for gate in row.gates:
        word = {True: "passed", False: "failed", None: "open"}[gate.passed]
        parts.append(f"gate {gate.name}: {word} ({gate.why})")
    if row.verdict and row.step is not None and row.step.parent:
        parts.append(f"verdict: {verdict(row)}")
    return "\n\n".join(parts)
