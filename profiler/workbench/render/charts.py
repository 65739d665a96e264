"""The charts of a report, as SVG text. Matplotlib is imported only when one is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from workbench.judge.rows import Ablation
from workbench.render import levels_chart, roofline_chart, stall_chart, stall_time_chart
from workbench.render.canvas import svg, swap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Name to its title and to what draws it for a light page.
CHARTS: Mapping[str, tuple[str, Callable[[Ablation], Figure]]] = MappingProxyType(
    {
        "roofline": ("Roofline", roofline_chart.draw),
        "roofline-levels": ("Rooflines by memory level", levels_chart.draw),
        "stalls": ("Warp states", stall_chart.draw),
        "stall-time": ("Time by stall reason", stall_time_chart.draw),
    }
)
# In the order in which the report shows them, the light one of each first.
FILES = tuple(f"{name}-{shade}.svg" for name in CHARTS for shade in ("light", "dark"))


def chart(name: str, ablation: Ablation) -> str:
    """One of ``CHARTS`` for a light page; ``canvas.swap`` makes the dark one."""
    title, draw = CHARTS[name]
    where = f"{ablation.study}, {ablation.shape}, {ablation.gpu}"
    return svg(name, f"{title} of {where}", lambda: draw(ablation))


def chart_files(ablation: Ablation) -> dict[str, str]:
    """Every chart by its file name; each is drawn once, the dark one by swapping colours."""
    light = [chart(name, ablation) for name in CHARTS]
    return dict(zip(FILES, (text for one in light for text in (one, swap(one))), strict=True))
