"""Time by step: a row a version, microseconds of a chained call on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from workbench.derive.speedup import Time
from workbench.judge.rows import Ablation, Row
from workbench.render.chart.frame import (
    BEFORE,
    EDGE,
    SIGNS,
    WORDS,
    LegendEntry,
    framed,
    key,
    kind_of,
    name_label,
    row_left,
    where,
)
from workbench.render.chart.scene import (
    Anchor,
    Box,
    Item,
    Label,
    Log,
    Polyline,
    Scene,
    Stroke,
    VariantItems,
    text_width,
)
from workbench.render.numbers import number
from workbench.words import Verdict

WIDTH, NAMES, SIZE, NUMBER = 920.0, 260.0, 12.0, 10.5
ROW, GAP = 20.0, 10.0  # the gap parts the steps from the references
TICKS = 8
GRID, FASTEST = Stroke("faint", 0.8), Stroke("reference", 1.2, (5, 3))
ALT = "Time of every version by step, chained, on a logarithmic axis."
CAPTION = (
    "Microseconds that a call adds between its neighbours in a CUDA graph, with the 95 % interval "
    "where it is wider than the mark. The dashed line is the fastest reference."
)
Timed = tuple[Row, Time]


def step_times(ablation: Ablation) -> Scene:
    timed = [(row, row.time) for row in ablation.everything if row.time and row.time.value > 0]
    absent = [row for row in ablation.everything if not (row.time and row.time.value > 0)]
    return framed(
        _draw(timed) if timed else "timing not collected",
        WIDTH,
        absent,
        name="times",
        title="How fast is each step?",
        subtitle=f"{where(ablation)}; µs a call, chained, logarithmic",
    )


def _draw(timed: Sequence[Timed]) -> tuple[list[Item], float]:
    kinds = {kind_of(row) for row, _ in timed}
    signs = [LegendEntry(words, SIGNS[kind]) for kind, words in WORDS.items() if kind in kinds]
    items, top = key(signs, EDGE, 0, WIDTH)
    top += 8
    lows, highs = zip(*(_ends(time) for _, time in timed), strict=True)
    left = row_left([row.variant for row, _ in timed], NAMES, SIZE)
    room = max(text_width(_value(time), NUMBER) for _, time in timed) + 14
    scale = Log(min(lows) / 1.1, max(highs) * 1.1, left, WIDTH - EDGE - room)
    rows: list[Item] = []
    y = top
    for n, (row, time) in enumerate(timed):
        y += GAP if n and row.is_reference and not timed[n - 1][0].is_reference else 0
        rows.append(_row(row, time, scale, y))
        y += ROW
    for tick in scale.ticks(TICKS):
        x = scale.at(tick)
        items.append(Polyline(((x, top), (x, y)), GRID))
        items.append(Label((x, y + 16), f"{tick:g} µs", NUMBER, "muted", Anchor.MIDDLE))
    if references := [time.value for row, time in timed if row.is_reference]:
        x = scale.at(min(references))
        items.append(Polyline(((x, top), (x, y)), FASTEST))
    return [*items, *rows], y + 24


def _row(row: Row, time: Time, scale: Log, top: float) -> VariantItems:
    middle = top + ROW / 2
    kind, x = kind_of(row), scale.at(time.value)
    sign = replace(SIGNS[kind], at=(x, middle), size=10)
    base = middle + 0.35 * SIZE
    room = scale.start - BEFORE - EDGE
    items: list[Item] = [
        name_label(row.variant, (EDGE, base), room, SIZE, own=not row.is_reference)
    ]
    low, high = map(scale.at, _ends(time))
    if high - low > sign.size:
        items.append(Polyline(((low, middle), (high, middle)), Stroke(sign.colour, 1.4)))
    value = Label((max(high, x + sign.size / 2) + 5, base), _value(time), NUMBER, halo=True)
    area = Box(2, top, WIDTH - 2, top + ROW)
    verdict = "" if row.is_reference or row.verdict == Verdict.BASELINE else f", {row.verdict}"
    words = f"{row.variant}: {_value(time)}{verdict}"
    return VariantItems((*items, sign, value), (row.variant,), kind, (area,), words=words)


def _ends(time: Time) -> tuple[float, float]:
    return time.low or time.value, time.high or time.value


def _value(time: Time) -> str:
    return f"{number(time.value)} µs"
