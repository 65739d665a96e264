"""All charts of a report by name: as files of both themes, and as scenes for a page.

chart_files(ablation, timings)              # file name to SVG text
scene("roofline", ablation, timings, Width.NARROW)
svg.inline(scene), svg.page_style()         # for a page
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from workbench.judge.rows import Ablation
from workbench.render.chart import svg
from workbench.render.chart.level_plots import levels
from workbench.render.chart.roofline_plot import roofline
from workbench.render.chart.sample_strips import Timings, samples
from workbench.render.chart.scene import Scene, Width
from workbench.render.chart.stall_bars import stalls
from workbench.render.chart.time_bars import stall_time

NO_TIMINGS: Timings = MappingProxyType({})

BUILDERS: Mapping[str, Callable[[Ablation, Timings, Width], Scene]] = MappingProxyType(
    {
        "roofline": lambda ablation, _, width: roofline(ablation, width),
        "roofline-levels": lambda ablation, _, width: levels(ablation, width),
        "stalls": lambda ablation, _, width: stalls(ablation, width),
        "stall-time": lambda ablation, _, width: stall_time(ablation, width),
        "samples": samples,
    }
)
CHARTS = tuple(BUILDERS)
# In the order in which the report shows them, the light one of each first.
FILES = tuple(f"{name}-{shade}.svg" for name in CHARTS for shade in ("light", "dark"))


def scene(
    name: str, ablation: Ablation, timings: Timings = NO_TIMINGS, width: Width = Width.WIDE
) -> Scene:
    """One of ``CHARTS``."""
    return BUILDERS[name](ablation, timings, width)


def chart_files(ablation: Ablation, timings: Timings = NO_TIMINGS) -> dict[str, str]:
    """Every chart of ``FILES`` as SVG text; each scene is built once for both themes."""
    texts = [text for name in CHARTS for text in svg.files(scene(name, ablation, timings))]
    return dict(zip(FILES, texts, strict=True))
