"""``workbench lessons``: what every kind of change brought, on all ladders of the workspace."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.commands.options import LessonsOptions
from workbench.commands.printing import Output, show_json
from workbench.commands.progress import note
from workbench.commands.target import find_study, tell_packaged
from workbench.errors import EnvironmentLacks, WorkbenchError
from workbench.evidence.layout import evidence_folders
from workbench.evidence.recorded import Evidence
from workbench.judge.ladder import judge
from workbench.judge.lessons import Lesson, lessons, matching, techniques
from workbench.judge.snapshot import snapshot
from workbench.render.as_json import lessons as as_json
from workbench.render.document.lessons import page
from workbench.study.model import Study
from workbench.study.workspace import Workspace, find_workspace

NAMED = 6  # steps without evidence, where there are no others


def run(options: LessonsOptions) -> None:
    workspace = find_workspace(options.project)
    every = tuple(learned(workspace, options))
    if options.word is not None and every:
        every = matching(every, options.word)
    found = tuple(lesson for lesson in every if lesson.is_known)
    left_out = tuple(lesson for lesson in every if not lesson.is_known)
    if not found:
        named = ", ".join(lesson.row.variant for lesson in left_out[:NAMED]) or "no step here"
        raise EnvironmentLacks(
            f"{named}: no current evidence is on record",
            hint="`workbench ablate` records it where there is a GPU and ncu; `workbench list` "
            "shows what there is",
        )
    by_kind = techniques(found)
    if options.json:
        return show_json(as_json.techniques(by_kind, left_out))
    out = Output(options.wide, options.markdown)
    whole = options.word is not None or options.wide or not out.on_terminal
    told = page(by_kind, left_out, whole=whole, all_kinds=options.word is None)
    out.document(told)
    if not whole:
        note("hint: `workbench lessons WORD` shows the steps of one: a technique, step or figure")
    return None


def learned(workspace: Workspace, options: LessonsOptions) -> Iterator[Lesson]:
    """Of every study, or of the one that is named; a study that cannot be read costs only itself,
    unless it is named. Raises UsageError.
    """
    if workspace.packaged:
        tell_packaged([options.study] if options.study else workspace.studies())
    for name in [options.study] if options.study else workspace.studies():
        try:
            _, study = find_study(options.project, name, tell=False)
            yield from of_study(workspace, study)
        except WorkbenchError as error:
            if options.study:
                raise
            note(f"{name} is left out: {error.message}")


def of_study(workspace: Workspace, study: Study) -> Iterator[Lesson]:
    """On every card that there is evidence of."""
    for folder in evidence_folders(workspace.ablations, study.name):
        evidence = Evidence(study, study.default_shape, folder)
        steps = study.ladder.chain([])
        known = snapshot(evidence, steps, timed=steps)
        yield from lessons(known, judge(known, workspace.config), workspace.config)
