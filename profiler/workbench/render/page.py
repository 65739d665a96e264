"""``report.html``: the document as one self-contained page, with what its script needs. Pure, but
for its templates.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from markupsafe import Markup

from workbench.derive.diff.line_diff import Sources
from workbench.derive.figures import ISSUING, stall_label
from workbench.judge.rows import Ablation, Row
from workbench.render import html, page_sources
from workbench.render.chart import svg
from workbench.render.chart.charts import page_scenes
from workbench.render.chart.scene import PALETTE
from workbench.render.chart.stall_bars import OTHER, fills
from workbench.render.document.blocks import Document, Fold, Section, plain, words
from workbench.render.document.phrases import in_turn_and_alone
from workbench.render.document.variant import figure_table
from workbench.render.numbers import fine, number
from workbench.render.page_sources import PageFiles
from workbench.words import ABSENT

if TYPE_CHECKING:
    import jinja2


TEMPLATE, STYLE, SCRIPT, THEME = "report.html.j2", "report.css", "report.js", "report-theme.js"
CODE = "Sources, line by line"


def render_page(
    document: Document, ablation: Ablation, sources: Sources, environment: jinja2.Environment
) -> str:
    """The page as HTML. The same values give the same bytes."""
    files = PageFiles(sources)
    colours = fills(row.stalls for row in ablation.everything)
    scripts = {name: environment.get_template(name).render() for name in (THEME, SCRIPT)}
    every = [block for block in document.blocks if isinstance(block, Section)]
    head = [section for section in every if not section.title]
    sections = [section for section in every if section.title]
    after = 1 + next((n for n, section in enumerate(sections) if steps_of(section)), -1)
    steps = {step.variant: step.key for section in sections for step in steps_of(section)}
    writer = html.Writer({one.name: svg.inline(one) for one in page_scenes(ablation)}, steps)
    text = environment.get_template(TEMPLATE).render(
        title=plain(document.title),
        study=ablation.study,
        place=f"{ablation.study}, {ablation.shape} on {ablation.gpu}",
        nav=_nav(sections, after),
        code_title=CODE,
        result=Markup(writer.blocks(head)),
        tiles=list(tiles(ablation)),
        best=ablation.best.variant if ablation.best else "",
        story=Markup(writer.blocks(sections[:after])),
        evidence=Markup(writer.blocks(sections[after:])),
        versions=_versions(ablation, sources, files, writer),
        absent=ABSENT,
        palette=PALETTE,
        chart_style=Markup(svg.page_style()),
        reasons=colours.values(),
        data=_data(ablation, sources, files, list(colours)),
        theme=Markup(scripts[THEME]),
        script=Markup(scripts[SCRIPT]),
        style=Markup(environment.get_template(STYLE).render()),
        hashes=[Markup(b64encode(sha256(s.encode()).digest()).decode()) for s in scripts.values()],
    )
    return text.rstrip() + "\n"


def steps_of(section: Section) -> list[Section]:
    return [block for block in section.blocks if isinstance(block, Section) and block.variant]


def _nav(sections: Sequence[Section], after: int) -> list[tuple[str, str]]:
    """Keys and titles of all parts of the page; that of the sources is the template's own."""
    known = [(html.anchor(section.key), plain(section.title)) for section in sections]
    return [*known[:after], ("code", CODE), *known[after:]]


def _versions(
    ablation: Ablation, sources: Sources, files: PageFiles, writer: html.Writer
) -> list[dict[str, object]]:
    """Every version with its figures, and the files that the page shows of it."""
    return [
        {
            "name": row.variant,
            "anchor": html.anchor(f"code-{row.variant}"),
            "label": row.variant,
            "files": [key for _, key in files.of(row.variant)],
            "note": page_sources.beside(sources.sides.get(row.variant), files.of(row.variant)),
            "figures": Markup(writer.blocks(_figures(row), about=row.variant)),
        }
        for row in ablation.everything
    ]


def _figures(row: Row) -> list[Fold]:
    title = words("All its figures, and the metric behind each")
    return [Fold(title, (figure_table(row.figures, list(row.figures)),))] if row.figures else []


def _data(
    ablation: Ablation, sources: Sources, files: PageFiles, drawn: list[str]
) -> dict[str, object]:
    """What the script puts together where it is asked for: sources, diffs, and their costs.
    ``drawn`` are the stall reasons that have a colour of their own.
    """
    names = page_sources.all_reasons(sources, drawn)
    rest = OTHER if OTHER in drawn else ISSUING
    return {
        "reasons": [
            {
                "part": drawn.index(name if name in drawn else rest),
                "label": OTHER if name == OTHER else stall_label(name),
            }
            for name in names
        ],
        "sources": files.texts,
        "heat": page_sources.heat(ablation, sources, files, names),
        "diffs": page_sources.diffs(ablation, sources, files),
    }


def tiles(ablation: Ablation) -> Iterator[dict[str, str]]:
    """The best version and its speed; the result counts verdicts and predictions."""
    best = ablation.best
    if best is None or best.time is None:
        return
    time = f"{number(best.time.value)} µs"
    yield {"label": f"best: {best.variant}", "value": time, "note": "chained time"}
    for ratio, name in (
        (best.claimed, best.chained.fastest),
        (best.over_baseline, ablation.rows[0].variant),
    ):
        if ratio is not None and name not in ("", best.variant):
            note = f"interval {ABSENT}"
            if ratio.low is not None and ratio.high is not None:
                note = f"{fine(ratio.low)} to {fine(ratio.high)}, {ratio.level}\u00a0% interval"
            if both := in_turn_and_alone(best.over_fastest, best.alone.speedup_over_fastest):
                note = both if ratio is best.claimed else note
            label = f"speed relative to {name}"
            yield {"label": label, "value": fine(ratio.ratio), "note": note}
