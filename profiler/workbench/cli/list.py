"""``workbench list``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.app.list import variants_of
from workbench.app.target import check_figures, tell_packaged
from workbench.cli.options import ListOptions
from workbench.cli.printing import tell
from workbench.cli.streams import executor
from workbench.errors import UsageError
from workbench.render.document.listing import Listed, listing
from workbench.study.model import Study
from workbench.study.workspace import find_workspace


def described(study: Study, variants: Sequence[Listed]) -> dict[str, Any]:
    return {
        "study": study.name,
        "title": study.ladder.title,
        "shapes": list(study.shapes),
        "default_shape": study.default_shape,
        "variants": [
            {
                "variant": each.name,
                "parent": each.parent or None,
                "key_change": each.key_change,
                "reference": each.is_reference,
                "evidence": list(map(vars, each.evidence)),
                "changed": list(each.changed),
            }
            for each in variants
        ],
    }


def run(options: ListOptions) -> None:
    workspace = find_workspace(options.project)
    names = [options.study] if options.study else workspace.studies()
    if not names and not options.json:
        raise UsageError(
            f"there is no study in {workspace.kernels}",
            hint="a study is a folder kernels/NAME with a study.py: `workbench init` makes one",
        )
    studies = [workspace.study(name) for name in names]
    for study in studies:
        check_figures(study.ladder)
    if workspace.packaged:
        tell_packaged(executor("list"), [study.name for study in studies])
    known = [(study, variants_of(workspace, study)) for study in studies]
    tell(
        options,
        lambda: {"studies": [described(*each) for each in known]},
        lambda: [listing(*each, wide=options.wide) for each in known],
    )
