"""All charts of a report by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from workbench.derive.figures import Figure
from workbench.judge.ladder import Ablation
from workbench.render.chart.memory import memory
from workbench.render.chart.roofline import roofline
from workbench.render.chart.stalls import Pair, draw, pair, stall_time
from workbench.render.chart.svg import Drawing
from workbench.render.chart.time_charts import over_sizes, step_times
from workbench.render.document.phrases import SIZES, caption_of, compared, table_size
from workbench.render.document.variant import memory_of, step_chart

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
