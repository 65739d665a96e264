"""``OPTIMIZATION_REPORT.md`` from a judged ablation. Pure, but for the templates it is given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.derive.diff.model import SourceDiff
from workbench.derive.diff.unified import unified
from workbench.judge.rows import Ablation, Row
from workbench.render import hunks, markdown, narrative, roofline_table, sections, why
from workbench.render.tables import ablation_table, interval, number, reason
from workbench.words import ABSENT, Status, Verdict

if TYPE_CHECKING:
    import jinja2

TEMPLATE = "OPTIMIZATION_REPORT.md.j2"
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
        authored=markdown.authored,
        paragraphs=markdown.paragraphs,
        literal=markdown.literal,
        code=markdown.code,
        fenced=markdown.fenced,
        number=number,
        interval=interval,
    )
    return environment


def shown_diff(found: SourceDiff) -> str:
    """A diff as a fenced block, cut where it is too long for a report; "" where nothing changed."""
    lines = unified(found).splitlines()
    if not lines:
        return ""
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
    ablation: Ablation, diffs: Mapping[str, SourceDiff], environment: jinja2.Environment
) -> str:
    """The report as Markdown. ``diffs`` has a step's diff against its parent."""
    steps = [
        {
            "row": row,
            "step": row.step,
            "reason": reason(row) if row.status not in (Status.CURRENT, Status.ADOPTED) else "",
            "diff": shown_diff(found) if (found := diffs.get(row.variant)) else "",
            "lines": found,
        }
        for row in ablation.rows
        if row.step and row.verdict != Verdict.BASELINE
    ]
    text = environment.get_template(TEMPLATE).render(
        ablation=ablation,
        rows=ablation.rows,
        steps=steps,
        absent=ABSENT,
        table=ablation_table(ablation),
        narrative=narrative,
        sections=sections,
        hunks=hunks,
        why=why,
        rooflines=roofline_table,
        ladder=why.ladder(ablation),
        fixes=[entry["row"].variant for entry in steps if isinstance(entry["row"], Row)],
    )
    return text.rstrip() + "\n"
