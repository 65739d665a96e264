"""``OPTIMIZATION_REPORT.md`` from a judged ablation. Pure, but for the templates it is given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.derive.linediff import SourceDiff
from workbench.judge.ablation import Ablation, Row
from workbench.judge.verdict import BASELINE
from workbench.load.evidence import ADOPTED, CURRENT
from workbench.render import charts, hunks, markdown, narrative, roofline_table, sections, why
from workbench.render.tables import ABSENT, ablation_table, interval, number, reason

if TYPE_CHECKING:
    import jinja2

TEMPLATE = "OPTIMIZATION_REPORT.md.j2"
CHARTS = tuple(charts.FILES)
DIFF_LINES = 300  # of one step; with twelve steps the page must stay small enough for GitHub
DIFF_BYTES = 16_000


def template_environment(folders: list[Path]) -> jinja2.Environment:
    """Templates from ``folders``, the first that has one winning file by file."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        autoescape=False,  # Markdown: workbench.render.markdown escapes what needs it
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        authored=markdown.authored, paragraphs=markdown.paragraphs, literal=markdown.literal,
        code=markdown.code, fenced=markdown.fenced, number=number, interval=interval,
    )  # fmt: skip
    return environment


def shown_diff(text: str) -> str:
    """A diff as a fenced block, cut where it is too long for a report."""
    lines = text.splitlines()
    kept: list[str] = []
    size = 0
    for line in lines[:DIFF_LINES]:
        size += len(line.encode()) + 1
        if size > DIFF_BYTES:
            break
        kept.append(line)
    block = markdown.fenced("\n".join(kept), "diff")
    left = len(lines) - len(kept)
    return f"{block}\n\n{left} more lines are left out here." if left else block


def render_report(
    ablation: Ablation, diffs: Mapping[str, str], environment: jinja2.Environment,
    lines: Mapping[str, SourceDiff] | None = None,
) -> str:  # fmt: skip
    """The report as Markdown. ``diffs`` has a step's unified diff against its parent, ``lines``
    what its lines cost.
    """
    steps = [
        {
            "row": row,
            "step": row.step,
            "reason": reason(row) if row.status not in (CURRENT, ADOPTED) else "",
            "diff": shown_diff(diffs[row.variant]) if diffs.get(row.variant) else "",
            "lines": (lines or {}).get(row.variant),
        }
        for row in ablation.rows
        if row.step and row.verdict != BASELINE
    ]
    text = environment.get_template(TEMPLATE).render(
        ablation=ablation, rows=ablation.rows, steps=steps, charts=CHARTS, absent=ABSENT,
        table=ablation_table(ablation), narrative=narrative, sections=sections, hunks=hunks,
        why=why, rooflines=roofline_table, ladder=why.ladder(ablation),
        fixes=[entry["row"].variant for entry in steps if isinstance(entry["row"], Row)],
    )  # fmt: skip
    return text.rstrip() + "\n"
