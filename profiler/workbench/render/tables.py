"""Numbers as people read them, and tables that are valid Markdown on a terminal and on GitHub."""

from __future__ import annotations

import math

from workbench.derive.figures import ISSUING, stall_label
from workbench.derive.speedup import Ratio
from workbench.judge.rows import Ablation, Row
from workbench.render.old_markdown import authored, literal, shorten
from workbench.words import ABSENT, NONE, Status, Verdict

REASON_WIDTH = 60
KEY_CHANGE_WIDTH = 120


def number(x: float | None, digits: int = 3) -> str:
    """To ``digits`` significant digits, whole above them, without an exponent where one can do."""
    if x is None or not math.isfinite(x):
        return ABSENT
    if x == 0:
        return "0"
    if not 1e-4 <= abs(x) < 1e9:
        return f"{x:.{digits - 1}e}"
    rounded = float(f"{x:.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{x:,.0f}" if abs(x) >= 1e4 else f"{x:.{decimals}f}"


def percent(share: float | None) -> str:
    """A share as percent; what is not nothing is not shown as nothing."""
    if share is None or not math.isfinite(share):
        return ABSENT
    value = 100 * share
    if 0 < abs(value) < 0.1:
        return f"{number(value, 2)} %"
    return f"{value:.1f} %" if abs(value) < 10 else f"{value:.0f} %"


def factor(x: float) -> str:
    """``2.91x``; two decimals near one, where they decide."""
    return f"{number(x, 3)}x" if x < 100 else f"{x:,.0f}x"


def ratio(found: Ratio | None) -> str:
    return factor(found.ratio) if found else ABSENT


def interval(found: Ratio | None) -> str:
    """``2.91x [2.88, 2.95]``: the median and its 95 % interval."""
    if found is None:
        return ABSENT
    ends = (factor(end).removesuffix("x") for end in (found.low, found.high))
    return f"{factor(found.ratio)} [{', '.join(ends)}]"


def figure(row: Row, name: str) -> float | None:
    found = row.figures.get(name)
    return found.value if found else None


def top_stall(row: Row) -> str:
    """The largest stall reason and its share of all samples; issuing is no stall."""
    stalls = ((reason, share) for reason, share in row.stalls.items() if reason != ISSUING)
    found = max(stalls, key=lambda item: item[1], default=None)
    return f"{stall_label(found[0])} {percent(found[1])}" if found else ABSENT


def escape_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def markdown_table(header: list[str], rows: list[list[str]], align: str) -> str:
    """A GFM table with its columns lined up; ``align`` has an ``l`` or ``r`` per column."""
    cells = [[escape_cell(cell) for cell in row] for row in [header, *rows]]
    widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
    sides = [side for _, side in zip(header, align, strict=True)]
    lines = [
        "| "
        + " | ".join(
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(row, widths, sides, strict=True)
        )
        + " |"
        for row in cells
    ]
    rules = [
        "-" * (w - 1) + ":" if s == "r" else "-" * w for w, s in zip(widths, sides, strict=True)
    ]
    lines.insert(1, "| " + " | ".join(rules) + " |")
    return "\n".join(lines)


def reason(row: Row) -> str:
    """Why a row has no figures, in one short phrase of plain text."""
    if row.status == Status.MISSING:
        return "not measured"
    if row.status == Status.FAILED:
        return shorten(f"failed: {row.problem}", REASON_WIDTH)
    return row.status if row.status != Status.CURRENT else ABSENT


def verdict(row: Row) -> str:
    """The verdict, or what stands in its place, in plain text."""
    if row.status == Status.ADOPTED:
        return "adopted, not timed"
    if row.status != Status.CURRENT:
        return reason(row)
    if row.is_reference:
        return "reference"
    return f"{row.verdict} at {row.judged_at}" if row.judged_at else str(row.verdict or "")


def has_figures(row: Row) -> bool:
    return row.status in (Status.CURRENT, Status.ADOPTED)


def key_change(row: Row) -> str:
    return authored(shorten(row.step.key_change if row.step else row.title, KEY_CHANGE_WIDTH))


def _bandwidth(row: Row) -> str:
    rate, share = figure(row, "dram_bandwidth"), figure(row, "dram_pct")
    if rate is None:
        return ABSENT
    return f"{number(rate)} ({percent(share / 100) if share is not None else ABSENT})"


def _cells(row: Row) -> list[str]:
    first = row.verdict == Verdict.BASELINE or row.is_reference
    return [
        number(row.warm.median if row.warm else None),
        ratio(row.over_baseline),
        NONE if first else interval(row.over_parent),
        ratio(row.over_reference),
        _bandwidth(row),
        number(figure(row, "achieved_occupancy")),
        top_stall(row),
    ]


def ablation_table(ablation: Ablation) -> str:
    """The ladder in order, then the references; a row without current evidence says why."""
    header = [
        "version",
        "time, warm (µs)",
        "vs baseline",
        "vs parent [95 % interval]",
        f"vs {ablation.reference}",
        "DRAM GB/s (% of peak)",
        "occupancy %",
        "top stall",
        "key change",
        "verdict",
    ]
    rows = []
    for row in ablation.everything:
        cells = _cells(row) if has_figures(row) else [NONE] * 7
        rows.append([row.variant, *cells, key_change(row), literal(verdict(row))])
    align = "lrrrrrrlll"
    if not ablation.reference:
        at = header.index("vs ")
        header, rows = header[:at] + header[at + 1 :], [r[:at] + r[at + 1 :] for r in rows]
        align = align[:at] + align[at + 1 :]
    return markdown_table(header, rows, align)
