"""What every chart of a ladder stands in: title, subtitle, what is drawn, and who is missing."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.judge.rows import Row
from workbench.render.chart.notes import empty, not_drawn
from workbench.render.chart.scene import Item, Scene

Drawn = tuple[list[Item], float]  # and where it ends


def framed(
    drawn: Drawn | str,
    width: float,
    absent: Sequence[Row] = (),
    *,
    name: str,
    title: str,
    subtitle: str,
    alt: str,
    caption: str,
) -> Scene:
    """What is ``drawn``, or in its place the words that say why nothing is; ``absent`` are named at
    the foot.
    """
    items, bottom = empty(drawn, width) if isinstance(drawn, str) else drawn
    foot, height = not_drawn(absent, width, bottom)
    return Scene(
        name=name,
        width=width,
        height=height,
        title=title,
        subtitle=subtitle,
        alt=alt,
        caption=caption,
        items=(*items, *foot),
    )
