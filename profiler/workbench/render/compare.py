"""The figures of two captures side by side, as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workbench.derive.figures import Figure, figure_label
from workbench.render.tables import factor, markdown_table, number
from workbench.words import ABSENT, NONE

SHOWN = (
    "duration",
    "sm_clock",
    "warp_instructions",
    "issue_active",
    "sm_active",
    "warps_per_scheduler",
    "achieved_occupancy",
    "theoretical_occupancy",
    "registers",
    "shared_memory",
    "grid",
    "block",
    "memory_pct",
    "compute_pct",
    "dram_read",
    "dram_write",
    "dram_bandwidth",
    "dram_pct",
    "l2_hit",
    "l1_hit",
    "sectors_per_request",
    "shared_conflicts",
    "tensor_pipe",
    "fma_pipe",
    "local_loads",
)
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
        rows.append(
            [
                f"{label} ({unit})",
                number(was.value if was else None),
                number(came.value if came else None),
                times,
            ]
        )
    return markdown_table(["figure", *names, "factor"], rows, "lrrr")


def limiters(names: tuple[str, str], before: Sequence[str], after: Sequence[str]) -> str:
    """What limits the occupancy on either side, as one sentence."""
    was, came = (", ".join(found) or ABSENT for found in (before, after))
    return f"occupancy limited by: {names[0]} {was}; {names[1]} {came}"
