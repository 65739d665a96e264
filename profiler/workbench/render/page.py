"""``report.html``: the document as one self-contained page, with what its script needs: each source
once, what its lines cost by variant, and the diffs. Pure, but for its templates.

Shares are of all warp state samples of a variant, from 0 to 1, as in ``derive.source_diff``.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import sha256
from itertools import groupby
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from workbench.derive.figures import Figure, stall_label
from workbench.derive.source_diff import (
    COUNTERS,
    Cost,
    DiffRow,
    FileDiff,
    Hunk,
    ProfiledSource,
    SourceDiff,
    Sources,
    base,
    is_host,
    why_no_costs,
)
from workbench.judge.ladder import Ablation
from workbench.render import doc
from workbench.render.chart import svg
from workbench.render.chart.charts import COLOURS, OTHER_FILL
from workbench.render.doc import figure_value, percent, with_unit
from workbench.render.document.hunks import costs, weight, where
from workbench.render.document.printed_ladder import at_shape, kind, table_size
from workbench.render.document.variant import marked
from workbench.render.templates import templates
from workbench.render.text import harmless
from workbench.words import ABSENT, VIRTUAL_ROOT, LineKind

TEMPLATE, STYLE, SCRIPT, THEME = "report.html.j2", "report.css", "report.js", "report-theme.js"
CODE = "Sources, line by line"
COMMENTS = "comments or blanks only"


def opened_first(ablation: Ablation) -> str:
    """The kept step with the largest gain."""
    gains = {
        row.variant: row.over_parent.ratio
        for row in ablation.rows
        if row.over_parent and kind(row) == doc.Marking.KEPT
    }
    best = ablation.best.variant if ablation.best else ""
    return max(gains, key=gains.__getitem__, default=best)


def render_page(document: doc.Section, ablation: Ablation, sources: Sources) -> str:
    """The page of a study as HTML. The same values give the same bytes."""
    sides = {
        row.variant: sources.sides.get(row.variant, ProfiledSource({}))
        for row in ablation.everything
    }
    files = PageFiles(sides)
    environment = templates(html=True)
    parts = {n: environment.get_template(n).render() for n in (THEME, SCRIPT, STYLE)}
    every = [block for block in document.blocks if isinstance(block, doc.Section)]
    head = [section for section in every if not section.title]
    sections = [section for section in every if section.title]
    sections += figure_section({row.variant: row.figures for row in ablation.everything})
    listed = [steps_of(section)[0] for section in sections]
    after = 1 + next((n for n, steps in enumerate(listed) if steps), -1)
    keys = {step.variant: step.key for steps in listed for step in steps}
    writer = Writer(keys)
    nav = [(anchor(section.key), doc.plain(section.title)) for section in sections]
    text = environment.get_template(TEMPLATE).render(
        title=doc.plain(document.title),
        study=ablation.study,
        place=f"{ablation.study}, {table_size(ablation)} on {ablation.gpu}",
        nav=[*nav[:after], ("code", CODE), *nav[after:]],
        code_title=CODE,
        result=Markup(writer.blocks(head)),
        opened=opened_first(ablation),
        story=Markup(writer.blocks(sections[:after])),
        evidence=Markup(writer.blocks(sections[after:])),
        variants=[
            {
                "name": name,
                "anchor": anchor(f"code-{name}"),
                "files": [key for _, key in files.of(name)],
                "note": beside(side, files.of(name)),
            }
            for name, side in sides.items()
        ],
        absent=ABSENT,
        palette=svg.PALETTE,
        chart_style=Markup(svg.page_style()),
        data=_data(ablation, sources, sides, files),
        theme=Markup(parts[THEME]),
        script=Markup(parts[SCRIPT]),
        style=Markup(parts[STYLE]),
        hashes=[
            Markup(b64encode(sha256(parts[name].encode()).digest()).decode())
            for name in (THEME, SCRIPT)
        ],
    )
    return text.rstrip() + "\n"


def figure_section(figures: Mapping[str, Mapping[str, Figure]]) -> list[doc.Section]:
    """Every figure by variant, with the lowest and the highest value: what a search finds."""
    by_id = {key: each[key] for each in figures.values() for key in each}
    if not by_id:
        return []

    def head(figure: Figure) -> doc.Cell:
        every = [each[figure.id] for each in figures.values() if figure.id in each]
        ends = [figure_value(f(every, key=lambda each: each.value)) for f in (min, max)]
        text = with_unit(figure.label, figure.unit)
        return doc.cell(text, note=" to ".join(dict.fromkeys(ends)))

    def cell(name: str, figure: Figure) -> str:
        return figure_value(figures[name].get(figure.id))

    columns: list[doc.Field[Figure]] = [doc.Field("figure", "figure", head)]
    columns += [doc.numeric(name, name, partial(cell, name)) for name in figures]
    columns.append(doc.Field("metric", "ncu metric", lambda figure: figure.metric))
    title = "Every figure, side by side"
    shown = doc.table("figures", columns, by_id.values(), key=lambda figure: figure.id)
    return [doc.section("figures", title, shown, *marked(*figures.values()))]


def _data(
    ablation: Ablation, sources: Sources, sides: Mapping[str, ProfiledSource], files: PageFiles
) -> dict[str, object]:
    """Return what the script puts together on demand: sources, diffs, and their costs. A step that
    is judged at another shape has there the costs of the lines of both its sides.
    """
    every = [(name, name, side) for name, side in sides.items()]
    diffs: dict[str, list[dict[str, object]]] = {}
    for row in ablation.rows:
        diff, elsewhere = sources.diffs.get(row.variant), sources.elsewhere.get(row.variant, ())
        if diff is not None and row.step and row.step.parent:
            pair = (row.step.parent, row.variant)
            at = at_shape(row.against_parent_at, ablation) if elsewhere else ""
            names = [f"{name}{at}" for name in pair]  # under which ``heat`` has its costs
            every += zip(names, pair, elsewhere, strict=False)
            diffs[row.variant] = list(_changed(diff, pair, names, files))
    costs = [cost for *_, s in every if s.costs for cost in s.costs.lines.values()]
    reasons = sorted({reason for cost in costs for reason in cost.stalls})
    return {
        "reasons": [
            {"colour": COLOURS.get(name, OTHER_FILL), "label": stall_label(name)}
            for name in reasons
        ],
        "comments": COMMENTS,
        "sources": files.texts,
        "heat": heat(every, files, reasons),
        "diffs": diffs,
    }


LIKENESS = {LineKind.CHANGED: 1, LineKind.COSMETIC: 2}
WORTH_SAYING = 0.005  # of all samples
DIGITS = 5  # of shares: a thousandth of a percent


class PageFiles:
    """The study's own files of all variants. A text has one key, whichever variants share it: its
    base name, or where another text has that, its name in the line table.
    """

    def __init__(self, sides: Mapping[str, ProfiledSource]) -> None:
        self.texts: dict[str, str] = {}
        self._keys: dict[tuple[str, str], str] = {}
        keys: dict[tuple[str, str], str] = {}
        for variant, side in sides.items():
            own = [file for file in side.texts if file.startswith(VIRTUAL_ROOT)]
            for file in sorted(own, key=is_host):  # what runs on the GPU is the argument
                name, text = base(file), side.texts[file]
                choices = (name, f"{name} ({variant})", file, f"{file} ({variant})")
                free = next(key for key in choices if key not in self.texts)
                key = self._keys[variant, file] = keys.setdefault((name, text), free)
                self.texts[key] = harmless(text)

    def of(self, variant: str) -> list[tuple[str, str]]:
        """Name in the line table and key of each file of a variant."""
        return [(file, key) for (name, file), key in self._keys.items() if name == variant]

    def key(self, variant: str, file: str) -> str | None:
        return self._keys.get((variant, file))


def _changed(
    diff: SourceDiff, pair: tuple[str, str], names: Sequence[str], files: PageFiles
) -> Iterator[dict[str, object]]:
    """Yield the changed files of a parent and its step, the costliest first; their costs are under
    these ``names``.
    """
    changed, (parent, variant) = [file for file in diff.files if file.hunks], pair
    for file in sorted(changed, key=_cost_of_file, reverse=True):
        before, after = files.key(parent, file.before), files.key(variant, file.after)
        if (before or not file.before) and (after or not file.after):
            yield {
                "before": before,
                "after": after,
                "blocks": _blocks(file.rows),
                "heat": names,
                "hunks": {str(hunk.number): _heading(hunk) for hunk in file.hunks},
            }


def _cost_of_file(file: FileDiff) -> tuple[bool, bool, float]:
    """Files of comments last, modules before them, the file with the costliest hunk first."""
    code = [hunk for hunk in file.hunks if not hunk.comments_only]
    costliest = max(map(weight, code), default=0.0)
    return bool(code), not is_host(file.after or file.before), costliest


def _heading(hunk: Hunk) -> list[Any]:
    """Return where a hunk stands, what its lines cost in words, their share of all samples on the
    side where it is larger, and by what hunks are ordered; what changes no code costs nothing.
    """
    if hunk.comments_only:
        return [where(hunk), COMMENTS, 0, 0]
    words = "host code" if hunk.host else "; ".join(costs(hunk))
    share = max(hunk.before.share or 0.0, hunk.after.share or 0.0)
    return [where(hunk), words, round(share, DIGITS), round(weight(hunk), DIGITS)]


def _blocks(rows: Iterable[DiffRow]) -> list[list[Any]]:
    """[first before, first after, length] of equal lines; [pairs, hunk] of changed ones, with null
    where a side has no line. Lines count from 0.
    """
    blocks: list[list[Any]] = []
    for same, group in groupby(rows, key=lambda row: row.kind == LineKind.SAME):
        run = list(group)
        if not same:
            blocks.append([[_pair(row) for row in run], run[0].hunk])
            continue
        first = run[0]
        assert first.before is not None
        assert first.after is not None
        blocks.append([first.before.line - 1, first.after.line - 1, len(run)])
    return blocks


def _pair(row: DiffRow) -> list[int | None]:
    ends = [line.line - 1 if line else None for line in (row.before, row.after)]
    return [*ends, LIKENESS[row.kind]] if row.kind in LIKENESS and None not in ends else ends


def heat(
    sides: Sequence[tuple[str, str, ProfiledSource]], files: PageFiles, reasons: list[str]
) -> dict[str, dict[str, dict[str, list[Any]]]]:
    """Name to file to line to its cost, of a name, its variant and its profile; a reason is its
    place in ``reasons``.
    """
    places = {reason: place for place, reason in enumerate(reasons)}
    heated: dict[str, dict[str, dict[str, list[Any]]]] = {}
    for name, variant, side in sides:
        if side.costs is None:
            continue
        total = side.costs.total
        keys = dict(files.of(variant))
        for (file, at), cost in side.costs.lines.items():
            if at > 0 and file in keys:
                lines = heated.setdefault(name, {}).setdefault(keys[file], {})
                lines[str(at)] = _line(cost, total, places)
    return heated


def _line(cost: Cost, total: Cost, places: Mapping[str, int]) -> list[Any]:
    """[[reason, share], ...] with the largest first, microseconds, and of each of ``COUNTERS`` the
    share of the variant's total; null where it was not collected or the total is zero.
    """
    whole = cost.samples or 1.0
    stalls = sorted(cost.stalls.items(), key=lambda item: (-item[1], item[0]))
    shares = [
        [places[reason], round((cost.share or 0.0) * samples / whole, DIGITS)]
        for reason, samples in stalls
    ]
    time = None if cost.microseconds is None else float(f"{cost.microseconds:.3g}")
    counters = []
    for name in COUNTERS:
        part, all_ = getattr(cost, name), getattr(total, name)
        counters.append(round(part / all_, DIGITS) if part is not None and all_ else None)
    return [shares, time, *counters]


def beside(side: ProfiledSource, files: list[tuple[str, str]]) -> str:
    """Return which part of the samples falls on no shown line, or why nothing is known."""
    if side.costs is None:
        why = f": {why_no_costs(side.why)}" if side.why else ""
        return f"Costs by line are {ABSENT}{why}."
    names = {name for name, _ in files}
    parts = [
        f"{percent(cost.share)} on {f'lines of {base(file)}' if file else 'no files line'}"
        for file, cost in side.costs.by_file().items()
        if file not in names and (cost.share or 0.0) >= WORTH_SAYING
    ]
    return f"Of all samples, {' and '.join(parts)}, not shown here." if parts else ""


# Words that are marked wherever they fill a cell, so that a colour never stands for itself
OUTCOMES = {
    **dict.fromkeys(("passed", "confirmed", "kept"), "good"),
    **dict.fromkeys(("failed", "refuted", "rejected"), "bad"),
    **dict.fromkeys(("open", "not measurable", "inconclusive"), "unsure"),
}


def anchor(key: str) -> str:
    """An id from any text; the same behind ``#`` leads to it."""
    return quote(harmless(key), safe="")


def steps_of(section: doc.Section) -> tuple[list[doc.Section], list[doc.Block]]:
    """The steps of a section, which stand beside a list of them, and its other blocks."""
    steps = [b for b in section.blocks if isinstance(b, doc.Section) and b.variant]
    return steps, [b for b in section.blocks if b not in steps]


@dataclass(frozen=True)
class Writer:
    """``steps`` has the key of each step's section by its variant: what names it leads there. A
    page has charts in its own colours; a notebook ``as_images``. Its methods are what the template
    asks for.
    """

    steps: Mapping[str, str]
    as_images: bool = False

    anchor = staticmethod(anchor)
    label = staticmethod(doc.label)
    steps_of = staticmethod(steps_of)

    def blocks(self, content: Iterable[doc.Block], level: int = 2) -> str:
        """``level`` is that of the next headings."""
        macros: Any = templates(html=True).get_template("blocks.html.j2").module
        return str(macros.blocks(list(content), self, level, ""))

    @cached_property
    def without_steps(self) -> Writer:
        return Writer({})

    def href(self, span: doc.Span) -> str:
        """Only to places on the page and to the web: a file beside the report may not be there."""
        is_step = span.code and span.text in self.steps
        href = span.href or (f"#{self.steps[span.text]}" if is_step else "")
        if href.startswith("#"):
            return f"#{anchor(href[1:])}"
        return href if href.startswith(("https://", "http://")) else ""

    def chart(self, block: svg.Drawing) -> Markup:
        return Markup(block._repr_html_() if self.as_images else block.inline())

    def is_diff(self, block: doc.Fold) -> bool:
        """A fold that is there for a diff alone is open: where there is room, it is read."""
        return all(isinstance(each, doc.SourceChange) for each in block.blocks)

    def step(self, row: doc.TableRow, head: doc.Cell) -> str:
        """Return where the head of a row leads."""
        has_link = row.key not in self.steps or any(span.href for span in head.text)
        return "" if has_link else f"#{anchor(self.steps[row.key])}"

    def marked(self, cell: doc.Cell, row: doc.TableRow, column: doc.Field[Any]) -> tuple[str, str]:
        """A verdict takes the sign of its row, an outcome that of its word."""
        word = doc.plain(cell.text)
        if column.key == "verdict" and row.kind is not doc.Marking.PLAIN:
            return word, row.kind
        return word, OUTCOMES.get(word, "")

    def classes(self, column: doc.Field[Any], ladder: bool) -> Markup:
        names = ["n"] * column.is_number + [f"c-{column.key}"] * ladder
        return Markup(' class="{}"').format(" ".join(names)) if names else Markup()
