"""Pages for tests: the recorded ladder, a long one made of its rows, and a hostile one.

found, sources = recorded()     # the repository's own evidence
found, sources = long_ladder()  # baseline, twelve steps and the references, with their sources
found, sources = hostile()      # markup in every name, message, text and source
"""

from __future__ import annotations

import dataclasses
import json
import re
from functools import lru_cache
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import msgspec

from answers import not_none
from made_ladder import ablation, bottleneck, saying, with_row
from workbench.app.executor import Local
from workbench.app.target import find_target
from workbench.cuda.programs import virtual_name
from workbench.derive.factors import LargestChanges
from workbench.derive.figures import StallTime
from workbench.derive.source_diff import Cost, LineCosts, ProfiledSource, Sources, source_diff
from workbench.judge.findings import Gate
from workbench.judge.ladder import Ablation, judge
from workbench.judge.line_costs import ladder_sources
from workbench.judge.predictions import PredictionOutcome
from workbench.judge.provenance import EvidenceEnvironment
from workbench.judge.rows import Row
from workbench.load import LadderEvidence
from workbench.render.chart.charts import charts, memory_chart, stall_pair
from workbench.render.chart.svg import WIDTH, XY, Box, Drawing, text_width
from workbench.render.document.ladder_report import report
from workbench.render.page import render_page
from workbench.study.config import Config
from workbench.words import GateState, PredictionResult
from workspaces import FIXTURE

STEPS = 12
NASTY = (
    '</script><script>window.planted = 1</script><!-- <img src=x onerror="window.planted = 2"> \''
)


def render(found: Ablation, sources: Sources | None = None) -> str:
    sources = sources or Sources()
    document = report(found, sources.diffs)
    return render_page(document, found, sources)


def charts_of(found: Ablation) -> list[Drawing]:
    """Every chart of the page."""
    steps = [stall_pair(row, found) for row in found.rows]
    moved = [memory_chart(row, found) for row in found.rows if row.figures]
    return [*charts(found), *moved, *filter(None, steps)]


@lru_cache
def evidence() -> tuple[LadderEvidence, Config]:
    target = find_target(Local(), FIXTURE, None, None)
    return target.load_ladder(target.steps([]), sources=True), target.workspace.config


@lru_cache
def recorded() -> tuple[Ablation, Sources]:
    found = judge(*evidence())
    return found, ladder_sources(evidence()[0], found)


@lru_cache
def recorded_page() -> str:
    return render(*recorded())


@lru_cache
def long_ladder() -> tuple[Ablation, Sources]:
    """The recorded steps over and over, each with its own copy of its sources and costs."""
    found, sources = recorded()
    first, *others = found.rows
    steps = [row for row in others if sources.sides[row.variant].costs]
    assert len(steps) >= STEPS
    rows, sides, diffs = [first], dict(sources.sides), {}
    for n in range(STEPS):
        row = steps[n % len(steps)]
        name = f"step{n + 1:02}"
        step = msgspec.structs.replace(not_none(row.step), variant=name, parent=rows[-1].variant)
        sides[name] = renamed(sources.sides[row.variant], row.variant, name)
        diffs[name] = source_diff(sides[rows[-1].variant], sides[name])
        rows.append(dataclasses.replace(row, variant=name, step=step))
    return dataclasses.replace(found, rows=tuple(rows)), Sources(sides, diffs)


def renamed(side: ProfiledSource, before: str, after: str) -> ProfiledSource:
    """The same sources and costs under other file names, with a line of their own at the end."""
    texts = {
        file.replace(before, after): f"{text}// {after}\n" for file, text in side.texts.items()
    }
    assert side.costs is not None
    lines = {
        (file.replace(before, after), line): cost for (file, line), cost in side.costs.lines.items()
    }
    return ProfiledSource(texts, dataclasses.replace(side.costs, lines=lines))


def renamed_row(found: Ablation, before: str, after: str) -> Ablation:
    def named(rows: tuple[Row, ...]) -> tuple[Row, ...]:
        return tuple(
            dataclasses.replace(row, variant=after) if row.variant == before else row
            for row in rows
        )

    ladders = tuple(dataclasses.replace(each, rows=named(each.rows)) for each in found.ladders)
    return dataclasses.replace(found, rows=named(found.rows), ladders=ladders)


def hostile(nasty: str = NASTY) -> tuple[Ablation, Sources]:
    """Every text that comes from outside is ``hostile_texts`` or holds it."""
    name = f'fix1"{nasty}'
    found = ablation(
        1, title=nasty, gpu=nasty, warnings=(saying(nasty),), parameters={nasty: nasty}
    )
    found = dataclasses.replace(found, environment=EvidenceEnvironment(ncu_flags=(nasty,)))
    row = found.row("fix1")
    step = msgspec.structs.replace(
        not_none(row.step),
        variant=name,
        key_change=nasty,
        bottleneck=nasty,
        rationale=nasty,
        lesson=nasty,
    )
    limit = dataclasses.replace(bottleneck(nasty), metric=nasty)
    result = PredictionResult.REFUTED
    prediction = PredictionOutcome(nasty, nasty, nasty, nasty, 1.0, 2.0, result)
    found = with_row(
        found,
        "fix1",
        step=step,
        kernels=("<script>", nasty),
        capture=nasty,
        bottlenecks=(limit,),
        gates=(Gate(nasty, GateState.FAILED, saying(nasty)),),
        stalls={**row.stalls, nasty: 0.2},
        predictions=(prediction,),
        title=nasty,
        figures={
            **row.figures,
            nasty: dataclasses.replace(
                row.figures["duration"], id=nasty, label=nasty, unit=nasty, metric=nasty
            ),
        },
    )
    told = dataclasses.replace(
        not_none(row.against_parent),
        before=nasty,
        after=nasty,
        largest_changes=LargestChanges((), ()),
        stall_microseconds=(StallTime(nasty, 1.0, 2.0),),
    )
    found = renamed_row(with_row(found, "fix1", against_parent=told), "fix1", name)
    text = f"// {nasty}\n{nasty}\n/* {nasty}\n"
    file = virtual_name("s", f"{nasty}.cu")
    cost = Cost(1.0, 1.0, 1.0, stalls={nasty: 1.0})
    after = ProfiledSource(
        {file: text.replace("script", "SCRIPT")}, LineCosts({(file, 2): cost}, Cost(), 1.0)
    )
    before = ProfiledSource({virtual_name("s", "baseline.cu"): text}, None, nasty)
    return found, Sources({"baseline": before, name: after}, {name: source_diff(before, after)})


VOID = frozenset({"meta", "link", "br", "img", "hr", "input", "source"})


class Outline(HTMLParser):
    """Checks that tags nest, and keeps what the tests ask for."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[tuple[int, str]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.words = ""
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append((int(tag[1]), ""))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" in self.open:
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif "style" not in self.open:
            self.words += data
            if any(re.fullmatch("h[1-6]", tag) for tag in self.open):
                level, text = self.headings[-1]
                self.headings[-1] = (level, text + data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def data(self) -> dict[str, Any]:
        (text,) = [text for attributes, text in self.scripts if attributes.get("id") == "data"]
        found = json.loads(text)
        assert isinstance(found, dict)
        return found


@dataclasses.dataclass(frozen=True)
class Element:
    """One element of a chart: a ``path``, ``rect``, ``circle`` or ``text`` with its attributes.

    ``words`` are its text, or the title that a pointer over it shows.
    """

    tag: str
    attributes: dict[str, str]
    words: str

    def __getitem__(self, name: str) -> float:
        return float(self.attributes[name])

    @property
    def points(self) -> list[XY]:
        """The points of a line."""
        pairs = (pair.split() for pair in self.attributes["d"][1:].split("L"))
        return [(float(x), float(y)) for x, y in pairs]

    @property
    def colour(self) -> str:
        return self.attributes["class"].split()[0][2:]

    @property
    def box(self) -> Box:
        """What it covers, of a text that is not turned or of a bar."""
        if self.tag == "rect":
            x, y = self["x"], self["y"]
            return Box(x, y, x + self["width"], y + self["height"])
        bold, size = " b" in self.attributes["class"], self["font-size"]
        wide = text_width(self.words, size, bold=bold)
        ends = {"start": 0.0, "middle": wide / 2, "end": wide}
        x = self["x"] - ends[self.attributes.get("text-anchor", "start")]
        return Box(x, self["y"] - size, x + wide, self["y"] + 0.3 * size)


Segment = tuple[XY, XY]


def middle(mark: Element) -> XY:
    """Where a sign stands: a circle, a square or a diamond."""
    if mark.tag == "circle":
        return mark["cx"], mark["cy"]
    if mark.tag == "rect":
        return mark.box.middle
    x, y, half = re.findall(r"[\d.]+", mark.attributes["d"])[:3]
    return float(x), float(y) + float(half)


def elements(drawing: Drawing, tag: str = "", width: float = WIDTH) -> list[Element]:
    """What a chart has below its title, in the order in which it is drawn."""
    root = ElementTree.fromstring(f"<svg>{''.join(drawing.on(width))}</svg>")
    every = (Element(e.tag, dict(e.attrib), "".join(e.itertext()).strip()) for e in root)
    return [element for element in every if tag in ("", element.tag)]


def texts(drawing: Drawing) -> list[str]:
    return [text.words for text in elements(drawing, "text")]


def overlap(one: Box, other: Box) -> bool:
    across = one.x0 < other.x1 and other.x0 < one.x1
    return across and one.y0 < other.y1 and other.y0 < one.y1


def holds(box: Box, at: XY, margin: float = 0.0) -> bool:
    x, y = at
    across = box.x0 - margin <= x <= box.x1 + margin
    return across and box.y0 - margin <= y <= box.y1 + margin


def cross(one: Segment, other: Segment) -> bool:
    """Whether two segments cross at a point that is no end of theirs."""

    def side(a: XY, b: XY, at: XY) -> float:
        return (b[0] - a[0]) * (at[1] - a[1]) - (b[1] - a[1]) * (at[0] - a[0])

    (a, b), (c, d) = one, other
    apart = side(a, b, c) * side(a, b, d), side(c, d, a) * side(c, d, b)
    return max(apart) < -1


def contrast(one: str, other: str) -> float:
    """Ratio of the relative luminances of two ``#rrggbb`` colours, 1 to 21 (WCAG 2)."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
