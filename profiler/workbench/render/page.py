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

from workbench.derive.figures import ISSUING, stall_label
from workbench.judge.ablation import Ablation
from workbench.judge.verdict import BASELINE, CONFIRMED, KEPT
from workbench.load.catalog import STALL_PREFIX
from workbench.render import narrative, page_ladder, page_roofline, page_sources, page_steps
from workbench.render.canvas import DARK, LIGHT, Palette
from workbench.render.page_data import facts, roof_facts
from workbench.render.page_sources import Sources
from workbench.render.page_stalls import bars, reasons
from workbench.render.sections import COMPUTE_ROOFS, ENVIRONMENT
from workbench.render.spans import spans
from workbench.render.stall_chart import OTHER
from workbench.render.tables import ABSENT, factor, number, percent, reason

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
    shown = reasons(ablation)
    return {
        "title": ablation.title or ablation.study, "study": ablation.study,
        "shape": ablation.shape, "gpu": ablation.gpu, "reference": ablation.reference,
        "parameters": [[key, str(value)] for key, value in ablation.parameters.items()],
        "result": spans(narrative.result(ablation)), "tiles": tiles(ablation),
        "warnings": list(ablation.warnings), "absent": ABSENT,
        "ladder": {"columns": page_ladder.columns(ablation), "rows": page_ladder.rows(ablation)},
        "roofline": {
            "drawings": [
                {"name": name, "drawing": page_roofline.roofline(ablation, size)}
                for name, size in (("wide", page_roofline.WIDE), ("narrow", page_roofline.NARROW))
            ] if ablation.ceilings else [],
            "rows": _roof_rows(ablation),
            "absent": _absent(ablation, "point"),
        },
        "stalls": {"reasons": shown, "bars": bars(ablation), "absent": _absent(ablation, "stalls"),
                   "index": {entry["key"]: place for place, entry in enumerate(shown)},
                   "rows": _stall_rows(ablation, [entry["key"] for entry in shown])},
        "limits": [page_steps.bottleneck(found) for found in ablation.rows[0].bottlenecks]
        if ablation.rows else [],
        "baseline": ablation.rows[0].variant if ablation.rows else "",
        "steps": page_steps.steps(ablation, sources),
        "failures": [spans(line) for line in narrative.failures(ablation)],
        "variants": page_steps.variants(ablation, sources),
        "method": [spans(line) for line in narrative.method(ablation)],
        "environment": _environment(ablation),
        "origins": _origins(ablation),
        "data": _data(ablation, sources, shown),
    }  # fmt: skip


def tiles(ablation: Ablation) -> list[dict[str, str]]:
    """The figures that a reader looks for first."""
    best, first = ablation.best, ablation.rows[0] if ablation.rows else None
    found = []
    if best is not None and first is not None and best.warm:
        took = f"{number(best.warm.median)} µs"
        found.append({"label": f"best: {best.variant}", "value": took, "note": "warm median"})
        for ratio, name in ((best.over_baseline, first.variant),
                            (best.over_reference, ablation.reference)):  # fmt: skip
            if ratio is not None and name and name != best.variant:
                ends = f"{factor(ratio.low)} to {factor(ratio.high)}"
                found.append({"label": f"speed relative to {name}", "value": factor(ratio.ratio),
                              "note": f"{ends}, 95 % interval"})  # fmt: skip
    steps = [row for row in ablation.rows if row.verdict != BASELINE]
    if steps:
        count = Counter(row.verdict for row in steps)
        others = ", ".join(f"{n} {word}" for word, n in sorted(count.items()) if word != KEPT)
        found.append({"label": "steps kept", "value": f"{count[KEPT]} of {len(steps)}",
                      "note": others or "none was rejected"})  # fmt: skip
    outcomes = [outcome.result for row in steps for outcome in row.predictions]
    if outcomes:
        found.append({"label": "predictions confirmed", "note": "written before measuring",
                      "value": f"{outcomes.count(CONFIRMED)} of {len(outcomes)}"})  # fmt: skip
    return found


def _absent(ablation: Ablation, what: str) -> list[str]:
    return [f"{row.variant} ({reason(row)})" for row in ablation.everything
            if not getattr(row, what)]  # fmt: skip


def _roof_rows(ablation: Ablation) -> list[dict[str, str]]:
    found = []
    for row in ablation.everything:
        point = row.point
        if point is None:
            continue
        by = "DRAM" if point.limit == "dram" else COMPUTE_ROOFS[point.ceiling]
        wrong = "above its roof: an error in the data" if point.above_roof else ""
        found.append({"variant": row.variant, "intensity": number(point.intensity),
                      "rate": number(point.flops_per_second / 1e12),
                      "bound": number(point.bound / 1e12), "by": by,
                      "share": percent(point.share), "wrong": wrong})  # fmt: skip
    return found


def _stall_rows(ablation: Ablation, keys: list[str]) -> list[dict[str, Any]]:
    return [
        {"variant": bar["variant"],
         "shares": [next((percent(part["width"] / 100) for part in bar["parts"]
                          if part["key"] == key), "0 %") for key in keys]}
        for bar in bars(ablation)
    ]  # fmt: skip


def _environment(ablation: Ablation) -> list[dict[str, Any]]:
    found = ablation.environment
    shape = " ".join(f"{key}={value}" for key, value in ablation.parameters.items())
    rows = [{"what": "Study and shape", "value": f"{ablation.study}, {ablation.shape} ({shape})"}]
    rows += [{"what": label, "value": str(found.get(key) or ABSENT)} for label, key in ENVIRONMENT]
    clocks = [r.figures["sm_clock"].value for r in ablation.everything if "sm_clock" in r.figures]
    ends = dict.fromkeys(number(clock) for clock in (min(clocks), max(clocks))) if clocks else {}
    rows.append({"what": "SM clock under ncu",
                 "value": f"{' to '.join(ends)} GHz" if ends else ABSENT})  # fmt: skip
    date = f"{found.get('date') or ABSENT} ({ablation.source})"
    rows.append({"what": "Measured by", "value": str(found.get("command") or ABSENT)})
    rows.append({"what": "Date", "value": date})
    return rows


def _origins(ablation: Ablation) -> list[dict[str, str]]:
    """What the page shows, and the metric or file behind it."""
    found = [{"what": f"Ladder: {column['label']}", "from": column["source"]}
             for column in page_ladder.columns(ablation) if column["source"]]  # fmt: skip
    found += [{"what": f"Roofline: {entry['label']}", "from": entry["source"]}
              for entry in roof_facts(ablation).values()]  # fmt: skip
    found.append({"what": "Stalls by line", "from": f"{STALL_PREFIX}* by program counter, "
                  "through the line table of the kernel"})  # fmt: skip
    return found


def _data(ablation: Ablation, sources: Sources, shown: list[dict[str, str]]) -> dict[str, Any]:
    drawn = [entry["key"] for entry in shown]
    names = page_sources.all_reasons(sources, drawn)
    other = next((entry for entry in shown if entry["key"] == OTHER), None)
    return {
        "reasons": [
            {"key": name, "part": name if name in drawn else OTHER if other else ISSUING,
             "label": OTHER if name == OTHER else stall_label(name)}
            for name in names
        ],
        "variants": [facts(row, drawn) for row in ablation.everything],
        "roofs": roof_facts(ablation),
        "sources": page_sources.texts(sources),
        "heat": page_sources.heat(sources, names),
        "diffs": page_sources.diffs(ablation, sources),
    }  # fmt: skip


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
        page=page_model(ablation, sources), palette=palette(), scripts=scripts,
        theme=scripts[THEME], script=scripts[SCRIPT],
        style=environment.get_template(STYLE).render(),
        hashes=[_hash(script) for script in scripts.values()],
    )  # fmt: skip
    return text.rstrip() + "\n"
