"""All charts of a report by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from workbench.judge.ladder import Ablation
from workbench.render.chart.roofline import roofline
from workbench.render.chart.stalls import Pair, draw, pair, stall_time
from workbench.render.chart.svg import Drawing
from workbench.render.chart.time_charts import step_times
from workbench.render.document.captions import caption_of
from workbench.render.document.step import step_chart

# What draws each and returns where it ends, its title, and what it is about.
CHARTS: Mapping[str, tuple[Callable[..., float], str, str]] = {
    "times": (step_times, "Time by step", "µs per call, logarithmic"),
    "roofline": (roofline, "Roofline", "required work over the time under ncu"),
    "stall-time": (
        stall_time,
        "Stall time by step",
        "µs under ncu, each step beside its parent and on its scale",
    ),
}


def chart(name: str, ablation: Ablation) -> Drawing:
    """Return one of ``CHARTS``."""
    fill, title, about = CHARTS[name]
    captions = caption_of(name, ablation.base)
    filled = partial(fill, ablation=ablation)
    return Drawing(name, title, f"{_where(ablation)}; {about}", filled, *captions)


def charts(ablation: Ablation) -> list[Drawing]:
    """Return all; without a roofline where the problem needs no arithmetic."""
    names = [name for name in CHARTS if name != "roofline" or not ablation.moves_only]
    return [chart(name, ablation) for name in names]


def page_charts(ablation: Ablation) -> list[Drawing]:
    """Return those of the report, and the stall time of each step."""
    about, drawn = f"{_where(ablation)}; µs under ncu", charts(ablation)
    for row in ablation.rows:
        if shown := pair(row.against_parent):
            drawn.append(stall_pair(step_chart(row.variant), about, shown))
    return drawn


def stall_pair(name: str, about: str, shown: Sequence[Pair]) -> Drawing:
    """Return the stall time of two kernels."""
    sides = (f"{name} {words}" for name, words in zip(shown[0].names, shown[0].words, strict=True))
    alt = f"Stall time under ncu: {', '.join(sides)}"
    return Drawing(name, "Stall time before and after", about, partial(draw, shown=shown), alt)


def chart_files(ablation: Ablation) -> dict[str, str]:
    """Return the files of every chart by name."""
    return {name: text for chart in charts(ablation) for name, text in chart.files().items()}


def _where(ablation: Ablation) -> str:
    return f"{ablation.study}, {ablation.shape}, {ablation.gpu}"
