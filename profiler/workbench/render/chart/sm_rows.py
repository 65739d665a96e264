"""SMs by time: how many warps of a call each SM had, a variant beside its parent on one axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import groupby

from workbench.derive.timeline import CallTimeline
from workbench.render.chart import svg
from workbench.render.document.warp_times import CAPTION
from workbench.render.numbers import microseconds
from workbench.words import grouped

HEIGHT, THICKEST = 200.0, 6  # of all SMs, about, and of one
STEP = 2.0  # pixels of the time axis that share one mean
SHADES = ("sky", "blue", "purple")  # up to a third of the warps, two thirds, more


def timeline_chart(name: str, about: str, sides: Mapping[str, CallTimeline]) -> svg.Drawing:
    """Return the timelines of calls by name, one under the other."""
    spans = [f"{side} {microseconds(call.span_us)}" for side, call in sides.items()]
    alt, fill = f"Warps on each SM over time: {', '.join(spans)}", partial(draw, sides=sides)
    return svg.Drawing(name, alt, CAPTION, "Timeline of the warps", about, fill)


def draw(canvas: svg.Canvas, sides: Mapping[str, CallTimeline]) -> float:
    """Draw them; return where they end."""
    axis = svg.Linear(max(call.span_us for call in sides.values()), svg.EDGE, canvas.right)
    bins = {name: list(binned(call, axis)) for name, call in sides.items()}
    most = max(max(row) for rows in bins.values() for row in rows)
    levels = [(f"up to {round(most * n / 3)} warps", shade) for n, shade in enumerate(SHADES, 1)]
    top = canvas.legend(levels, 0)
    for name, call in sides.items():
        rows = bins[name]
        thick, wide = min(max(round(HEIGHT / len(rows)), 1), THICKEST), axis.high / len(rows[0])
        title = f"{name}: {microseconds(call.span_us)}, {len(rows)} SMs"
        canvas.name((svg.EDGE, top + 16), title, canvas.right - svg.EDGE)
        top += 24
        bottom = top + thick * len(rows)
        ticks = [(tick, f"{tick:g} µs") for tick in axis.ticks(4 if canvas.narrow else 10)]
        canvas.ticks(axis, ticks, top, bottom)
        strips: list[tuple[str, tuple[float, float, float]]] = []
        for row, warps in enumerate(rows):
            shown = [SHADES[min(2, int(2.999 * n / most))] if n else "" for n in warps]
            first = 0
            for shade, run in groupby(shown):
                last = first + len(list(run))
                if shade:
                    ends = axis.at(first * wide), axis.at(last * wide)
                    strips.append((shade, (*ends, top + thick * (row + 0.5))))
                first = last
        for shade, drawn in grouped(strips).items():
            canvas.strips(drawn, svg.Stroke(shade, thick))
        top = bottom + 26
    return top


def binned(call: CallTimeline, axis: svg.Linear) -> Iterator[list[float]]:
    """The mean number of warps in each stretch of the axis, for each SM; the last to end first."""
    import numpy as np  # here, as every report imports this module

    rows = []
    for one in call.launches:
        launch, us = one.launch, one.launch.tick_ns / 1000
        for sm, start, life in zip(launch.sms, launch.starts, launch.lives, strict=True):
            begin = us * (launch.begin + start)
            rows.append((sm, (begin, begin + us * life, launch.warps)))
    count = max(1, round((axis.end - axis.start) / STEP))
    edges = np.linspace(0.0, axis.high, count + 1)
    for blocks in sorted(grouped(rows).values(), key=lambda sm: -max(end for _, end, _ in sm)):
        starts, ends, warps = np.array(blocks).T
        inside = np.diff(np.clip(edges, starts[:, None], ends[:, None]))
        yield (warps @ inside * count / axis.high).tolist()
