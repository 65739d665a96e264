"""All charts of a report by name: as files of both themes, and as scenes for a page.

chart_files(ablation, timings)              # file name to SVG text
scene("roofline", ablation, timings, Width.NARROW)
svg.inline(scene), svg.page_style()         # for a page
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from workbench.judge.rows import Ablation
from workbench.render.chart import (
    level_plots,
    memory_flow,
    roofline_plot,
    sample_strips,
    stall_bars,
    svg,
    time_bars,
)
from workbench.render.chart.level_plots import levels
from workbench.render.chart.memory_flow import memory
from workbench.render.chart.roofline_plot import roofline
from workbench.render.chart.sample_strips import Timings, samples
from workbench.render.chart.scene import Scene, Width
from workbench.render.chart.size_lines import size_lines
from workbench.render.chart.stall_bars import stalls
from workbench.render.chart.time_bars import stall_time
from workbench.render.document.sizes import sizes_name

NO_TIMINGS: Timings = MappingProxyType({})


@dataclass(frozen=True)
class Chart:
    """``alt`` says what it shows, for who does not see it, ``caption`` how to read it: both name
    the ``{level}`` of memory that rooflines are over.
    """

    build: Callable[[Ablation, Timings, Width], Scene]
    alt: str
    caption: str


def _timeless(build: Callable[[Ablation, Width], Scene], alt: str, caption: str) -> Chart:
    """A chart that has nothing of the instances behind the times."""
    return Chart(lambda ablation, _, width: build(ablation, width), alt, caption)


CHARTS: Mapping[str, Chart] = MappingProxyType(
    {
        "roofline": _timeless(roofline, roofline_plot.ALT, roofline_plot.CAPTION),
        "roofline-levels": _timeless(levels, level_plots.ALT, level_plots.CAPTION),
        "stalls": _timeless(stalls, stall_bars.ALT, stall_bars.CAPTION),
        "stall-time": _timeless(stall_time, time_bars.ALT, time_bars.CAPTION),
        "memory": _timeless(memory, memory_flow.ALT, memory_flow.CAPTION),
        "samples": Chart(samples, sample_strips.ALT, sample_strips.CAPTION),
    }
)


def told(name: str, ablation: Ablation) -> tuple[str, str]:
    """``alt`` and ``caption`` of one of ``CHARTS``."""
    level = ablation.base.upper()
    return CHARTS[name].alt.format(level=level), CHARTS[name].caption.format(level=level)


# In the order in which the report shows them, the light one of each first.
FILES = tuple(f"{name}-{shade}.svg" for name in CHARTS for shade in ("light", "dark"))


def scene(
    name: str, ablation: Ablation, timings: Timings = NO_TIMINGS, width: Width = Width.WIDE
) -> Scene:
    """One of ``CHARTS``."""
    return CHARTS[name].build(ablation, timings, width)


def size_charts(ablation: Ablation, width: Width = Width.WIDE) -> list[Scene]:
    """One for each range of shapes that is on record: most ladders have none."""
    every = enumerate(ablation.sizes)
    return [size_lines(over, width, sizes_name(number)) for number, over in every]


def chart_files(ablation: Ablation, timings: Timings = NO_TIMINGS) -> dict[str, str]:
    """Every chart of ``FILES`` as SVG text, and those of ranges; each scene is built once for both
    themes.
    """
    texts = [text for name in CHARTS for text in svg.files(scene(name, ablation, timings))]
    files = dict(zip(FILES, texts, strict=True))
    for one in size_charts(ablation):
        files |= zip((f"{one.name}-light.svg", f"{one.name}-dark.svg"), svg.files(one), strict=True)
    return files
