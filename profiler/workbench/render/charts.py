"""The charts of a report, as SVG text. Matplotlib is imported only when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from workbench.judge.ablation import Ablation

# File name to (chart, dark).
FILES: Mapping[str, tuple[str, bool]] = MappingProxyType({
    "roofline-light.svg": ("roofline", False),
    "roofline-dark.svg": ("roofline", True),
    "roofline-levels-light.svg": ("roofline-levels", False),
    "roofline-levels-dark.svg": ("roofline-levels", True),
    "stalls-light.svg": ("stalls", False),
    "stalls-dark.svg": ("stalls", True),
    "stall-time-light.svg": ("stall-time", False),
    "stall-time-dark.svg": ("stall-time", True),
})  # fmt: skip


def roofline_svg(ablation: Ablation, dark: bool = False) -> str:
    from workbench.render.canvas import svg
    from workbench.render.roofline_chart import draw

    title = f"Roofline of {ablation.study}, {ablation.shape}, {ablation.gpu}"
    return svg("roofline", title, dark, lambda: draw(ablation))


def stalls_svg(ablation: Ablation, dark: bool = False) -> str:
    from workbench.render.canvas import svg
    from workbench.render.stall_chart import draw

    title = f"Warp states of {ablation.study}, {ablation.shape}, {ablation.gpu}"
    return svg("stalls", title, dark, lambda: draw(ablation))


def levels_svg(ablation: Ablation, dark: bool = False) -> str:
    from workbench.render.canvas import svg
    from workbench.render.levels_chart import draw

    title = f"Rooflines by memory level of {ablation.study}, {ablation.shape}, {ablation.gpu}"
    return svg("roofline-levels", title, dark, lambda: draw(ablation))


def stall_time_svg(ablation: Ablation, dark: bool = False) -> str:
    from workbench.render.canvas import svg
    from workbench.render.stall_time_chart import draw

    title = f"Time by stall reason of {ablation.study}, {ablation.shape}, {ablation.gpu}"
    return svg("stall-time", title, dark, lambda: draw(ablation))


def chart_files(ablation: Ablation) -> dict[str, str]:
    """Every chart by its file name; each is drawn once, the dark one by swapping colours."""
    from workbench.render.canvas import swap

    light = {
        "roofline": roofline_svg(ablation), "roofline-levels": levels_svg(ablation),
        "stalls": stalls_svg(ablation), "stall-time": stall_time_svg(ablation),
    }  # fmt: skip
    return {
        name: swap(light[chart]) if dark else light[chart] for name, (chart, dark) in FILES.items()
    }
