"""``workbench list``."""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.evidence.layout import EvidenceFolder, evidence_folders
from workbench.evidence.recorded import Evidence
from workbench.render.tables import markdown_table
from workbench.study.model import Study
from workbench.study.workspace import Workspace, find_workspace
from workbench.words import SCHEMA_VERSION, Status


def summary(state: Mapping[str, Status]) -> str:
    """One word for all kinds of evidence of a variant."""
    kinds = set(state.values())
    if state["capture"] == Status.ADOPTED and state["timing"] == Status.MISSING:
        return Status.ADOPTED
    if kinds == {Status.CURRENT}:
        return Status.CURRENT
    if Status.STALE in kinds:
        return Status.STALE
    return Status.MISSING if kinds == {Status.MISSING} else "partial"


def folders(workspace: Workspace, study: str) -> list[EvidenceFolder]:
    found = evidence_folders(workspace.ablations, study)
    if workspace.packaged:
        base = workspace.evidence_base(study)
        found += [EvidenceFolder(p) for p in sorted(base.glob("*")) if p.is_dir()]
    return found


def describe(workspace: Workspace, study: Study) -> dict[str, Any]:
    shapes = [name for name, shape in study.shapes.items() if shape.profiled]
    variants = []
    for variant in study.variants.values():
        step = study.ladder.step(variant.name)
        evidence = [
            {"gpu": folder.gpu, "shape": shape, "state": summary(state), **state}
            for folder in folders(workspace, study.name)
            for shape in shapes
            if (state := Evidence(study, shape, folder).state(variant.name))
            and {state["timing"], state["capture"]} != {Status.MISSING}
        ]
        variants.append(
            {
                "variant": variant.name,
                "parent": step.parent if step else None,
                "key_change": step.key_change if step else variant.title,
                "reference": variant.is_reference,
                "evidence": evidence,
            }
        )
    return {
        "study": study.name,
        "title": study.ladder.title,
        "shapes": list(study.shapes),
        "default_shape": study.default_shape,
        "variants": variants,
    }


def run(project: Path | None, study: str | None, json: bool) -> None:
    workspace = find_workspace(project)
    names = [study] if study else workspace.studies()
    found = [describe(workspace, workspace.study(name)) for name in names]
    if json:
        print(json_module.dumps({"schema_version": SCHEMA_VERSION, "studies": found}, indent=1))
        return
    for item in found:
        print(f"{item['study']}: {item['title']}")
        print(f"shapes: {', '.join(item['shapes'])} (default {item['default_shape']})\n")
        rows = []
        for v in item["variants"]:
            states = [f"{e['state']} ({e['gpu']}, {e['shape']})" for e in v["evidence"]]
            role = "reference" if v["reference"] else v["parent"] or "baseline"
            rows.append([v["variant"], role, v["key_change"], "; ".join(states) or "none"])
        print(markdown_table(["variant", "parent", "key change", "evidence"], rows, "llll"))
