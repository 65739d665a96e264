"""All charts of a report by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from workbench.derive.figures import Figure, added
from workbench.judge.ladder import Ablation
from workbench.render.chart import svg
from workbench.render.chart.roofline import roofline
from workbench.render.chart.stalls import Pair, draw, pair, stall_time
from workbench.render.chart.svg import Drawing
from workbench.render.chart.time_charts import over_sizes, step_times
from workbench.render.document.phrases import SIZES, caption_of, compared, table_size
from workbench.render.document.variant import figure_text, memory_of, step_chart
from workbench.render.numbers import speed

MEMORY = (
    "Bytes between the levels, and over the duration under ncu; an arrow is as wide as its rate."
)
# What draws each and returns where it ends, its title, and what it is about.
CHARTS: Mapping[str, tuple[Callable[..., float], str, str]] = {
    SIZES: (over_sizes, "Time over size", "times at each size, relative to the best variant's"),
    "times": (step_times, "Time by variant", "µs per call, logarithmic"),
    "roofline": (roofline, "Roofline", "required work over the time under ncu"),
    "stall-time": (
        stall_time,
        "Stall time by variant",
        "µs under ncu, each variant beside its parent and on its scale",
    ),
}


def chart(name: str, ablation: Ablation) -> Drawing:
    """Return one of ``CHARTS``."""
    fill, title, about = CHARTS[name]
    captions = caption_of(name, ablation.base)
    filled = partial(fill, ablation=ablation)
    where = f"{ablation.study}, {ablation.gpu}" if name == SIZES else _where(ablation)
    return Drawing(name, title, f"{where}; {about}", filled, *captions)


def charts(ablation: Ablation) -> list[Drawing]:
    """Return all; without a roofline where the problem needs no arithmetic, and without sizes where
    there is one.
    """
    absent = ["roofline"] * ablation.moves_only + [SIZES] * (not ablation.has_sizes)
    return [chart(name, ablation) for name in CHARTS if name not in absent]


def page_charts(ablation: Ablation) -> list[Drawing]:
    """Return those of the report, and the stall time and the memory chart of each step."""
    about, drawn = f"{_where(ablation)}; µs under ncu", charts(ablation)
    for row in ablation.rows:
        if shown := pair(row.against_parent, compared(row, ablation)):
            drawn.append(stall_pair(step_chart(row.variant), about, shown))
        if row.figures:
            drawn.append(memory_chart(memory_of(row.variant), about, {row.variant: row.figures}))
    return drawn


def stall_pair(name: str, about: str, shown: Sequence[Pair]) -> Drawing:
    """Return the stall time of two kernels."""
    alt = f"Stall time under ncu: {', '.join(f'{bar.name} {bar.words}' for bar in shown[0])}"
    return Drawing(name, "Stall time before and after", about, partial(draw, shown=shown), alt)


def memory_chart(name: str, about: str, kernels: Mapping[str, Mapping[str, Figure]]) -> Drawing:
    """Return what kernels move, by their figures."""
    fill, alt = partial(memory, kernels=kernels), f"Memory chart of {' and '.join(kernels)}"
    return Drawing(name, "Memory chart", about, fill, alt, MEMORY)


def chart_files(ablation: Ablation) -> dict[str, str]:
    """Return the files of every chart by name."""
    return {name: text for chart in charts(ablation) for name, text in chart.files().items()}


def _where(ablation: Ablation) -> str:
    return f"{ablation.study}, {table_size(ablation)}, {ablation.gpu}"


Figures = Mapping[str, Figure]
WIDE, BOX, LINK = 455.0, 40.0, 58.0  # of a kernel, of a level, and between two levels
# A level: its row, its first and last quarter, its name, and the figure that is written in it.
LEVELS = (
    (0, 0, 4, "SMs", "warp_instructions", "instructions"),
    (1, 0, 2, "L1", "l1_hit", "hit rate"),
    (1, 2, 4, "Shared memory", "shared_conflicts", "bank conflicts"),
    (2, 0, 4, "L2", "l2_hit", "hit rate"),
    (3, 0, 4, "DRAM", "dram_pct", "throughput"),
)
# An arrow below a row: its quarter, whether data goes up, its words, the figures that it sums,
# and the one that another arrow has.
ARROWS = (
    (0, 0, True, "loads", ("global_read", "local_read"), ""),
    (0, 1, False, "stores", ("global_write", "local_write"), ""),
    (0, 2, True, "load instr.", ("shared_loads",), ""),
    (0, 3, False, "store instr.", ("shared_stores",), ""),
    (1, 0, True, "reads", ("l2_to_l1",), "bulk_read"),
    (1, 1, False, "writes", ("l1_to_l2",), ""),
    (1, 2, True, "TMA reads", ("bulk_read",), ""),
    (2, 0, True, "reads", ("dram_read",), ""),
    (2, 1, False, "writes", ("dram_write",), ""),
)


def memory(canvas: svg.Canvas, kernels: Mapping[str, Figures]) -> float:
    """Draw kernels side by side, on a phone one under the other; return where they end."""
    wide, bottom = min(WIDE, canvas.width), 0.0
    for place, (name, figures) in enumerate(kernels.items()):
        left, top = (0.0, bottom) if canvas.narrow else (place * (WIDE + svg.EDGE), 0.0)
        canvas.name((left + svg.EDGE, top + 16), name, wide - 2 * svg.EDGE)
        bottom = _kernel(canvas, figures, left + svg.EDGE, top + 24, (wide - 2 * svg.EDGE) / 4)
    return bottom


def _kernel(canvas: svg.Canvas, figures: Figures, left: float, top: float, lane: float) -> float:
    for row, first, last, name, key, words in LEVELS:
        y, figure = top + row * (BOX + LINK), figures.get(key)
        box = svg.Box(left + first * lane + 4 * (first > 0), y, left + last * lane, y + BOX)
        canvas.bar(box, "faint")
        canvas.text((box.middle[0], y + 16), name, anchor="middle", bold=True)
        text = f"{words} {figure_text(figure)}"
        canvas.text((box.middle[0], y + 32), text, anchor="middle")
    flows = [(*arrow[:4], _flow(figures, *arrow[4:])) for arrow in ARROWS]
    most = max((rate or 0.0 for *_, (_, rate) in flows), default=0.0)
    for row, quarter, up, words, (text, rate) in flows:
        y, x = top + row * (BOX + LINK) + BOX + 5, left + quarter * lane + 12
        start, end = (y + LINK - 10, y) if up else (y, y + LINK - 10)
        look = svg.Stroke("step", 1.5 + 4 * (rate or 0.0) / (most or 1.0))
        canvas.line(((x, start), (x, end)), look)
        back = end + (7 if up else -7)
        canvas.line(((x - 6, back), (x, end), (x + 6, back)), svg.Stroke("step", 1.5))
        lines = [words, text] if rate is None else [words, text, speed(rate)]
        for line, shown in enumerate(lines):
            canvas.text((x + 11, y + 12 + 16 * line), shown, colour="ink" if line else "muted")
    return top + 4 * BOX + 3 * LINK + 6


def _flow(figures: Figures, keys: tuple[str, ...], other: str) -> tuple[str, float | None]:
    """Return how much an arrow carries, and where that is bytes, TB/s under ncu."""
    moved_figures, time = [figures[key] for key in keys if key in figures], figures.get("duration")
    if not moved_figures or moved_figures[0].unit != "MB":
        return figure_text(moved_figures[0] if moved_figures else None), None
    apart = figures[other].value if other in figures else 0.0
    moved = max(0.0, added(figure.value for figure in moved_figures) - apart)
    text = figure_text(replace(moved_figures[0], value=moved))
    noise = not moved or text.startswith("<") or not (time and time.value)
    return text, None if noise or time is None else moved / time.value
