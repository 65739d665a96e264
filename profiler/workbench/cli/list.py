"""``list``: studies and the state of their evidence."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from workbench.app.target import check_figures, folders, tell_packaged, tell_passed_over
from workbench.cli.options import ListOptions
from workbench.cli.streams import executor, show
from workbench.errors import UsageError
from workbench.load import load
from workbench.render import doc
from workbench.render.as_json import shown_fields
from workbench.render.in_short import command
from workbench.study.model import Study, base_name
from workbench.study.sources import Fingerprints
from workbench.study.workspace import Workspace, find_workspace
from workbench.words import NONE, Status, grouped

KINDS = ("build", "check", "timing", "capture")  # of evidence
SHOWN = 4  # shapes


@dataclass(frozen=True)
class EvidenceState:
    """The state of a variant's evidence at a shape on a GPU: all kinds in one word, and of each.
    ``why`` says what is wrong with a capture that is damaged.
    """

    gpu: str
    shape: str
    state: str
    build: Status
    check: Status
    timing: Status
    capture: Status
    why: str = ""


@dataclass(frozen=True)
class Listed:
    """A variant as ``list`` shows it."""

    variant: str
    parent: str | None
    key_change: str
    reference: bool
    evidence: tuple[EvidenceState, ...]


@dataclass(frozen=True)
class ListedStudy:
    """A study as ``list`` shows it."""

    study: str
    title: str
    shapes: tuple[str, ...]
    default_shape: str
    variants: tuple[Listed, ...]


@dataclass(frozen=True)
class ListedStudies:
    studies: list[ListedStudy]


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


def listed_study(workspace: Workspace, study: Study) -> ListedStudy:
    """The variants with the state of their evidence; a folder is opened once, and read once a
    shape.
    """
    shapes = [name for name, shape in study.shapes.items() if shape.profiled]
    states: dict[str, list[EvidenceState]] = {name: [] for name in study.variants}
    prints = Fingerprints(study)
    for folder in folders(workspace, study.name):
        every = load(study, folder, dict.fromkeys(shapes), samples=False, prints=prints)
        for shape, here in every.items():
            for name, recorded in here.variants.items():
                state = recorded.state
                if {state["timing"], state["capture"]} != {Status.MISSING}:
                    of = folder.gpu, shape, in_one_word(state.values())
                    states[name].append(EvidenceState(*of, **state, why=recorded.damage))
    variants = []
    for name, variant in study.variants.items():
        step = study.ladder.step(name)
        parent = (step.parent if step else None) or None
        change = step.key_change if step else variant.title
        evidence = tuple(states[name])
        variants.append(Listed(name, parent, change, variant.is_reference, evidence))
    title, every_shape = study.ladder.title, tuple(study.shapes)
    return ListedStudy(study.name, title, every_shape, study.default_shape, tuple(variants))


def in_one_word(states: Collection[Status]) -> str:
    """One word for all kinds of evidence of a variant; what is measured counts where it is."""
    kinds = set(states)
    for bad in (Status.DAMAGED, Status.STALE):
        if bad in kinds:
            return bad
    return kinds.pop() if len(kinds) == 1 else "partial"


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


def blocks(result: ListedStudies, _: object) -> list[doc.Block]:
    return [listing(each) for each in result.studies]


def listing(listed: ListedStudy) -> doc.Section:
    """One study: its shapes, and the variants of every module with the state of its evidence."""
    variants, default = listed.variants, listed.default_shape
    others = [shape for shape in listed.shapes if shape != default]
    text = ", ".join(others) if len(others) < SHOWN else f"{len(others)} others (--json)"
    shapes = f"shapes: {default} (default){', ' * bool(others)}{text}"
    rows = []  # the variant of each module without parameters, else its first
    for name, every in grouped((base_name(each.variant), each) for each in variants).items():
        first = next((one for one in every if one.variant == name), every[0])
        more = f" (+{len(every) - 1})" if len(every) > 1 else ""
        rows.append(replace(first, variant=first.variant + more))
    shown = doc.table("variants", LISTED, rows, key=lambda v: v.variant)
    damaged = [
        doc.paragraph(f"{v.variant} has a damaged capture at {each.shape} ({each.gpu}): {each.why}")
        for v in variants
        for each in v.evidence
        if each.why
    ]
    title = doc.line(doc.code(listed.study), f": {listed.title}")
    return doc.section(listed.study, title, doc.paragraph(shapes), shown, *damaged)


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
