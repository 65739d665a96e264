"""All charts of a report by name: as files of both themes, and as scenes for a page.

chart_files(ablation)                   # file name to SVG text
scene("roofline", ablation)
svg.inline(scene), svg.page_style()     # for a page
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from workbench.judge.rows import Ablation
from workbench.render.chart import roofline_plot, stall_bars, svg, time_charts
from workbench.render.chart.roofline_plot import roofline
from workbench.render.chart.scene import Scene
from workbench.render.chart.stall_bars import stall_time


@dataclass(frozen=True)
class ReportChart:
    """``alt`` describes the chart for readers who cannot see it, ``caption`` says how to read it.
    Both may name the ``{level}`` of memory under the roofline.
    """

    build: Callable[[Ablation], Scene]
    alt: str
    caption: str


CHARTS: Mapping[str, ReportChart] = MappingProxyType(
    {
        "times": ReportChart(
            time_charts.step_times, time_charts.STEPS_ALT, time_charts.STEPS_CAPTION
        ),
        "roofline": ReportChart(roofline, roofline_plot.ALT, roofline_plot.CAPTION),
        "stall-time": ReportChart(stall_time, stall_bars.ALT, stall_bars.CAPTION),
    }
)


def caption_of(name: str, ablation: Ablation) -> tuple[str, str]:
    """``alt`` and ``caption`` of one of ``CHARTS``."""
    level = ablation.base.upper()
    return CHARTS[name].alt.format(level=level), CHARTS[name].caption.format(level=level)


# In the order in which the report shows them, the light one of each first.
FILES = tuple(f"{name}-{shade}.svg" for name in CHARTS for shade in ("light", "dark"))


def scene(name: str, ablation: Ablation) -> Scene:
    """One of ``CHARTS``."""
    alt, caption = caption_of(name, ablation)
    return replace(CHARTS[name].build(ablation), alt=alt, caption=caption)


def scenes(ablation: Ablation) -> list[Scene]:
    """All of ``CHARTS``; without a roofline where the problem needs no arithmetic."""
    names = [name for name in CHARTS if name != "roofline" or not ablation.moves_only]
    return [scene(name, ablation) for name in names]


def page_scenes(ablation: Ablation) -> list[Scene]:
    """Those of the report, with a chart for each step in place of one for all of them."""
    shared = [one for one in scenes(ablation) if one.name != "stall-time"]
    return [*shared, *stall_bars.step_stalls(ablation)]


def chart_files(ablation: Ablation) -> dict[str, str]:
    """Every chart of ``FILES`` as SVG text. Both themes share one scene."""
    return {
        f"{one.name}-{shade}.svg": text
        for one in scenes(ablation)
        for shade, text in zip(("light", "dark"), svg.files(one), strict=True)
    }
