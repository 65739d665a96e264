"""What went through the memory hierarchy, level by level: the baseline and the best step.

In the manner of Nsight Compute's memory chart: a box a level with its hit rate, a link between two
with its bytes or requests. Each link is drawn twice, before and after, as wide as its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from workbench.derive.figures import Figure
from workbench.judge.rows import Ablation, Row
from workbench.ncu.catalog import catalog
from workbench.render.chart.frame import framed
from workbench.render.chart.key import Entry, key
from workbench.render.chart.lettering import fitted
from workbench.render.chart.notes import EDGE, where
from workbench.render.chart.scene import (
    XY,
    Anchor,
    Box,
    Group,
    Item,
    Label,
    Line,
    Outline,
    Scene,
    Stroke,
    Width,
)
from workbench.render.numbers import quantity
from workbench.words import ABSENT

BEFORE, AFTER = "grey", "step"
SIZE, SMALL = 12.0, 11.0
LINE = 15.0
WIDEST, THINNEST = 9.0, 1.0
APART = 6.0  # of the two lines of a link
ALT = "Bytes, requests and hit rates between kernel, L1, shared memory, L2 and DRAM."
CAPTION = "Grey the baseline, blue the best step; links are as wide as the root of their bytes."
Figures = Mapping[str, Figure]


@dataclass(frozen=True)
class Level:
    """A box; ``facts`` are figures that stand in it with their words."""

    name: str
    box: Box
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Link:
    """From a level to another: ``bytes_of`` makes its width, ``facts`` are said at ``at``."""

    start: XY
    end: XY
    facts: tuple[tuple[str, str], ...]
    at: XY
    bytes_of: str = ""
    anchor: Anchor = Anchor.MIDDLE


@dataclass(frozen=True)
class Layout:
    width: float
    height: float
    levels: tuple[Level, ...]
    links: tuple[Link, ...]


HIT = "hit "
SHARED = (("passes ", "shared_wavefronts"), ("conflicts ", "shared_conflicts"))
READ, WRITE = "read ", "write "


def _wide() -> Layout:
    """From left to right, what is said over and under each link."""
    kernel, l1, shared = Box(8, 8, 68, 268), Box(384, 8, 512, 168), Box(384, 196, 512, 268)
    l2, dram = Box(634, 8, 750, 268), Box(860, 8, 912, 268)
    rows = {"Global": 48.0, "Local": 128.0, "Shared": 232.0}
    doors = [Level(name, Box(192, y - 26, 254, y + 26)) for name, y in rows.items()]
    requests = {
        "Global": (("loads ", "global_load_requests"), ("stores ", "global_store_requests")),
        "Local": (),
        "Shared": (("loads ", "shared_loads"), ("stores ", "shared_stores")),
    }
    links = [Link((68, y), (192, y), requests[name], (130, y - 9)) for name, y in rows.items()]
    for name, read, write in (
        ("Global", "global_read", "global_write"),
        ("Local", "local_read", "local_write"),
    ):
        y = rows[name]
        links += [
            Link((384, y - 10), (254, y - 10), ((READ, read),), (319, y - 20), read),
            Link((254, y + 10), (384, y + 10), ((WRITE, write),), (319, y + 28), write),
        ]
    y = rows["Shared"]
    links += [
        Link((254, y), (384, y), (), (319, y)),
        Link((634, 60), (512, 60), ((READ, "l2_to_l1"),), (573, 47), "l2_to_l1"),
        Link((512, 120), (634, 120), ((WRITE, "l1_to_l2"),), (573, 141), "l1_to_l2"),
        Link((634, y), (512, y), (("bulk ", "bulk_read"),), (573, y - 13), "bulk_read"),
        Link((860, 90), (750, 90), ((READ, "dram_read"),), (805, 77), "dram_read"),
        Link((750, 180), (860, 180), ((WRITE, "dram_write"),), (805, 201), "dram_write"),
    ]
    levels = (
        Level("Kernel", kernel),
        *doors,
        Level("L1", l1, ((HIT, "l1_hit"),)),
        Level("Shared memory", shared, SHARED),
        Level("L2", l2, ((HIT, "l2_hit"),)),
        Level("DRAM", dram),
    )
    return Layout(920, 280, levels, tuple(links))


def _narrow() -> Layout:
    """From top to bottom, what is said beside each link."""
    kernel, l1 = Box(8, 8, 352, 42), Box(8, 148, 206, 204)
    shared, l2, dram = Box(216, 148, 352, 204), Box(8, 310, 352, 360), Box(8, 436, 352, 470)
    start = Anchor.START

    def down(
        x: float, y0: float, y1: float, facts: tuple[tuple[str, str], ...], size: str = ""
    ) -> Link:
        return Link((x, y0), (x, y1), facts, (x + 14, (y0 + y1) / 2 - 4), size, start)

    links = (
        down(
            24,
            42,
            148,
            (
                ("loads ", "global_load_requests"),
                ("stores ", "global_store_requests"),
                (READ, "global_read"),
                (WRITE, "global_write"),
            ),
            "global_read",
        ),
        down(228, 42, 148, (("ld ", "shared_loads"), ("st ", "shared_stores"))),
        down(24, 204, 310, ((READ, "l2_to_l1"), (WRITE, "l1_to_l2")), "l2_to_l1"),
        down(228, 204, 310, (("bulk ", "bulk_read"),), "bulk_read"),
        down(24, 360, 436, ((READ, "dram_read"), (WRITE, "dram_write")), "dram_read"),
    )
    levels = (
        Level("Kernel", kernel),
        Level("L1", l1, ((HIT, "l1_hit"),)),
        Level("Shared memory", shared, SHARED),
        Level("L2", l2, ((HIT, "l2_hit"),)),
        Level("DRAM", dram),
    )
    return Layout(360, 478, levels, links)


LAYOUTS = {Width.WIDE: _wide(), Width.NARROW: _narrow()}


def memory(ablation: Ablation, width: Width = Width.WIDE) -> Scene:
    layout = LAYOUTS[width]
    rows = [row for row in ablation.ends if row.figures]
    drawn = _draw(rows, layout) if rows else "memory traffic not collected"
    absent = [row for row in ablation.ends if not row.figures]
    return framed(
        drawn,
        width,
        layout.width,
        absent,
        name="memory",
        title="What goes through the memory?",
        subtitle=f"{where(ablation)}; under ncu, all launches of a call",
        alt=ALT,
        caption=CAPTION,
    )


def _draw(rows: Sequence[Row], layout: Layout) -> tuple[list[Item], float]:
    colours = (BEFORE, AFTER)[: len(rows)]
    entries = [
        Entry(fitted(row.label, layout.width - 60, SIZE), Stroke(colour, 4.0))
        for row, colour in zip(rows, colours, strict=True)
    ]
    items, top = key(entries, EDGE, 0, layout.width)
    sides = [row.figures for row in rows]
    drawn = [*_links(layout.links, sides, top), *_levels(layout.levels, sides, top)]
    group = Group(tuple(drawn), tuple(row.variant for row in rows), words=_spoken(rows))
    return [*items, group], top + layout.height


def _spoken(rows: Sequence[Row]) -> str:
    told = [f"{name} {said(key, [r.figures for r in rows])}" for name, key in SPOKEN]
    return f"{' and '.join(row.label for row in rows)}: {', '.join(told)}"


SPOKEN = (("from DRAM", "dram_read"), ("from L2", "l2_to_l1"), ("L2 hits", "l2_hit"))


def said(name: str, sides: Sequence[Figures]) -> str:
    """``12.5 → 3.1 MB``; what a side has not is not collected."""
    spec = catalog()[name]
    texts = [quantity(side[name].value, spec.unit) if name in side else ABSENT for side in sides]
    unit = "" if spec.unit == "M" or all(name not in side for side in sides) else f" {spec.unit}"
    same = texts[1:] and len(set(texts)) == 1
    return f"{texts[0] if same else ' → '.join(texts)}{unit}"


def _links(links: Sequence[Link], sides: Sequence[Figures], top: float) -> Iterator[Item]:
    most = max(
        (side[link.bytes_of].value for side in sides for link in links if link.bytes_of in side),
        default=0.0,
    )
    for link in links:
        start, end = (_below(at, top) for at in (link.start, link.end))
        for n, side in enumerate(sides):
            shift = (n - (len(sides) - 1) / 2) * APART
            across = start[1] == end[1]
            by = (0.0, shift) if across else (shift, 0.0)
            points = tuple((x + by[0], y + by[1]) for x, y in (start, end))
            yield Line(points, Stroke((BEFORE, AFTER)[n], _breadth(link, side, most)))
        for n, (word, name) in enumerate(link.facts):
            at = _below(link.at, top)
            rise = n * LINE if link.anchor is Anchor.START else n * (LINE + 22)
            if link.anchor is Anchor.START:
                rise -= (len(link.facts) - 1) * LINE / 2
            text = f"{word}{said(name, sides)}"
            yield Label((at[0], at[1] + rise), text, SMALL, anchor=link.anchor, halo=True)


def _breadth(link: Link, side: Figures, most: float) -> float:
    known = side.get(link.bytes_of)
    if known is None or most <= 0:
        return THINNEST
    return max(THINNEST, WIDEST * sqrt(max(0.0, known.value) / most))


def _levels(levels: Sequence[Level], sides: Sequence[Figures], top: float) -> Iterator[Item]:
    for level in levels:
        box = Box(level.box.x0, level.box.y0 + top, level.box.x1, level.box.y1 + top)
        yield Outline(box, Stroke("muted", 1.2), 4.0)
        x, y = box.middle
        lines = [level.name, *(f"{word}{said(name, sides)}" for word, name in level.facts)]
        first = y + 0.35 * SIZE - (len(lines) - 1) * LINE / 2
        for n, text in enumerate(lines):
            room = fitted(text, box.width - 6, SMALL if n else SIZE, bold=not n)
            at = (x, first + n * LINE)
            yield Label(at, room, SMALL if n else SIZE, anchor=Anchor.MIDDLE, bold=not n)


def _below(at: XY, top: float) -> XY:
    return at[0], at[1] + top
