"""Time by variant, and time over the size, both as rows of marks on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from workbench.derive.speedup import Time
from workbench.judge.ladder import Ablation, Row
from workbench.judge.sweeps import OverSizes, size_words
from workbench.judge.times import AcrossShapes
from workbench.render.chart import svg
from workbench.render.document.phrases import (
    SIZES,
    caption_of,
    shape_name,
    shape_words,
    short_change,
    verdict,
)
from workbench.render.numbers import factor, microseconds
from workbench.words import Verdict

PATH, REFERENCE = svg.Stroke("step", 1.5), svg.Stroke("reference", 1.2, "5 3")
GAP, ROW, LINE = 8.0, 24.0, 15.0  # beside a column, a step, and the name of a reference
NAMES, CHANGES, TICKS = 300.0, 290.0, 6  # the most of each
COLOURS = ("vermilion", "green", "pink", "orange", "violet", "umber", "grey")
LOOKS = [svg.Sign("diamond", colour, size=11) for colour in COLOURS]


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
    top = LINE * len(references) + 6
    changes = ["" if canvas.narrow else short_change(row) for row, _ in steps]
    names, shown = [row.variant for row, _ in steps], [microseconds(t.value) for _, t in steps]
    heights = [top + ROW * (n + 0.5) for n in range(len(steps))]
    bottom = top + ROW * len(steps)
    left = _columns(canvas, names, changes, shown, heights)
    scale = svg.Log(min(lows) / 1.2, max(highs) * 1.15, left, canvas.right)
    ticks = scale.ticks(3 if canvas.narrow else TICKS)
    canvas.ticks(scale, [(tick, f"{tick:,g} µs") for tick in ticks], top, bottom)
    for place, (row, time) in enumerate(references):
        name, x, y = f"{row.variant} {microseconds(time.value)}", scale.at(time.value), LINE * place
        fits = x + 5 + svg.text_width(name, svg.SMALL) <= canvas.width
        canvas.line(((x, y + 2), (x, bottom)), REFERENCE)
        at = (x + 5 if fits else x - 5, y + svg.SMALL)
        canvas.text(at, name, svg.SMALL, "reference", "start" if fits else "end", halo=True)
    canvas.line([(scale.at(t.value), y) for (_, t), y in zip(steps, heights, strict=True)], PATH)
    for (row, time), words, y in zip(steps, shown, heights, strict=True):
        low, high = map(scale.at, _ends(time))
        if high - low > 10:
            canvas.line(((low, y), (high, y)), svg.Stroke(svg.sign_of(row).colour, 1.4))
        judged = "" if row.verdict in (None, Verdict.BASELINE) else f", {verdict(row)}"
        sign = svg.sign_of(row)
        canvas.sign((scale.at(time.value), y), sign, f"{row.variant}: {words}{judged}", 10)
    return canvas.missing(missing, bottom + 24)


def _columns(
    canvas: svg.Canvas,
    names: Sequence[str],
    notes: Sequence[str],
    values: Sequence[str],
    heights: Sequence[float],
) -> float:
    """Write a name, a note and a time in bold a row; return where the axis may begin."""
    second = svg.names_end(names, canvas.most(NAMES))
    wide = [svg.text_width(value, svg.TEXT, bold=True) for value in values]
    end = min(CHANGES, 1 + max(svg.text_width(note, svg.SMALL) for note in notes))
    end += second + GAP + max(wide)
    for name, note, value, width, y in zip(names, notes, values, wide, heights, strict=True):
        base, room = y + 0.35 * svg.TEXT, end - width - GAP - second
        canvas.name((svg.EDGE, base), name, second - GAP - svg.EDGE)
        canvas.text((second, base), svg.fitted(note, room, svg.SMALL), svg.SMALL, "muted")
        canvas.text((end, base), value, svg.TEXT, "ink", "end", bold=True)
    return end + GAP


def _timed(rows: Sequence[Row]) -> list[tuple[Row, Time]]:
    return [(row, row.time) for row in rows if row.time and row.time.value > 0]


def _ends(time: Time) -> tuple[float, float]:
    return time.low or time.value, time.high or time.value


def over_sizes(canvas: svg.Canvas, ablation: Ablation) -> float:
    """Draw the best variant and all references at every size, the smallest time first."""
    across = ablation.across or AcrossShapes("", ())
    rows = {
        shape_name(each.shape, ablation): {
            across.variant: each.microseconds.value,
            **{name: time.value for name, time in each.references.items()},
        }
        for each in sorted(across.shapes, key=lambda each: each.microseconds.value)
    }
    return _sizes(canvas, rows, across.variant)


def size_lines(over: OverSizes, name: str = SIZES) -> svg.Drawing:
    """Return the chart of one range: the newest version of those timed at most sizes, and beside
    it the references and the versions before it.
    """
    shared = shape_words(over.others)
    subtitle = f"{over.study}{f', {shared}' if shared else ''}, {over.gpu}"
    base = max(reversed(over.versions), key=lambda each: len(each.shapes), default=None)
    rows = {
        f"{over.parameter}={size_words(size)}": {
            line.variant: point.microseconds.value
            for line in reversed(over.variants)
            if (point := line.result_at(shape))
        }
        for shape, size in over.sizes.items()
    }
    fill = partial(_sizes, rows=rows, base=base.variant if base else "")
    return svg.Drawing(name, f"Time over {over.parameter}", subtitle, fill, *caption_of(SIZES))


def _sizes(canvas: svg.Canvas, rows: Mapping[str, Mapping[str, float]], base: str) -> float:
    """Draw a row a size: the times there as multiples of that of ``base``, on one axis."""
    rows = {name: times for name, times in rows.items() if base in times}
    if not rows:
        return canvas.instead("no version was timed at these sizes")
    names = dict.fromkeys(name for times in rows.values() for name in times if name != base)
    looks = {base: svg.KEPT, **dict(zip(names, LOOKS, strict=False))}
    above = LINE if canvas.narrow else 0.0  # on a phone a size stands over its marks
    top = canvas.legend([*looks.items()], 0) + 12
    heights = [top + (ROW + above) * n + above + ROW / 2 for n in range(len(rows))]
    bottom = heights[-1] + ROW / 2
    blank = [""] * len(rows)
    values = [microseconds(times[base]) for times in rows.values()]
    left = _columns(canvas, blank if above else [*rows], blank, values, heights)
    drawn = [{name: t[name] / t[base] for name in looks if name in t} for t in rows.values()]
    every = [ratio for ratios in drawn for ratio in ratios.values()]
    scale = svg.Log(min(every) / 1.1, max(every) * 1.1, left, canvas.right)
    ticks = [(tick, f"{tick:g}x") for tick in scale.ticks(4 if canvas.narrow else 8)]
    canvas.ticks(scale, ticks, top, bottom)
    for name, look in looks.items():
        marks = [(r[name], y) for r, y in zip(drawn, heights, strict=True) if name in r]
        canvas.line([(scale.at(ratio), y) for ratio, y in marks], svg.Stroke(look.colour, 1.0))
        for ratio, y in marks:
            canvas.sign((scale.at(ratio), y), look, f"{name}: {factor(ratio)}", 9)
    for name, y in zip(rows, heights, strict=True) if above else ():
        text = svg.fitted(name, canvas.right - svg.EDGE, svg.SMALL)
        canvas.text((svg.EDGE, y - LINE), text, svg.SMALL, "muted", halo=True)
    return bottom + 24
