"""Time by step, and speed over the size with its intervals."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from workbench.derive.speedup import Ratio, Time
from workbench.judge.ladder import Ablation, Row
from workbench.judge.sweeps import OverSizes, size_words
from workbench.render.chart import svg
from workbench.render.document.captions import SIZES, caption_of
from workbench.render.document.phrases import shape_words, short_change, verdict
from workbench.render.numbers import microseconds
from workbench.words import Verdict

PATH, REFERENCE = svg.Stroke("step", 1.5), svg.Stroke("reference", 1.2, "5 3")
GAP, ROW, LINE = 8.0, 24.0, 15.0  # beside a column, a step, and the name of a reference
NAMES, CHANGES, TICKS = 180.0, 290.0, 6  # the most of each
COLOURS = ("blue", "vermilion", "green", "pink", "orange", "sky", "grey")


def step_times(canvas: svg.Canvas, ablation: Ablation) -> float:
    """Draw names, key changes and times of the steps from the top down; over them the references,
    the fastest highest, so that no line crosses a name.
    """
    steps = _timed(ablation.path or ablation.rows)
    references = sorted(_timed(ablation.references), key=lambda timed: timed[1].value)
    missing = [row for row in ablation.path or ablation.rows if not _timed([row])]
    if not steps:
        return canvas.missing(missing, canvas.instead("timing not collected"))
    lows, highs = zip(*(_ends(time) for _, time in (*steps, *references)), strict=True)
    changes = ["" if canvas.narrow else short_change(row) for row, _ in steps]
    change = svg.names_end([row.variant for row, _ in steps], canvas.most(NAMES))
    value = min(CHANGES, 1 + max(svg.text_width(text, svg.SMALL) for text in changes))
    value += change + GAP
    value += max(svg.text_width(microseconds(time.value), svg.TEXT, bold=True) for _, time in steps)
    scale = svg.Log(min(lows) / 1.2, max(highs) * 1.15, value + GAP, canvas.right)
    top = LINE * len(references) + 6
    bottom = top + ROW * len(steps)
    ticks = scale.ticks(3 if canvas.narrow else TICKS)
    canvas.ticks(scale, [(tick, f"{tick:,g} µs") for tick in ticks], top, bottom)
    for place, (row, time) in enumerate(references):
        name, x, y = f"{row.variant} {microseconds(time.value)}", scale.at(time.value), LINE * place
        fits = x + 5 + svg.text_width(name, svg.SMALL) <= canvas.right
        canvas.line(((x, y + 2), (x, bottom)), REFERENCE)
        at = (x + 5 if fits else x - 5, y + svg.SMALL)
        canvas.text(at, name, svg.SMALL, "reference", "start" if fits else "end", halo=True)
    places = [(scale.at(time.value), top + ROW * (n + 0.5)) for n, (_, time) in enumerate(steps)]
    canvas.line(places, PATH)
    for (row, time), words, (x, y) in zip(steps, changes, places, strict=True):
        shown, base = microseconds(time.value), y + 0.35 * svg.TEXT
        room = value - svg.text_width(shown, svg.TEXT, bold=True) - GAP - change
        canvas.name((svg.EDGE, base), row.variant, change - GAP - svg.EDGE)
        canvas.text((change, base), svg.fitted(words, room, svg.SMALL), svg.SMALL, "muted")
        canvas.text((value, base), shown, svg.TEXT, "ink", "end", bold=True)
        low, high = map(scale.at, _ends(time))
        if high - low > 10:
            canvas.line(((low, y), (high, y)), svg.Stroke(svg.sign_of(row).colour, 1.4))
        judged = "" if row.verdict in (None, Verdict.BASELINE) else f", {verdict(row)}"
        canvas.sign((x, y), svg.sign_of(row), f"{row.variant}: {shown}{judged}", 10)
    return canvas.missing(missing, bottom + 24)


def _timed(rows: Sequence[Row]) -> list[tuple[Row, Time]]:
    return [(row, row.time) for row in rows if row.time and row.time.value > 0]


def _ends(time: Time | Ratio) -> tuple[float, float]:
    value = time.value if isinstance(time, Time) else time.ratio
    return time.low or value, time.high or value


def size_lines(over: OverSizes, name: str = SIZES) -> svg.Drawing:
    """Return the versions of one range over the fastest reference."""
    shared = shape_words(over.others)
    title = f"Ratio to the fastest reference over {over.parameter}"
    subtitle = f"{over.study}{f', {shared}' if shared else ''}, {over.gpu}"
    return svg.Drawing(name, title, subtitle, partial(_lines, over=over), *caption_of(SIZES))


def _most_telling(over: OverSizes) -> dict[str, list[tuple[float, Ratio]]]:
    """Return sizes and ratios of versions timed beside a reference: the fastest at any size, then
    the last ones, as many as there are colours.
    """
    points = {
        line.variant: [
            (over.sizes[at.shape], at.speedup_over_fastest)
            for at in line.shapes
            if at.speedup_over_fastest
        ]
        for line in over.versions
        if line.ratios
    }
    fastest = [over.fastest_at(shape) for shape in over.sizes]
    wanted = dict.fromkeys([*(rows[0].variant for rows in fastest if rows), *reversed(points)])
    kept = [name for name in wanted if name in points][: len(COLOURS)]
    return {name: points[name] for name in points if name in kept}


def _lines(canvas: svg.Canvas, over: OverSizes) -> float:
    drawn = _most_telling(over)
    if not drawn:
        return canvas.instead("no version was timed beside a reference") + 6
    ratios = [ratio for points in drawn.values() for _, ratio in points]
    lows, highs = zip((1.0, 1.0), *map(_ends, ratios), strict=True)
    sizes = sorted({size for points in drawn.values() for size, _ in points})
    across = svg.Log(sizes[0] / 1.15, sizes[-1] * 1.15, 52, canvas.right)
    plot = svg.Plot(across, svg.Log(min(lows) / 1.06, max(highs) * 1.06, 354, 34))
    ticks = [(size, size_words(size)) for size in sizes]  # there is nothing between sizes
    canvas.axes(plot, ticks, over.parameter, "speed ÷ that of the fastest reference")
    canvas.line((plot.at(across.low, 1.0), plot.at(across.high, 1.0)), REFERENCE)
    strokes = {name: svg.Stroke(colour, 2.0) for name, colour in zip(drawn, COLOURS, strict=False)}
    for name, stroke in strokes.items():
        places = [plot.at(size, ratio.ratio) for size, ratio in drawn[name]]
        canvas.line(places, stroke)
        for (_, ratio), (x, y) in zip(drawn[name], places, strict=True):
            foot, top = map(plot.y.at, _ends(ratio))
            if foot - top > 6:  # an interval that is higher than its mark
                for ends in ((x, foot), (x, top)), *(((x - 3, y), (x + 3, y)) for y in (foot, top)):
                    canvas.line(ends, stroke._replace(width=1.2))
            canvas.sign((x, y), svg.Sign("circle", stroke.colour, size=7))
    return (
        canvas.legend([*strokes.items(), ("fastest reference", REFERENCE)], plot.y.start + 44) + 6
    )
