"""Timelines: when the warps of a call ran, in figures with what they show to be wrong, as a chart
of a variant beside its parent, and for Perfetto.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import groupby

from workbench.derive.speedup import Time
from workbench.derive.timeline import CallTimeline, LaunchTimeline
from workbench.judge.advice_rules import faults
from workbench.judge.findings import Finding, sentences
from workbench.render import doc
from workbench.render.chart import svg
from workbench.render.numbers import factor, microseconds, number, percent
from workbench.words import grouped

NAME = 40  # characters of a kernel's name
FIELDS: list[doc.Field[LaunchTimeline]] = [
    doc.Field("kernel", "kernel", lambda one: doc.code(one.kernel[:NAME])),
    doc.numeric("span", "µs", lambda one: number(one.span_us)),
    doc.numeric("blocks", "blocks", lambda one: f"{one.blocks:,}"),
    doc.numeric("resident", "on an SM", lambda one: str(one.resident)),
    doc.numeric("median", "median block", lambda one: microseconds(one.median_us)),
    doc.numeric("longest", "longest", lambda one: microseconds(one.longest_us)),
    doc.numeric("ramp", "ramp", lambda one: microseconds(one.ramp_us)),
    doc.numeric("tail", "tail", lambda one: microseconds(one.tail_us)),
    doc.numeric("idle", "idle in tail", lambda one: percent(one.tail_idle)),
    doc.numeric("gaps", "between blocks", lambda one: percent(one.gaps_idle)),
    doc.numeric("imbalance", "busiest SM", lambda one: factor(one.imbalance)),
]
SLOWED = 1.1  # times the time without tracing
NO_FAULT = "No tail, slow block, early producer or gap is worth a step."


def figures(call: CallTimeline, time: Time | None = None) -> list[doc.Block]:
    """The figures of a call. ``time`` is that of one where nothing traced it."""
    beside = ""
    if time and time.value:
        ratio = call.span_us / time.value
        beside = f", {factor(ratio)} its time between kernels, {microseconds(time.value)}"
        beside += ": tracing slows it, so distrust gaps and tails" if ratio > SLOWED else ""
    first = doc.paragraph(f"Timeline: {microseconds(call.span_us)} while traced{beside}.")
    return [first, *launches(call.launches, [fault.why for fault in faults(call)])]


def launches(every: Sequence[LaunchTimeline], wrong: Sequence[Finding]) -> list[doc.Block]:
    """The figures of launches, the roles of their warps, and what is ``wrong``."""
    blocks: list[doc.Block] = [doc.table("timeline", FIELDS, every)]
    for one in every:
        if len(one.roles) > 1:
            ends = ", ".join(f"{role.words} {percent(role.end)}" for role in one.roles)
            blocks.append(doc.paragraph(f"Of a block's life in {one.kernel[:NAME]}: {ends}."))
    lines = [f"{text}." for text in sentences(wrong)]
    return [*blocks, doc.bullets(lines) if lines else doc.paragraph(NO_FAULT)]


CAPTION = (
    "A row is an SM, the last to end at the top. Its shade says how many warps of the call it has. "
    "An empty place is an SM without work."
)
TRACE = ".trace.json.gz"  # the suffix of what Perfetto opens
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

    count = max(1, round((axis.end - axis.start) / STEP))
    edges = np.linspace(0.0, axis.high, count + 1)
    every = [[block[:3] for block in blocks] for blocks in by_sm(call).values()]
    for blocks in sorted(every, key=lambda sm: -max(end for _, end, _ in sm)):
        starts, ends, warps = np.array(blocks).T
        inside = np.diff(np.clip(edges, starts[:, None], ends[:, None]))
        yield (warps @ inside * count / axis.high).tolist()


def by_sm(call: CallTimeline) -> dict[int, list[tuple[float, float, int, str]]]:
    """Start, end, warps and name of each SM's blocks, in microseconds of the call."""
    rows = []
    for one in call.launches:
        launch, us = one.launch, one.launch.tick_ns / 1000
        lives = zip(launch.sms, launch.starts, launch.lives, strict=True)
        for block, (sm, start, life) in enumerate(lives):
            begin, name = launch.begin + start, f"{one.kernel} {block}"
            rows.append((sm, (us * begin, us * (begin + life), launch.warps, name)))
    return grouped(rows)


def perfetto(call: CallTimeline) -> bytes:
    """Return a file for ui.perfetto.dev: an SM is a process, a block's place on it a thread."""
    events: list[dict[str, object]] = []
    for sm, blocks in by_sm(call).items():
        named = {"name": f"SM {sm}"}
        events.append({"ph": "M", "name": "process_name", "pid": sm, "args": named})
        ends: list[tuple[float, int]] = []  # of blocks, with their places
        for start, end, _, name in sorted(blocks):
            place = heappop(ends)[1] if ends and ends[0][0] <= start else len(ends)
            heappush(ends, (end, place))
            times = {"ts": round(start, 3), "dur": round(end - start, 3)}
            events.append({"ph": "X", "name": name, "pid": sm, "tid": place, **times})
    text = json.dumps({"traceEvents": events}, separators=(",", ":"))
    return gzip.compress(text.encode(), 6, mtime=0)
