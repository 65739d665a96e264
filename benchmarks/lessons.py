"""Write docs/lessons.md: every measured step of all ladders, by the kind of change it made.

python -m benchmarks.lessons
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workbench.evidence.layout import evidence_folders
from workbench.evidence.recorded import Evidence
from workbench.judge.ladder import judge
from workbench.judge.snapshot import snapshot
from workbench.judge.view import Views
from workbench.render.document.advice import CATALOGUE
from workbench.render.numbers import fine, interval
from workbench.study.workspace import Workspace, find_workspace
from workbench.words import Change, Role, Status

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "lessons.md"
HEAD = """# What each step taught

{count} steps of {kinds} kinds of change, from the ladders of {studies}, measured on {gpus}.
`python -m benchmarks.lessons` writes this page from the recorded evidence.

A ratio is the parent's chained time over the step's, with its 95 % interval: above 1 the step is
faster. "Other shapes" has the same ratio at the shapes where the step is not judged. The lessons
are quoted from the ladders.
"""
COLUMNS = ("step", "over its parent", "verdict", "other shapes", "lesson")


@dataclass(frozen=True)
class Lesson:
    study: str
    gpu: str
    kind: Change
    cells: tuple[str, ...]


def lessons(workspace: Workspace) -> Iterator[Lesson]:
    """Of all steps with current evidence and a kind of change, in the order of their ladders."""
    for name in workspace.studies():
        study = workspace.study(name)
        for folder in evidence_folders(workspace.ablations, name):
            steps = study.ladder.chain([])
            known = snapshot(Evidence(study, study.default_shape, folder), steps, timed=steps)
            views, judged = (
                Views(known, workspace.config, known.names),
                judge(known, workspace.config),
            )
            rows = {
                row.variant: (ladder.shape, row)
                for ladder in judged.ladders
                for row in ladder.rows
                if row.role != Role.START
            }
            for step in known.steps:
                shape, row = rows.get(step.variant, ("", None))
                if step.parent is None or step.kind is None or row is None:
                    continue
                if row.status not in (Status.CURRENT, Status.FAILED):
                    continue
                here = row.chained.speedup_over_parent
                ratios = {
                    each: views.at(each).times.ratio(step.parent, step.variant)
                    for each in known.shapes
                    if each != shape
                }
                others = [f"{fine(r.ratio)} {each}" for each, r in ratios.items() if r]
                cells = (
                    f"`{step.variant}` of {name}: {step.key_change}",
                    f"{interval(here)} over `{step.parent}` at {shape}" if here else "not timed",
                    str(row.verdict or row.status) + " (bug fix)" * bool(step.corrects),
                    ", ".join(others),
                    " ".join(step.lesson.split()),
                )
                yield Lesson(name, judged.gpu, step.kind, cells)


def page(workspace: Workspace) -> str:
    every = list(lessons(workspace))
    kinds = [kind for kind in Change if any(one.kind == kind for one in every)]
    head = HEAD.format(
        count=len(every),
        kinds=len(kinds),
        studies=", ".join(dict.fromkeys(one.study for one in every)),
        gpus=", ".join(dict.fromkeys(one.gpu for one in every)),
    )
    parts = [head]
    for kind in kinds:
        title, how = CATALOGUE[kind].title, CATALOGUE[kind].how
        rows = [COLUMNS, ("---",) * len(COLUMNS), *(o.cells for o in every if o.kind == kind)]
        lines = [f"| {' | '.join(cell.replace('|', '∣') for cell in row)} |" for row in rows]
        parts += [f"## {title[:1].upper()}{title[1:]}\n", f"`{kind}`: {how}.\n", *lines, ""]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(find_workspace(ROOT)), "utf-8")
