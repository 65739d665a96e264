"""``workbench check``."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Any

import typer
from msgspec import to_builtins

from workbench.commands.progress import Progress, note
from workbench.commands.target import Target, find_target
from workbench.render.tables import markdown_table, number
from workbench.run.measure import Measurement, Plan
from workbench.study.model import tolerance_at
from workbench.words import SCHEMA_VERSION, Status


def measure(target: Target, names: list[str]) -> None:
    plan = Plan(target.shape, checked=tuple(names))
    with Progress() as progress:
        Measurement(target.study, target.workspace.config, target.folder, plan, progress).run()


def results(target: Target, names: list[str]) -> list[dict[str, Any]]:
    evidence = target.evidence()
    found = []
    for name in names:
        build = evidence.build(name)
        for shape in target.study.shapes:
            record = evidence.check(name, shape)
            data = to_builtins(record.current) if record.current else {}
            status = data.get(
                "status", "stale" if record.state == Status.STALE else "not collected"
            )
            if build.current and build.current.error:
                status, data = "failed", {"why": build.current.error}
            found.append(
                {
                    "variant": name,
                    "shape": shape,
                    "status": status,
                    "why": data.get("why", ""),
                    "max_abs": data.get("max_abs"),
                    "relative": data.get("relative"),
                }
            )
    return found


def run(
    project: Path | None, study: str | None, shape: str | None, names: list[str], json: bool
) -> None:
    target = find_target(project, study, shape)
    names = target.runnable(names)
    if target.live:
        measure(target, names)
    found = results(target, names)
    bound = tolerance_at(target.study.tolerance, target.study.shapes[target.shape])
    if json:
        print(
            json_module.dumps(
                {
                    "schema_version": SCHEMA_VERSION,
                    "study": target.study.name,
                    "gpu": target.folder.gpu,
                    "evidence": "measured" if target.live else "recorded",
                    "tolerance": {"max_abs": bound.absolute, "relative": bound.relative},
                    "checks": found,
                },
                indent=1,
            )
        )
    else:
        if not target.live:
            print(f"recorded evidence ({target.folder.gpu}): no GPU here to check on\n")
        rows = [
            [
                c["variant"],
                c["shape"],
                c["status"],
                number(c["max_abs"]),
                number(c["relative"]),
                c["why"],
            ]
            for c in found
        ]
        header = [
            "variant",
            "shape",
            "result",
            f"max error (≤ {bound.absolute:g})",
            f"relative (≤ {bound.relative:g})",
            "why",
        ]
        print(markdown_table(header, rows, "lllrrl"))
    bad = [
        c for c in found if c["status"] not in ("correct", "unsupported", "not collected", "stale")
    ]
    for c in bad:
        note(f"error: {c['variant']} is {c['status']} at {c['shape']}: {c['why']}")
    if bad:
        note("hint: a variant that is wrong is not timed; mend it before anything else")
        raise typer.Exit(1)
