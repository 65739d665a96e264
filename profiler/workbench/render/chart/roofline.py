"""The roofline over the level that inputs come from: roofs, a mark a kernel, and names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from workbench.derive.rooflines import TENSOR
from workbench.judge.ladder import Ablation
from workbench.render import doc
from workbench.render.chart import svg
from workbench.render.document.phrases import kind
from workbench.render.numbers import number, percent

NAMED, NAMES, LINE = 12, 260.0, 16.0  # the most names, the width and the height of one
ROOF, MEASURED = svg.Stroke("ink", 1.6), svg.Stroke("ink", 0.9, "6 3")
DROP, LEADER = svg.Stroke("muted", 0.8, "2 3"), svg.Stroke("muted", 0.6)
PATH, REFERENCE = svg.Stroke("step", 1.5), svg.SIGNS[doc.Marking.REFERENCE]
NO_ARITHMETIC = "no floating-point arithmetic: the tables have the shares of bandwidth"
TERA = 1e12
WORDS = {
    each: f"step, {each}"
    for each in (doc.Marking.KEPT, doc.Marking.REJECTED, doc.Marking.INCONCLUSIVE)
}
WORDS[doc.Marking.REFERENCE] = "reference"


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
            yield Mark(row.variant, (x, y), share, svg.sign_of(row))


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
    return canvas.missing(missing, draw(canvas, [*marks.values()], drawn, named, line))


def draw(
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
        canvas.name(place, text, right - left, strong=mark.sign != REFERENCE)
        canvas.sign(leader[0], mark.sign, mark.text)
    signs = {mark.sign for mark in marks}
    entries: list[tuple[str, svg.Look]] = []
    entries += [(WORDS[each], svg.SIGNS[each]) for each in WORDS if svg.SIGNS[each] in signs]
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
    low, high, right = plot.y.end + LINE / 2, plot.y.start - LINE / 2, plot.x.end
    rest, leaders = [(*places[mark.name], mark) for mark in named], []
    for height in svg.spread(sorted(y for _, y, _ in rest), LINE, low, high):
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
