"""The figures of two captures side by side, as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.derive.figures import ISSUING, Figure, stall_label
from workbench.judge.ablation import figure_label
from workbench.render.tables import ABSENT, NONE, factor, markdown_table, number, percent

SHOWN = ("duration", "sm_clock", "warp_instructions", "issue_active", "sm_active",
         "warps_per_scheduler", "achieved_occupancy", "theoretical_occupancy", "registers",
         "shared_memory", "grid", "block", "memory_pct", "compute_pct", "dram_read", "dram_write",
         "dram_bandwidth",
         "dram_pct", "l2_hit", "l1_hit", "sectors_per_request", "shared_conflicts", "tensor_pipe",
         "fma_pipe", "local_loads")  # fmt: skip
STALLS = 6
Figures = Mapping[str, Figure]


def figure_table(names: tuple[str, str], before: Figures, after: Figures) -> str:
    """One row per figure; one that neither capture has is "not collected" on both sides."""
    rows = []
    for key in SHOWN:
        was, came = before.get(key), after.get(key)
        label, unit = figure_label(key)
        times = NONE
        if was and came and was.value and came.value:
            times = factor(came.value / was.value)
        rows.append([f"{label} ({unit})", number(was.value if was else None),
                     number(came.value if came else None), times])  # fmt: skip
    return markdown_table(["figure", *names, "factor"], rows, "lrrr")


def stalls_of(figures: Figures) -> dict[str, float]:
    """Stall reason to its share of all samples, 0 to 1; ``selected`` among them."""
    return {k.removeprefix("stall."): f.value / 100 for k, f in figures.items()
            if k.startswith("stall.")}  # fmt: skip


def stall_table(names: tuple[str, str], before: Figures, after: Figures) -> str:
    """The reasons with the most time on either side, in microseconds and shares of the samples."""
    sides = [(stalls_of(found), found.get("duration")) for found in (before, after)]
    reasons = {reason for stalls, _ in sides for reason in stalls if reason != ISSUING}

    def time(reason: str) -> float:
        return max(s.get(reason, 0.0) * (d.value if d else 1.0) for s, d in sides)

    kept = [ISSUING, *sorted(reasons, key=lambda reason: (-time(reason), reason))[:STALLS]]
    rows = [[stall_label(reason), *(_stall(stalls, duration, reason) for stalls, duration in sides)]
            for reason in kept]  # fmt: skip
    return markdown_table(["warp state", *names], rows, "lrr")


def _stall(stalls: Mapping[str, float], duration: Figure | None, reason: str) -> str:
    if not stalls:
        return ABSENT
    share = stalls.get(reason, 0.0)
    time = f" ({number(share * duration.value)} µs)" if duration else ""
    return percent(share) + time
