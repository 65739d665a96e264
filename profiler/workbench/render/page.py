"""``report.html``: one self-contained page from a judged ablation. Pure, but for its templates.

``page_model`` gives all that the page says as plain data; the template escapes every piece of it.
What needs a script to show (sources, diffs, what stands behind a point) is in ``data``, which the
page carries as JSON.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from dataclasses import astuple, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.derive.diff.model import Sources
from workbench.derive.factors import FACTORS, LABELS, METRICS
from workbench.derive.figures import ISSUING, stall_label
from workbench.judge.rows import Ablation
from workbench.ncu.catalog import STALL_PREFIX
from workbench.render import (
    ceiling_table,
    narrative,
    page_ladder,
    page_roofline,
    page_sources,
    page_steps,
    page_why,
    sections,
)
from workbench.render.canvas import DARK, LIGHT, Palette
from workbench.render.page_data import facts, roof_facts
from workbench.render.page_sources import Files
from workbench.render.page_stalls import bars, reasons
from workbench.render.roofline_table import (
    level_rows,
    levels_align,
    levels_header,
    roof_align,
    roof_header,
    roof_rows,
)
from workbench.render.roofline_table import notes as roof_notes
from workbench.render.spans import spans
from workbench.render.stall_chart import OTHER
from workbench.render.tables import factor, number, percent, reason
from workbench.words import ABSENT, Verdict

if TYPE_CHECKING:
    import jinja2

TEMPLATE, STYLE, SCRIPT, THEME = "report.html.j2", "report.css", "report.js", "report-theme.js"


def page_environment(folders: list[Path]) -> jinja2.Environment:
    """Templates from ``folders``, the first that has one winning; everything is escaped."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def page_model(ablation: Ablation, sources: Sources) -> dict[str, Any]:
    """Everything on the page as JSON-able data."""
    shown, files = reasons(ablation), Files(sources)
    levels = _levels(ablation)
    return {
        "title": ablation.title or ablation.study,
        "study": ablation.study,
        "shape": ablation.shape,
        "gpu": ablation.gpu,
        "reference": ablation.reference,
        "parameters": [[key, str(value)] for key, value in ablation.parameters.items()],
        "result": spans(narrative.result(ablation)),
        "tiles": tiles(ablation),
        "warnings": list(ablation.warnings),
        "absent": ABSENT,
        "ladder": {"columns": page_ladder.columns(ablation), "rows": page_ladder.rows(ablation)},
        "roofline": {
            "levels": levels,
            "spare": any(
                label["spare"]
                for level in levels
                for entry in level["drawings"]
                for label in entry["drawing"]["labels"]
            ),
            "header": roof_header(ablation),
            "align": roof_align(ablation),
            "rows": _rows_by_variant(ablation, roof_rows(ablation)),
            "levels_header": levels_header(ablation),
            "levels_align": levels_align(ablation),
            "levels_rows": _rows_by_variant(ablation, level_rows(ablation)),
            "measured_header": ceiling_table.HEADER,
            "measured_align": ceiling_table.ALIGN,
            "measured_rows": ceiling_table.rows(ablation.measured) if ablation.measured else [],
            "notes": [spans(line) for line in roof_notes(ablation)],
            "absent": _absent(ablation, "point"),
        },
        "stalls": {
            "reasons": shown,
            "bars": bars(ablation),
            "absent": _absent(ablation, "stalls"),
            "index": {entry["key"]: place for place, entry in enumerate(shown)},
            "rows": _stall_rows(ablation, [entry["key"] for entry in shown]),
        },
        "limits": [page_steps.bottleneck(found) for found in ablation.rows[0].bottlenecks]
        if ablation.rows
        else [],
        "baseline": ablation.rows[0].variant if ablation.rows else "",
        "why": page_why.ladder(ablation),
        "steps": page_steps.steps(ablation, sources),
        "across": {
            "variant": ablation.across.variant if ablation.across else "",
            "header": sections.ACROSS,
            "rows": sections.across_rows(ablation),
            "sentence": spans(narrative.across(ablation)),
        },
        "failures": [spans(line) for line in narrative.failures(ablation)],
        "variants": page_steps.variants(ablation, sources, files),
        "method": [spans(line) for line in narrative.method(ablation)],
        "environment": [
            *sections.environment_rows(ablation),
            ["Measured by", ablation.environment.command or ABSENT],
        ],
        "origins": _origins(ablation),
        "data": _data(ablation, sources, files, shown),
    }


def tiles(ablation: Ablation) -> list[dict[str, str]]:
    """The figures that a reader looks for first."""
    best, first = ablation.best, ablation.rows[0] if ablation.rows else None
    found = []
    if best is not None and first is not None and best.warm:
        took = f"{number(best.warm.median)} µs"
        found.append({"label": f"best: {best.variant}", "value": took, "note": "warm median"})
        for ratio, name in (
            (best.over_baseline, first.variant),
            (best.over_reference, ablation.reference),
        ):
            if ratio is not None and name and name != best.variant:
                ends = f"{factor(ratio.low)} to {factor(ratio.high)}"
                found.append(
                    {
                        "label": f"speed relative to {name}",
                        "value": factor(ratio.ratio),
                        "note": f"{ends}, 95 % interval",
                    }
                )
    steps = [row for row in ablation.rows if row.verdict != Verdict.BASELINE]
    if steps:
        count = Counter(row.verdict for row in steps)
        others = ", ".join(
            f"{n} {word}" for word, n in sorted(count.items()) if word != Verdict.KEPT
        )
        found.append(
            {
                "label": "steps kept",
                "value": f"{count[Verdict.KEPT]} of {len(steps)}",
                "note": others or "none was rejected",
            }
        )
    score = ablation.score
    if score.total:
        found.append(
            {
                "label": "predictions confirmed",
                "note": f"{score.refuted} refuted, {score.not_measurable} not measurable",
                "value": f"{score.confirmed} of {score.total}",
            }
        )
    return found


def _absent(ablation: Ablation, what: str) -> list[str]:
    return [
        f"{row.variant} ({reason(row)})" for row in ablation.everything if not getattr(row, what)
    ]


def _levels(ablation: Ablation) -> list[dict[str, Any]]:
    """Each level of memory with its drawings by the width they are for."""
    wide = page_roofline.drawings(ablation, page_roofline.WIDE)
    narrow = page_roofline.drawings(ablation, page_roofline.NARROW)
    return [
        {
            "level": pair[0]["level"],
            "name": pair[0]["name"],
            "drawings": [
                {"name": name, "drawing": drawing}
                for name, drawing in zip(("wide", "narrow"), pair, strict=True)
            ],
        }
        for pair in zip(wide, narrow, strict=True)
    ]


def _rows_by_variant(ablation: Ablation, rows: list[list[str]]) -> list[dict[str, Any]]:
    return [
        {"variant": row.variant, "cells": cells}
        for row, cells in zip(ablation.everything, rows, strict=True)
    ]


def _stall_rows(ablation: Ablation, keys: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "variant": bar["variant"],
            "label": bar["label"],
            "shares": [
                next(
                    (percent(part["width"] / 100) for part in bar["parts"] if part["key"] == key),
                    "0 %",
                )
                for key in keys
            ],
        }
        for bar in bars(ablation)
    ]


def _origins(ablation: Ablation) -> list[dict[str, str]]:
    """What the page shows, and the metric or file behind it."""
    found = [
        {"what": f"Ladder: {column['label']}", "from": column["source"]}
        for column in page_ladder.columns(ablation)
        if column["source"]
    ]
    found += [
        {"what": f"Roofline: {entry['label']}", "from": entry["source"]}
        for entry in roof_facts(ablation).values()
    ]
    found += [
        {"what": f"Factor: {LABELS[key][0].lower()}", "from": METRICS[key]} for key in FACTORS
    ]
    found.append(
        {
            "what": "Costs by line",
            "from": f"{STALL_PREFIX}* by program counter, "
            "through the line table of the kernel; times are shares of "
            "gpu__time_duration.sum",
        }
    )
    return found


def _data(
    ablation: Ablation, sources: Sources, files: Files, shown: list[dict[str, str]]
) -> dict[str, Any]:
    drawn = [entry["key"] for entry in shown]
    names = page_sources.all_reasons(sources, drawn)
    other = next((entry for entry in shown if entry["key"] == OTHER), None)
    return {
        "reasons": [
            {
                "key": name,
                "part": name if name in drawn else OTHER if other else ISSUING,
                "label": OTHER if name == OTHER else stall_label(name),
            }
            for name in names
        ],
        "variants": [facts(row, drawn) for row in ablation.everything],
        "roofs": roof_facts(ablation),
        "sources": files.texts,
        "heat": page_sources.heat(ablation, sources, files, names),
        "diffs": page_sources.diffs(ablation, sources, files),
    }


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def palette() -> dict[str, tuple[str, str]]:
    """Colour name to its light and dark value, the charts' own."""
    names = [field.name for field in fields(Palette)]
    return dict(zip(names, zip(astuple(LIGHT), astuple(DARK), strict=True), strict=True))


def render_page(ablation: Ablation, sources: Sources, environment: jinja2.Environment) -> str:
    """The page as HTML. The same ablation and sources give the same bytes."""
    scripts = {name: environment.get_template(name).render() for name in (THEME, SCRIPT)}
    text = environment.get_template(TEMPLATE).render(
        page=page_model(ablation, sources),
        palette=palette(),
        scripts=scripts,
        theme=scripts[THEME],
        script=scripts[SCRIPT],
        style=environment.get_template(STYLE).render(),
        hashes=[_hash(script) for script in scripts.values()],
    )
    return text.rstrip() + "\n"
