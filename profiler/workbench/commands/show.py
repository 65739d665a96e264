"""``workbench show``."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Any

from workbench.commands.target import Target, find_target
from workbench.derive.diff.alignment import physical_lines
from workbench.derive.diff.costs import LineCosts, line_costs
from workbench.derive.figures import stall_label
from workbench.errors import UsageError
from workbench.judge.ladder import judge
from workbench.ncu.capture import Capture, find_metric, load_sources, require_lines
from workbench.ncu.captures import captures_of
from workbench.ncu.reader import Wanted
from workbench.render import jsonable, terminal
from workbench.render.plain import printable
from workbench.render.tables import markdown_table
from workbench.words import SCHEMA_VERSION, Status


def current_capture(target: Target, variant: str) -> tuple[Path, Wanted, Capture]:
    evidence = target.evidence()
    entry = evidence.capture_index(variant)
    index = entry.usable
    if index is None:
        why = "has no capture" if entry.state == Status.MISSING else "has only a stale capture"
        raise UsageError(
            f"{variant} {why} at {target.shape} on {target.folder.gpu}",
            hint=f"workbench profile {variant}",
        )
    capture = captures_of(evidence).of(variant)
    assert capture is not None
    return evidence.report_path(index), index.wanted, capture


def show_metric(target: Target, variant: str, name: str, json: bool) -> None:
    path, wanted, _ = current_capture(target, variant)
    rows = find_metric(path, wanted, name)
    if json:
        print(
            json_module.dumps(
                {
                    "schema_version": SCHEMA_VERSION,
                    "variant": variant,
                    "capture": path.name,
                    "metrics": rows,
                },
                indent=1,
            )
        )
        return
    table = [
        [
            str(r["launch"]),
            r["kernel"],
            "not collected" if r["value"] is None else str(r["value"]),
            r["unit"],
        ]
        for r in rows
    ]
    print(f"{name} of {variant} ({path.name})\n")
    print(markdown_table(["launch", "kernel", "value", "unit"], table, "rlrl"))


Rows = list[dict[str, Any]]


def line_rows(costs: LineCosts, file: str, text: str) -> Rows:
    """Every line of a source with its stall samples, their share of all samples, the top reason
    and the instructions; None where not collected.
    """
    found = (
        (n, content, costs.of(file, n)) for n, content in enumerate(physical_lines(text), start=1)
    )
    return [
        {
            "line": n,
            "samples": _whole(cost.samples),
            "share": cost.share,
            "microseconds": cost.microseconds,
            "top_stall": cost.top_stall,
            "instructions": _whole(cost.instructions),
            "text": content,
        }
        for n, content, cost in found
    ]


def _whole(count: float | None) -> int | None:
    return None if count is None else int(count)


def print_lines(file: str, rows: Rows, note: str = "") -> None:
    """A source with the share of all samples and the top stall reason before each line."""
    if is_idle(rows):
        print(f"{printable(file)}: no instruction was executed there\n")
        return
    total = sum(r["samples"] or 0 for r in rows)
    print(f"{printable(file)}: stall samples by line, as a share of all samples ({total} here)\n")
    if note:
        print(f"{note}\n")
    for r in rows:
        share = f"{r['share']:6.1%}" if r["samples"] else " " * 6
        stall = stall_label(r["top_stall"]) if r["top_stall"] else ""
        print(f"{share} {stall[:18]:<18} {r['line']:>4}  {printable(r['text'])}".rstrip())


def hottest_first(files: dict[str, Rows]) -> dict[str, Rows]:
    """By stall samples: headers that a kernel merely includes come last."""
    return dict(sorted(files.items(), key=lambda item: -sum(r["samples"] or 0 for r in item[1])))


def is_idle(rows: Rows) -> bool:
    return not any(r["samples"] or r["instructions"] for r in rows)


def show_source(target: Target, variant: str, json: bool) -> None:
    path, wanted, capture = current_capture(target, variant)
    require_lines(capture)
    texts = load_sources(path, wanted)
    costs = line_costs(capture.lines, capture.metrics, capture.collected)
    files = hottest_first({f: line_rows(costs, f, text) for f, text in texts.items()})
    if json:
        print(
            json_module.dumps(
                {"schema_version": SCHEMA_VERSION, "variant": variant, "files": files}, indent=1
            )
        )
        return
    for file, rows in files.items():
        print_lines(file, rows)


def run(
    project: Path | None,
    study: str | None,
    shape: str | None,
    variant: str,
    metric: str | None,
    source: bool,
    json: bool,
) -> None:
    target = find_target(project, study, shape)
    variant = target.variants([variant])[0]
    if metric is not None:
        return show_metric(target, variant, metric, json)
    if source:
        return show_source(target, variant, json)
    ladder = target.study.ladder
    found = judge(target.evidence(), target.workspace.config, ladder.chain([]))
    row = found.row(variant)
    if json:
        data = {
            "schema_version": SCHEMA_VERSION,
            "study": found.study,
            "gpu": found.gpu,
            **jsonable.full_row(row),
        }
        print(json_module.dumps(data, indent=1))
        return
    print(terminal.first_line(found))
    print("\n" + terminal.variant(row, found))
    print("\nevidence: " + ", ".join(f"{kind} {state}" for kind, state in row.state.items()))
