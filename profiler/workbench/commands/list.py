"""``workbench list``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.commands.options import ListOptions
from workbench.commands.printing import Output, show_json
from workbench.commands.target import tell_packaged
from workbench.errors import UsageError, WorkbenchError
from workbench.evidence.layout import EvidenceFolder, evidence_folders, listed
from workbench.evidence.recorded import Evidence
from workbench.judge.predictions import check_figures
from workbench.render.document import listing as document
from workbench.render.document.blocks import Paragraph, Section, words
from workbench.render.document.listing import Listed, Recorded
from workbench.study.model import Study
from workbench.study.sources import source_files
from workbench.study.workspace import Workspace, find_workspace
from workbench.words import Status

States = Mapping[str, Status]


def summary(state: States) -> str:
    """One word for all kinds of evidence of a variant; what is measured counts where it is."""
    kinds = set(state.values())
    if kinds == {Status.CURRENT}:
        return Status.CURRENT
    if Status.STALE in kinds:
        return Status.STALE
    return Status.MISSING if kinds == {Status.MISSING} else "partial"


def folders(workspace: Workspace, study: str) -> list[EvidenceFolder]:
    known = evidence_folders(workspace.ablations, study)
    if workspace.packaged:
        base = workspace.evidence_base(study)
        known += [EvidenceFolder(p) for p in listed(base) if p.is_dir()]
    return known


def states(workspace: Workspace, study: Study) -> dict[str, list[tuple[Recorded, States]]]:
    """What is on record of every variant; a folder is opened once, and read once a shape."""
    shapes = [name for name, shape in study.shapes.items() if shape.profiled]
    told: dict[str, list[tuple[Recorded, States]]] = {name: [] for name in study.variants}
    for folder in folders(workspace, study.name):
        evidence = Evidence(study, study.default_shape, folder)
        for shape in shapes:
            here = evidence.at(shape)
            measured = here.measured
            for name, entries in told.items():
                if name not in measured:
                    continue
                state = here.state(name)
                if {state["timing"], state["capture"]} != {Status.MISSING}:
                    recorded = Recorded(
                        gpu=folder.gpu,
                        shape=shape,
                        state=summary(state),
                        timing=state["timing"],
                        capture=state["capture"],
                    )
                    entries.append((recorded, state))
    return told


def changed_files(
    workspace: Workspace, study: Study, known: Mapping[str, list[tuple[Recorded, States]]]
) -> dict[str, list[str]]:
    """Stale variant to its sources that are others than in the commit that last touched its
    evidence; none of what git does not tell.
    """
    stale = [n for n, es in known.items() if any(r.state == Status.STALE for r, _ in es)]
    if not stale or workspace.packaged:
        return {}
    from workbench.run.commits import repository_of

    found = {}
    with suppress(WorkbenchError):
        repository, others = repository_of(workspace), dict[str, set[Path]]()
        every = folders(workspace, study.name)
        for name in stale:
            files = [path for folder in every for path in folder.of_variant(name)]
            for commit in repository.touching(files, most=1) if files else []:
                if commit.sha not in others:
                    others[commit.sha] = set(repository.changed_since(commit, [study.folder]))
                sources = [*source_files(study, study.variants[name]), study.folder / "study.py"]
                if changed := [p.name for p in sources if p.resolve() in others[commit.sha]]:
                    found[name] = changed
    return found


def described(
    study: Study,
    known: Mapping[str, list[tuple[Recorded, States]]],
    changed: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    variants = []
    for each, entries in zip(listing(study, known), known.values(), strict=True):
        evidence = [{**vars(recorded), **state} for recorded, state in entries]
        variants.append(
            {
                "variant": each.name,
                "parent": each.parent or None,
                "key_change": each.key_change,
                "reference": each.is_reference,
                "evidence": evidence,
                "changed": list(changed.get(each.name, ())),
            }
        )
    return {
        "study": study.name,
        "title": study.ladder.title,
        "shapes": list(study.shapes),
        "default_shape": study.default_shape,
        "variants": variants,
    }


def listing(study: Study, known: Mapping[str, list[tuple[Recorded, States]]]) -> list[Listed]:
    told = []
    for name, entries in known.items():
        variant, step = study.variants[name], study.ladder.step(name)
        told.append(
            Listed(
                name=name,
                parent=(step.parent if step else None) or "",
                key_change=step.key_change if step else variant.title,
                is_reference=variant.is_reference,
                evidence=tuple(recorded for recorded, _ in entries),
            )
        )
    return told


def section(
    study: Study,
    known: Mapping[str, list[tuple[Recorded, States]]],
    wide: bool,
    changed: Mapping[str, Sequence[str]],
) -> Section:
    shown = document.listing(
        study.name,
        study.ladder.title,
        list(study.shapes),
        study.default_shape,
        listing(study, known),
        wide,
    )
    told = [
        Paragraph(words(f"{name}: changed since its evidence: {', '.join(files)}"))
        for name, files in changed.items()
    ]
    return replace(shown, blocks=(*shown.blocks, *told))


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
        tell_packaged([study.name for study in studies])
    known = [(study, states(workspace, study)) for study in studies]
    changed = {study.name: changed_files(workspace, study, here) for study, here in known}
    if options.json:
        show_json({"studies": [described(*each, changed[each[0].name]) for each in known]})
    else:
        out = Output(options.wide, options.markdown)
        wide = options.wide
        out.show(*(section(study, each, wide, changed[study.name]) for study, each in known))
