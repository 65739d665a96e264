"""``workbench build``."""

from __future__ import annotations

import json as json_module
import re
from typing import Any

import typer

from workbench.commands.options import BuildOptions
from workbench.commands.progress import Progress
from workbench.commands.target import find_study, refuse_captured
from workbench.errors import UsageError
from workbench.render.tables import markdown_table
from workbench.run.measure import build_only
from workbench.study.model import Study
from workbench.study.workspace import including
from workbench.words import SCHEMA_VERSION


def builds(study: Study, names: list[str], arch: str, limit: float) -> list[dict[str, Any]]:
    with Progress() as progress:
        events = build_only(study, names, arch, limit, progress)
    return [
        {
            "variant": e["variant"],
            "arch": arch,
            "kernels": e.get("kernels", []),
            "warnings": e.get("warnings", []),
            "error": e.get("message", ""),
        }
        for e in events
    ]


def run(options: BuildOptions) -> None:
    names, arch, json = options.variants or [], options.arch, options.json
    workspace, found = find_study(options.project, options.study)
    if re.fullmatch(r"sm_\d+[af]?", arch) is None:
        raise UsageError(f"--arch '{arch}' is no architecture", hint="such as sm_90a or sm_80")
    found, names = including(found, names)
    for name in names:
        refuse_captured(found, name)
    names = names or [s.variant for s in found.ladder.steps]
    result = builds(found, names, arch, workspace.config.limits.seconds_per_step)
    if json:
        print(json_module.dumps({"schema_version": SCHEMA_VERSION, "builds": result}, indent=1))
    else:
        rows = [
            [
                b["variant"],
                k["kernel"],
                *(
                    str(k[c])
                    for c in (
                        "registers",
                        "shared_bytes",
                        "stack_bytes",
                        "spill_store_bytes",
                        "spill_load_bytes",
                    )
                ),
                str(len(b["warnings"])),
            ]
            for b in result
            for k in b["kernels"]
        ]
        header = [
            "variant",
            "kernel",
            "registers",
            "shared B",
            "stack B",
            "spill stores B",
            "spill loads B",
            "warnings",
        ]
        print(markdown_table(header, rows, "llrrrrrr"))
        for b in result:
            for warning in b["warnings"]:
                print(f"\n{b['variant']}: {warning}")
            if not b["kernels"] and not b["error"]:
                print(f"\n{b['variant']}: no CUDA source of its own")
    errors = [b for b in result if b["error"]]
    for b in errors:
        typer.echo(f"error: {b['variant']}: {b['error']}", err=True)
    if errors:
        typer.echo("hint: the compiler's message names the file and line", err=True)
        raise typer.Exit(4)
