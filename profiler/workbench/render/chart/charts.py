"""All charts of a report by name: times, sizes, roofline, stall times, memory and timelines."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from itertools import groupby
from math import fsum
from typing import NamedTuple, TypeAlias

from workbench.derive.figures import ISSUING, Figure, added
from workbench.derive.rooflines import TENSOR
from workbench.derive.speedup import Time
from workbench.derive.timeline import CallTimeline
from workbench.judge.comparison import Comparison
from workbench.judge.ladder import Ablation
from workbench.judge.rows import Row
from workbench.render import doc
from workbench.render.chart import svg
from workbench.render.chart.svg import Drawing
from workbench.render.doc import factor, figure_text, microseconds, number, percent
from workbench.render.document.printed_ladder import (
    anchor,
    compared,
    kind,
    parent_of,
    shape_name,
    short_change,
    table_size,
    verdict,
)
from workbench.render.document.variant import stall_words
from workbench.words import Verdict, grouped

SIZES = "sizes"
MEMORY = (
    "Bytes between the levels, and over the duration under ncu; an arrow is as wide as its rate."
)


def chart(name: str, ablation: Ablation) -> Drawing:
    """Return one of ``CHARTS``."""
    kind, level = CHARTS[name], ablation.base.upper()
    alt, caption = kind.alt.format(level=level), kind.caption.format(level=level)
    where = f"{ablation.study}, {ablation.gpu}" if name == SIZES else _where(ablation)
    fill = partial(kind.fill, ablation=ablation)
    return Drawing(name, alt, caption, kind.title, f"{where}; {kind.about}", fill)


def charts(ablation: Ablation) -> list[Drawing]:
    """Return those with files; without a roofline where the problem needs no arithmetic, and
    without sizes where there is one.
    """
    absent = ["roofline"] * ablation.moves_only + [SIZES] * (not ablation.has_sizes)
    drawn = [chart(name, ablation) for name in CHARTS if name not in absent]
    return [*drawn, *(timeline(row, ablation) for row in ablation.rows if row.timeline)]


def timeline(row: Row, ablation: Ablation) -> Drawing:
    """Return when the warps of a step ran, beside its parent's."""
    calls = {each.variant: each.timeline for each in ablation.everything}
    sides = {name: call for name in (parent_of(row), row.variant) if (call := calls.get(name))}
    about = f"{_where(ablation)}; µs while traced"
    return timeline_chart(f"timeline-{anchor(row.variant)}", about, sides)


def stall_pair(row: Row, ablation: Ablation) -> Drawing | None:
    """Return the stall time of a step beside its parent's, where there are samples."""
    if not (shown := pair(row.against_parent, compared(row, ablation))):
        return None
    alt = f"Stall time under ncu: {', '.join(f'{bar.name} {bar.words}' for bar in shown[0])}"
    name, title = f"stall-time-{anchor(row.variant)}", "Stall time before and after"
    about, fill = f"{_where(ablation)}; µs under ncu", partial(stacks, shown=shown)
    return Drawing(name, alt, "", title, about, fill)


def memory_chart(row: Row, ablation: Ablation) -> Drawing:
    """Return what a variant moves, by the figures of its capture."""
    alt, about = f"Memory chart of {row.variant}", f"{_where(ablation)}; µs under ncu"
    fill = partial(memory, name=row.variant, figures=row.figures)
    return Drawing(f"memory-{anchor(row.variant)}", alt, MEMORY, "Memory chart", about, fill)


def chart_files(ablation: Ablation) -> dict[str, str]:
    """Return the files of every chart by name."""
    return {name: text for chart in charts(ablation) for name, text in chart.files().items()}


def _where(ablation: Ablation) -> str:
    return f"{ablation.study}, {table_size(ablation)}, {ablation.gpu}"


PATH, REFERENCE = svg.Stroke("step", 1.5), svg.Stroke("reference", 1.2, "5 3")
GAP, ROW, LINE = 8.0, 24.0, 15.0  # beside a column, a step, and the name of a reference
NAMES_MOST, CHANGES, TICKS = 300.0, 290.0, 6  # the most of each
LOOK_COLOURS = "vermilion green pink orange violet umber grey"
LOOKS = [svg.Sign("diamond", colour, size=11) for colour in LOOK_COLOURS.split()]


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
        sign, (low, high) = svg.SIGNS[kind(row)], map(scale.at, _ends(time))
        if high - low > 10:
            canvas.line(((low, y), (high, y)), svg.Stroke(sign.colour, 1.4))
        judged = "" if row.verdict in (None, Verdict.BASELINE) else f", {verdict(row)}"
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
    second = names_end(names, canvas.most(NAMES_MOST))
    wide = [svg.text_width(value, svg.TEXT, bold=True) for value in values]
    end = min(CHANGES, 1 + max(svg.text_width(note, svg.SMALL) for note in notes))
    end += second + GAP + max(wide)
    for name, note, value, width, y in zip(names, notes, values, wide, heights, strict=True):
        base, room = y + 0.35 * svg.TEXT, end - width - GAP - second
        canvas.name((svg.EDGE, base), name, second - GAP - svg.EDGE)
        canvas.text((second, base), svg.fitted(note, room, svg.SMALL), svg.SMALL, "muted")
        canvas.text((end, base), value, svg.TEXT, "ink", "end", bold=True)
    return end + GAP


def names_end(names: Iterable[str], most: float) -> float:
    """Return where a column ends that holds bold names, ``most`` wide at most, and a gap."""
    return (
        svg.EDGE + min(max(svg.text_width(name, svg.TEXT, bold=True) for name in names), most) + 8
    )


def _timed(rows: Sequence[Row]) -> list[tuple[Row, Time]]:
    return [(row, row.time) for row in rows if row.time and row.time.value > 0]


def _ends(time: Time) -> tuple[float, float]:
    return time.low or time.value, time.high or time.value


def over_sizes(canvas: svg.Canvas, ablation: Ablation) -> float:
    """Draw a row a size, the smallest time first: the times of the references there as multiples of
    the best variant's, on one axis.
    """
    across = ablation.across
    if across is None or not across.shapes:
        return canvas.instead("no version was timed at these sizes")
    base = across.variant
    rows = {
        shape_name(each.shape, ablation): {
            base: each.microseconds.value,
            **{name: time.value for name, time in each.references.items()},
        }
        for each in sorted(across.shapes, key=lambda each: each.microseconds.value)
    }
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


NAMED, NAMES, NAME_LINE = 12, 260.0, 16.0  # the most names, the width and the height of one
ROOF, MEASURED = svg.Stroke("ink", 1.6), svg.Stroke("ink", 0.9, "6 3")
DROP, LEADER = svg.Stroke("muted", 0.8, "2 3"), svg.Stroke("muted", 0.6)
NO_ARITHMETIC = "no floating-point arithmetic: the tables have the shares of bandwidth"
TERA = 1e12
WORDS = {
    svg.KEPT: "step, kept",
    svg.REJECTED: "step, rejected",
    svg.INCONCLUSIVE: "step, inconclusive",
    svg.REFERENCE: "reference",
}


class Roof(NamedTuple):
    """TFLOP/s of a kind of arithmetic, or TB/s of a level of memory; ``measured`` on a GPU of
    the model."""

    key: str
    name: str
    rate: float
    measured: float | None
    unit: str = "TFLOP/s"

    @property
    def text(self) -> str:
        """The words of a roof: its rate, with the measured one in brackets."""
        reached = f" ({number(self.measured)})" if self.measured else ""
        return f"{self.name} {number(self.rate)}{reached} {self.unit}"


def roofs(ablation: Ablation) -> list[Roof]:
    """Return the roof of the memory that inputs come from, then those of arithmetic, the highest
    first; packed FP16 and FP64 where some point is bound by them. Without ceilings there is none.
    """
    memory, rates = ablation.base, ablation.ceilings.rates if ablation.ceilings else {}
    points = [row.roofline for row in ablation.everything if row.roofline]
    dtype = next((point.tensor_type for point in points if point.tensor_type), "fp16")
    tensor = f"{TENSOR} {dtype}"
    bound = {memory, "fp32", tensor, *(point.arithmetic for point in points)}
    names = {"fp32": "FP32", "half": "Packed FP16", "fp64": "FP64"}
    names |= {memory: memory.upper(), tensor: f"Tensor, dense {dtype.upper()}"}
    drawn = []
    for key in (key for key in names if key in bound and rates.get(key)):
        reached, unit = ablation.measured.get(key), "TB/s" if key == memory else "TFLOP/s"
        drawn.append(Roof(key, names[key], rates[key] / TERA, reached and reached / TERA, unit))
    drawn.sort(key=lambda roof: (roof.key != memory, -roof.rate))
    return drawn if rates.get(memory) else []


class Mark(NamedTuple):
    """A kernel at a level of memory: FLOP that the problem needs per byte moved there, and TFLOP/s,
    with its share of the roof drawn over it.
    """

    name: str
    at: svg.XY
    share: float | None
    sign: svg.Sign

    @property
    def text(self) -> str:
        return f"{self.name} {percent(self.share)}" if self.share else self.name


def marks_of(ablation: Ablation, drawn: Sequence[Roof]) -> Iterator[Mark]:
    """Yield the marks of the rows that were captured and moved anything at the memory."""
    (memory, *compute), flops = drawn, ablation.work.flops if ablation.work else 0.0
    for row in ablation.everything:
        point, time = row.roofline, row.figures.get("duration")
        if point is None or time is None:
            continue
        seconds = time.value * 1e-6
        limit = f"{TENSOR} {point.tensor_type}" if point.tensor_type else point.arithmetic
        flat = next((roof.rate for roof in compute if roof.key == limit), None)
        speed = next((x.bytes_per_second for x in point.levels if x.name == memory.key), 0.0)
        if speed * seconds > 0 and flops > 0:
            x, y = flops / (speed * seconds), flops / seconds / TERA
            share = flat and y / min(flat, x * memory.rate)
            yield Mark(row.variant, (x, y), share, svg.SIGNS[kind(row)])


def roofline(canvas: svg.Canvas, ablation: Ablation) -> float:
    """Draw the work that the problem needs over the time of each variant, or say what it lacks."""
    drawn = roofs(ablation)
    shown = (*ablation.table_rows, *ablation.references)
    missing = [row for row in shown if not row.roofline]
    if not drawn:
        return canvas.missing(missing, canvas.instead("ceilings not collected"))
    if ablation.work is None or ablation.moves_only:
        return canvas.missing(missing, canvas.instead(NO_ARITHMETIC))
    path = ablation.path
    kept = [row for row in path[1:-1] if kind(row) == doc.Marking.KEPT]
    kept.sort(key=lambda row: -row.over_parent.ratio if row.over_parent else 0.0)
    order = [row.variant for row in (*ablation.references, *path[-1:], *path[:1], *kept)]
    marks = {mark.name: mark for mark in marks_of(ablation, drawn)}
    named = [marks[name] for name in dict.fromkeys(order) if name in marks]
    named = named[: NAMED - 4 * canvas.narrow]
    line = [row.variant for row in path if row.variant in marks]
    return canvas.missing(missing, under_roofs(canvas, [*marks.values()], drawn, named, line))


def under_roofs(
    canvas: svg.Canvas,
    marks: Sequence[Mark],
    drawn: Sequence[Roof],
    named: Sequence[Mark],
    path: Sequence[str],
) -> float:
    """Draw marks under their roofs, the ``path`` that joins some, and the names of others; return
    where that ends.
    """
    widest = max((svg.text_width(mark.text, svg.TEXT, bold=True) for mark in named), default=0.0)
    right = canvas.right
    left = right - min(canvas.most(NAMES), widest + 6)
    nominal, reached = [r.rate for r in drawn], [r.measured or r.rate for r in drawn]
    xs, ys = [mark.at[0] for mark in marks], [mark.at[1] for mark in marks]
    for rise, *rates in (nominal, reached):
        xs, ys = [*xs, *(rate / rise for rate in rates)], [*ys, *rates]
    x = svg.Log(min(xs) / 3, max(xs) * 3, 46, left - 20)
    plot = svg.Plot(x, svg.Log(min(ys) / 2, max(ys) * 1.6, 426, 26))
    ticks = [(tick, f"{tick:g}") for tick in x.ticks(max(2, round((x.end - x.start) / 90)))]
    x_title = f"required FLOP per {drawn[0].name} byte moved"
    canvas.axes(plot, ticks, x_title, "required TFLOP/s")
    places = {mark.name: plot.at(*mark.at) for mark in marks}
    leaders = _leaders(named, places, plot, left)
    dashed = roof_lines(plot, *reached) if nominal != reached else []
    _roofs(canvas, plot, drawn)
    for line in dashed:
        canvas.line(line, MEASURED)
    if path:
        canvas.line([places[name] for name in path], PATH)
    for mark in marks:
        if mark not in named:
            canvas.sign(places[mark.name], mark.sign, mark.text, 7)
    for mark, leader in leaders:
        canvas.line(leader, LEADER)
        place = (left, leader[-1][1] + 0.35 * svg.TEXT)
        fits = svg.text_width(mark.text, svg.TEXT, bold=True) <= right - left
        text = mark.text if fits else mark.name
        canvas.name(place, text, right - left, strong=mark.sign != svg.REFERENCE)
        canvas.sign(leader[0], mark.sign, mark.text)
    signs = {mark.sign for mark in marks}
    entries: list[tuple[str, svg.Look]] = [(WORDS[sign], sign) for sign in WORDS if sign in signs]
    entries += [("the steps to the best version", PATH)] * (len(path) > 1)
    entries += [("measured on this model (in brackets)", MEASURED)] * bool(dashed)
    entries += [(roof.text, ROOF) for roof in drawn if canvas.narrow]
    return canvas.legend(entries, plot.y.start + 44)


def _leaders(
    named: Sequence[Mark], places: Mapping[str, svg.XY], plot: svg.Plot, left: float
) -> list[tuple[Mark, list[svg.XY]]]:
    """Return a line from each mark to its name right of the plot. No two cross: every name, from
    the top down, takes the mark that leaves all others under its line.
    """
    low, high, right = plot.y.end + NAME_LINE / 2, plot.y.start - NAME_LINE / 2, plot.x.end
    rest, leaders = [(*places[mark.name], mark) for mark in named], []
    for height in svg.spread(sorted(y for _, y, _ in rest), NAME_LINE, low, high):
        slopes = [(height - y) / (right - x) for x, y, _ in rest]
        x, y, mark = rest.pop(slopes.index(max(slopes)))
        leaders.append((mark, [(x, y), (right, height), (left - 3, height)]))
    return leaders


def roof_lines(plot: svg.Plot, rise: float, *rates: float) -> list[list[svg.XY]]:
    """Return the slope of the memory up to the highest roof, and the flat line of each."""
    start = max(plot.x.low, plot.y.low / rise)
    slope = [plot.at(start, start * rise), plot.at(max(rates) / rise, max(rates))]
    return [slope, *([plot.at(rate / rise, rate), plot.at(plot.x.high, rate)] for rate in rates)]


def _roofs(canvas: svg.Canvas, plot: svg.Plot, drawn: Sequence[Roof]) -> None:
    """Draw roofs, ridges and names: over the highest roof and under the others, where their flat
    line begins, there are fewest marks.
    """
    lines = roof_lines(plot, *(roof.rate for roof in drawn))
    for line in lines:
        canvas.line(line, ROOF)
    (slope, *flats), (memory, *compute) = lines, drawn
    (ax, ay), (bx, by) = slope
    angle = math.atan2(by - ay, bx - ax)
    middle = ((ax + bx) / 2 + 6 * math.sin(angle), (ay + by) / 2 - 6 * math.cos(angle))
    words = memory.name if canvas.narrow else memory.text
    canvas.text(middle, words, anchor="middle", turn=round(math.degrees(angle), 1), halo=True)
    for roof, ((x, y), (end, _)) in zip(compute, flats, strict=True):
        canvas.line(((x, y), (x, plot.y.start)), DROP)
        words = roof.name if canvas.narrow else roof.text
        start = min(x + 8, end - svg.text_width(words, svg.SMALL))
        canvas.text((start, y - 5 if roof is compute[0] else y + 14), words, halo=True)


Figures = Mapping[str, Figure]
WIDE, BOX, LINK = 455.0, 40.0, 58.0  # of a kernel, of a level, and between two levels
# A level: its row, its first and last quarter, its name, and the figure that is written in it.
LEVELS = (
    (0, 0, 4, "SMs", "warp_instructions", "instructions"),
    (1, 0, 2, "L1", "l1_hit", "hit rate"),
    (1, 2, 4, "Shared memory", "shared_conflicts", "bank conflicts"),
    (2, 0, 4, "L2", "l2_hit", "hit rate"),
    (3, 0, 4, "DRAM", "dram_pct", "throughput"),
)
# An arrow below a row: its quarter, whether data goes up, its words, the figures that it sums,
# and the one that another arrow has.
ARROWS = (
    (0, 0, True, "loads", ("global_read", "local_read"), ""),
    (0, 1, False, "stores", ("global_write", "local_write"), ""),
    (0, 2, True, "load instr.", ("shared_loads",), ""),
    (0, 3, False, "store instr.", ("shared_stores",), ""),
    (1, 0, True, "reads", ("l2_to_l1",), "bulk_read"),
    (1, 1, False, "writes", ("l1_to_l2",), ""),
    (1, 2, True, "TMA reads", ("bulk_read",), ""),
    (2, 0, True, "reads", ("dram_read",), ""),
    (2, 1, False, "writes", ("dram_write",), ""),
)


def memory(canvas: svg.Canvas, name: str, figures: Figures) -> float:
    """Draw what a kernel moves; return where that ends."""
    left, top, wide = svg.EDGE, 24.0, min(WIDE, canvas.width) - 2 * svg.EDGE
    lane = wide / 4
    canvas.name((left, 16), name, wide)
    for row, first, last, level, key, words in LEVELS:
        y, figure = top + row * (BOX + LINK), figures.get(key)
        box = svg.Box(left + first * lane + 4 * (first > 0), y, left + last * lane, y + BOX)
        canvas.bar(box, "faint")
        canvas.text((box.middle[0], y + 16), level, anchor="middle", bold=True)
        text = f"{words} {figure_text(figure)}"
        canvas.text((box.middle[0], y + 32), text, anchor="middle")
    flows = [(*arrow[:4], _flow(figures, *arrow[4:])) for arrow in ARROWS]
    most = max((rate or 0.0 for *_, (_, rate) in flows), default=0.0)
    for row, quarter, up, words, (text, rate) in flows:
        y, x = top + row * (BOX + LINK) + BOX + 5, left + quarter * lane + 12
        start, end = (y + LINK - 10, y) if up else (y, y + LINK - 10)
        look = svg.Stroke("step", 1.5 + 4 * (rate or 0.0) / (most or 1.0))
        canvas.line(((x, start), (x, end)), look)
        back = end + (7 if up else -7)
        canvas.line(((x - 6, back), (x, end), (x + 6, back)), svg.Stroke("step", 1.5))
        lines = [words, text] if rate is None else [words, text, speed(rate)]
        for line, shown in enumerate(lines):
            canvas.text((x + 11, y + 12 + 16 * line), shown, colour="ink" if line else "muted")
    return top + 4 * BOX + 3 * LINK + 6


def _flow(figures: Figures, keys: tuple[str, ...], other: str) -> tuple[str, float | None]:
    """Return how much an arrow carries, and where that is bytes, TB/s under ncu."""
    moved_figures, time = [figures[key] for key in keys if key in figures], figures.get("duration")
    if not moved_figures or moved_figures[0].unit != "MB":
        return figure_text(moved_figures[0] if moved_figures else None), None
    apart = figures[other].value if other in figures else 0.0
    moved = max(0.0, added(figure.value for figure in moved_figures) - apart)
    text = figure_text(replace(moved_figures[0], value=moved))
    noise = not moved or text.startswith("<") or not (time and time.value)
    return text, None if noise or time is None else moved / time.value


def speed(x: float) -> str:
    """Bytes per second, from TB/s."""
    return f"{number(x)} TB/s" if x >= 1 else f"{number(1e3 * x)} GB/s"


NUMBER = svg.SMALL  # the size of numbers
BAR, PAIR_GAP = 18.0, 7.0  # a bar, and over and under a pair
MOST = 10  # reasons that a chart tells apart; it sums the rest
OTHER, OTHER_FILL = "other", "grey"
# The colour of a reason in every chart and on every page.
COLOURS = svg.named(
    f"{ISSUING}=faint long_scoreboard=blue wait=orange barrier=green short_scoreboard=pink "
    "math_pipe_throttle=vermilion not_selected=sky mio_throttle=yellow dispatch_stall=olive "
    "no_instructions=purple drain=brown lg_throttle=teal imc_miss=rose warpgroup_arrive=lime "
    f"branch_resolving=lilac gmma=maroon membar=sand sleeping=forest {OTHER}={OTHER_FILL}"
)


class Bar(NamedTuple):
    """A kernel with its microseconds by stall reason, in all and in words."""

    name: str
    times: Mapping[str, float]
    total: float
    words: str


Pair: TypeAlias = tuple[Bar, Bar]  # the parent's first


def pair(sides: Comparison | None, names: tuple[str, str]) -> list[Pair]:
    """Return one, or none where there are no samples."""
    if sides is None or not (every := sides.stall_microseconds):
        return []
    first, last = (fsum(times) for times in zip(*((t.before, t.after) for t in every), strict=True))
    words = f"{number(last)} µs, {factor(first / last)}"
    before = Bar(names[0], {t.reason: t.before for t in every}, first, f"{number(first)} µs")
    return [(before, Bar(names[1], {t.reason: t.after for t in every}, last, words))]


def stall_time(canvas: svg.Canvas, ablation: Ablation) -> float:
    """Draw the steps to the best one."""
    shown: list[Pair] = []
    missing: list[Row] = []
    for row in ablation.path or ablation.rows:
        shown += (drawn := pair(row.against_parent, compared(row, ablation)))
        missing += [row] * bool(row.step and row.step.parent and not drawn)
    if not shown:
        return canvas.missing(missing, canvas.instead("stall samples not collected"))
    return canvas.missing(missing, stacks(canvas, shown))


def stacks(canvas: svg.Canvas, shown: Sequence[Pair]) -> float:
    """Draw two bars a pair, each pair on the scale of its parent; return where they end."""
    # By the longer bars: a stall that a step removed keeps its place.
    colours = fills(
        {name: max(old.times[name], new.times[name]) for name in old.times} for old, new in shown
    )
    entries = [(OTHER if name == OTHER else stall_words(name), colours[name]) for name in colours]
    y = canvas.legend(entries, 0) + 8
    left, room, above = svg.EDGE, 0.0, 16.0  # on a phone words stand above their bar
    if not canvas.narrow:
        left = names_end([bar.name for pair in shown for bar in pair], NAMES)
        room = max(svg.text_width(new.words, NUMBER) for _, new in shown) + 10
        above = 0.0
    unit = (canvas.right - left - room) / max(1.0, *(new.total / old.total for old, new in shown))
    for pair in shown:
        if pair is not shown[0]:
            canvas.line(((svg.EDGE, y), (canvas.right, y)), svg.GRID)
        y += PAIR_GAP
        for bar in pair:
            y, is_new = y + above, bar is pair[1]
            box = svg.Box(left, y, left + unit * bar.total / pair[0].total, y + BAR)
            stacked(canvas, bar.times, colours, box)
            base = y - 4 if above else box.middle[1] + 0.35 * svg.TEXT
            wide = canvas.right - 100 if above else left - 8
            canvas.name((svg.EDGE, base), bar.name, wide - svg.EDGE, strong=is_new)
            place = (canvas.right, base) if above else (box.x1 + 5, base)
            ink = "ink" if is_new else "muted"
            canvas.text(place, bar.words, NUMBER, ink, "end" if above else "start")
            y += BAR + 3
        y += PAIR_GAP
    return y + 4


def fills(shares: Iterable[Mapping[str, float]]) -> dict[str, str]:
    """Return a colour by reason, as bars stack them: issuing first, ``other`` last."""
    rows = list(shares)
    every = dict.fromkeys(name for row in rows for name in row)
    weights = {name: fsum(row.get(name, 0.0) for row in rows) for name in every}
    stalls = [name for name in weights if name in COLOURS and name not in (ISSUING, OTHER)]
    reasons = sorted(stalls, key=lambda name: (-weights[name], name))[:MOST]
    rest = [OTHER] if weights.keys() - {ISSUING, *reasons} else []
    return {name: COLOURS[name] for name in (ISSUING, *reasons, *rest)}


def parts(row: Mapping[str, float], names: Iterable[str]) -> list[tuple[str, float]]:
    """Return the value of each name, in their order; ``other`` stands for all the rest."""
    named = [(name, row.get(name, 0.0)) for name in names if name != OTHER]
    rest = fsum(row.values()) - fsum(value for _, value in named)
    return [*named, (OTHER, max(0.0, rest))] if OTHER in names else named


def stacked(
    canvas: svg.Canvas, times: Mapping[str, float], fill: Mapping[str, str], bar: svg.Box
) -> None:
    """Draw times side by side over the width of the bar, each in figures where they fit."""
    unit, end = (bar.x1 - bar.x0) / fsum(times.values()), bar.x0
    for name, value in parts(times, fill):
        if value <= 0:
            continue
        start, end = end, end + unit * value
        seam, text = end - 1, number(value)
        canvas.bar(svg.Box(start, bar.y0, max(seam, start + 0.5), bar.y1), fill[name])
        if svg.text_width(text, NUMBER) + 6 <= seam - start:
            middle = ((start + seam) / 2, bar.middle[1] + 0.35 * NUMBER)
            canvas.text(middle, text, NUMBER, svg.ink_on(fill[name]), "middle")


TRACE = ".trace.json.gz"  # the suffix of what Perfetto opens
TIMELINE_CAPTION = (
    "A row is an SM, the last to end at the top. Its shade says how many warps of the call it has. "
    "An empty place is an SM without work."
)
HEIGHT, THICKEST = 200.0, 6  # of all SMs, about, and of one
STEP = 2.0  # pixels of the time axis that share one mean
SHADES = ("sky", "blue", "purple")  # up to a third of the warps, two thirds, more


def timeline_chart(name: str, about: str, sides: Mapping[str, CallTimeline]) -> svg.Drawing:
    """Return the timelines of calls by name, one under the other."""
    spans = [f"{side} {microseconds(call.span_us)}" for side, call in sides.items()]
    alt, fill = f"Warps on each SM over time: {', '.join(spans)}", partial(timelines, sides=sides)
    return svg.Drawing(name, alt, TIMELINE_CAPTION, "Timeline of the warps", about, fill)


def timelines(canvas: svg.Canvas, sides: Mapping[str, CallTimeline]) -> float:
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


class Kind(NamedTuple):
    """A chart of a ladder: what draws it, its words, and what they are about."""

    fill: Callable[..., float]
    title: str
    about: str
    alt: str
    caption: str


CHARTS: Mapping[str, Kind] = {
    SIZES: Kind(
        over_sizes,
        "Time over size",
        "times at each size, relative to the best variant's",
        "Time of the best variant and of the references at each size.",
        "A row is a size, with the best variant's time. A mark is a time there as a multiple of "
        "that one: right of 1x it is slower. Times are per call, between two other kernels.",
    ),
    "times": Kind(
        step_times,
        "Time by variant",
        "µs per call, logarithmic",
        "Time per call of each variant, baseline to fastest, on a logarithmic axis.",
        "Each variant changes the one above it. Dashed lines are references. An open mark is a "
        "variant that was not kept at this size. Times are per call inside a CUDA graph, between "
        "two other kernels: one writes the inputs, one reads the output.",
    ),
    "roofline": Kind(
        roofline,
        "Roofline",
        "required work over the time under ncu",
        "Roofline over {level}: the work that the problem needs, over the time and the bytes "
        "moved.",
        "Height is the FLOP that the problem needs over the time under ncu: it ranks the kernels. "
        "Work that a kernel does twice, or for nothing, does not count. The slope is what {level} "
        "can feed; the flat lines are what each kind of arithmetic can compute, at the clocks of "
        "one capture. A percentage is of the roof over the point.",
    ),
    "stall-time": Kind(
        stall_time,
        "Stall time by variant",
        "µs under ncu, each variant beside its parent and on its scale",
        "Time under ncu by stall reason, each variant beside its parent.",
        "Each pair is on the scale of its parent: compare lengths within a pair only. A colour is "
        "its share of the warp state samples times the duration under ncu. Without that stall, "
        "less than its length would be saved.",
    ),
}
