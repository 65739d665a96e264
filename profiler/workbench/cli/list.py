"""``list``: studies and the state of their evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from workbench.app.list import (
    EvidenceState,
    Listed,
    ListedStudies,
    ListedStudy,
    listed_study,
    tell_passed_over,
)
from workbench.app.target import check_figures, tell_packaged
from workbench.cli.options import ListOptions
from workbench.cli.streams import executor, show
from workbench.errors import UsageError
from workbench.render import doc
from workbench.render.as_json import shown_fields
from workbench.render.in_short import command
from workbench.study.model import base_name
from workbench.study.workspace import find_workspace
from workbench.words import NONE, Status, grouped


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
        tell_packaged(executor(), [study.name for study in studies])
    tell_passed_over(executor(), workspace, [study.name for study in studies])
    show(options, ListedStudies([listed_study(workspace, study) for study in studies]))


KINDS = ("build", "check", "timing", "capture")  # of evidence
SHOWN = 4  # shapes


def blocks(result: ListedStudies, _: object) -> list[doc.Block]:
    return [listing(each) for each in result.studies]


def data(result: ListedStudies, *, full: bool) -> object:
    """Return the studies; the ``state`` of evidence in one word, or all of it."""
    if full:
        return result
    shown = [
        {
            **shown_fields(study, "variants"),
            "variants": [
                {
                    **shown_fields(each, "evidence"),
                    "evidence": [shown_fields(one, *KINDS) for one in each.evidence],
                }
                for each in study.variants
            ],
        }
        for study in result.studies
    ]
    return {"studies": shown}


def brief(result: ListedStudies) -> dict[str, object]:
    """Return each variant of one study with its evidence, and of several how many there are."""
    studies = [
        {
            "study": listed.study,
            "title": listed.title,
            "default_shape": listed.default_shape,
            "shapes": len(listed.shapes),
            "variants": {each.variant: summary(each.evidence) for each in listed.variants}
            if len(result.studies) == 1
            else len(listed.variants),
        }
        for listed in result.studies
    ]
    names = [listed.study for listed in result.studies]
    verb = "ablate" if len(names) == 1 else "list"
    return {"studies": studies, **(command(names[0], verb) if names else command("", "init"))}


LISTED: list[doc.Field[Listed]] = [
    doc.Field("variant", "variant", lambda v: v.variant),
    doc.Field(
        "parent", "parent", lambda v: "reference" if v.reference else v.parent or NONE, rank=2
    ),
    doc.Field("evidence", "evidence", lambda v: summary(v.evidence), rank=1),
    doc.Field(
        "change",
        "key change",
        lambda v: doc.Cell(doc.authored(v.key_change), short=doc.first_clause(v.key_change)),
        rank=3,
    ),
]


def summary(evidence: Sequence[EvidenceState]) -> str:
    """``4 timed, 2 profiled``: at so many shapes; what is stale or damaged is reported too."""
    counts = {
        "timed": sum(each.timing == Status.CURRENT for each in evidence),
        "profiled": sum(each.capture == Status.CURRENT for each in evidence),
        "stale": sum(each.state == Status.STALE for each in evidence),
        "damaged": sum(each.capture == Status.DAMAGED for each in evidence),
    }
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "none"


def _of_modules(variants: Sequence[Listed]) -> list[Listed]:
    """The variant of each module without parameters, else its first, and how many others it has."""
    shown = []
    for name, every in grouped((base_name(each.variant), each) for each in variants).items():
        first = next((one for one in every if one.variant == name), every[0])
        more = f" (+{len(every) - 1})" if len(every) > 1 else ""
        shown.append(replace(first, variant=first.variant + more))
    return shown


def listing(listed: ListedStudy) -> doc.Section:
    """One study: its shapes, and the variants of every module with the state of its evidence."""
    variants, default = listed.variants, listed.default_shape
    others = [shape for shape in listed.shapes if shape != default]
    text = ", ".join(others) if len(others) < SHOWN else f"{len(others)} others (--json)"
    shapes = f"shapes: {default} (default){', ' * bool(others)}{text}"
    shown = doc.table("variants", LISTED, _of_modules(variants), key=lambda v: v.variant)
    damaged = [
        doc.paragraph(f"{v.variant} has a damaged capture at {each.shape} ({each.gpu}): {each.why}")
        for v in variants
        for each in v.evidence
        if each.why
    ]
    title = doc.line(doc.code(listed.study), f": {listed.title}")
    return doc.section(listed.study, title, doc.paragraph(shapes), shown, *damaged)
