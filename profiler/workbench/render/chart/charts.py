"""All charts of a report by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from workbench.judge.ladder import Ablation
from workbench.render.chart.roofline import roofline
from workbench.render.chart.stalls import draw, pair_fills, pairs, stall_time
from workbench.render.chart.svg import Canvas, Drawing
from workbench.render.chart.time_charts import step_times
from workbench.render.document.captions import caption_of
from workbench.render.document.step import step_chart

# What draws each and returns where it ends, its title, and what it is about.
CHARTS: Mapping[str, tuple[Callable[[Canvas, Ablation], float], str, str]] = {
    "times": (step_times, "Time by step", "µs per call, logarithmic"),
    "roofline": (roofline, "Roofline", "required work over the time under ncu"),
    "stall-time": (
        stall_time,
        "Stall time of each step beside its parent",
        "µs under ncu, each pair on the scale of its parent",
    ),
}


def chart(name: str, ablation: Ablation) -> Drawing:
    """Draw one of ``CHARTS``."""
    canvas, (fill, title, about) = Canvas(), CHARTS[name]
    bottom = fill(canvas, ablation)
    captions = caption_of(name, ablation.base)
    return Drawing(name, title, f"{_where(ablation)}; {about}", canvas, bottom, *captions)


def charts(ablation: Ablation) -> list[Drawing]:
    """Draw all; without a roofline where the problem needs no arithmetic."""
    names = [name for name in CHARTS if name != "roofline" or not ablation.moves_only]
    return [chart(name, ablation) for name in names]


def page_charts(ablation: Ablation) -> list[Drawing]:
    """Draw those of the report, with a chart for each step in place of one for all of them."""
    every, drawn = pairs(ablation.rows), charts(ablation)[:-1]
    title, about = "Stall time beside the parent's", f"{_where(ablation)}; µs under ncu"
    for pair in every:
        canvas = Canvas()
        bottom = draw(canvas, [pair], pair_fills(every)) + 6
        sides = (f"{name} {words}" for name, words in zip(pair.names, pair.words, strict=True))
        alt = f"Stall time under ncu: {', '.join(sides)}"
        drawn.append(Drawing(step_chart(pair.variant), title, about, canvas, bottom, alt))
    return drawn


def chart_files(ablation: Ablation) -> dict[str, str]:
    """Return the files of every chart by name."""
    return {name: text for chart in charts(ablation) for name, text in chart.files().items()}


def _where(ablation: Ablation) -> str:
    return f"{ablation.study}, {ablation.shape}, {ablation.gpu}"
