"""Write docs/lessons.md: the lessons of all ladders that help elsewhere, by kind of change.

python -m tools.lessons
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tools.pages import DOCS, ROOT, write

from workbench.evidence.store import evidence_folders, latest
from workbench.judge.ladder import judge
from workbench.load import load_ladder
from workbench.render.doc import fine
from workbench.render.document.advice import CATALOGUE
from workbench.render.document.printed_ladder import brief_shape
from workbench.study.workspace import Workspace, find_workspace
from workbench.words import Change, Role, Status

HEAD = """# Lessons from the steps

{count} of the {steps} measured steps taught a rule for other kernels. The reports have the reasons.

A ratio is the step's speed over its parent's between two other kernels, at the default or the named
shape, on one GPU model: {gpus}.
"""
# A rule whose first words, or "such", speak of what stands before the colon.
UNCLEAR = re.compile(r"^(?:\S+ ){0,3}(?:its?|them)\b|\bsuch\b")
RULE = re.compile(r"[^.]*(?:\.(?!\s)[^.]*)*?: .*?[.](?=\s|$)")  # a sentence with a colon


def lessons(workspace: Workspace) -> Iterator[tuple[str, str, Change, str]]:
    """GPU, study, kind and line of each step with current evidence and a kind; no rule is ""."""
    for name in workspace.studies():
        study = workspace.study(name)
        folders, gpu = evidence_folders(workspace.ablations, name), workspace.config.gpu
        if folder := latest(folders, study.default_shape, gpu):
            steps = study.ladder.chain([])
            known = load_ladder(study, folder, study.default_shape, steps, timed=steps)
            judged = judge(known, workspace.config)
            for ladder in judged.ladders:
                for row in ladder.rows:
                    step, measured = row.step, row.status in (Status.CURRENT, Status.FAILED)
                    if step is None or step.kind is None or row.role == Role.START or not measured:
                        continue
                    over = row.deciding_speedup
                    size = brief_shape(ladder.shape, judged)
                    at = f" at {size}" if ladder.shape != judged.shape else ""
                    figure = f"{fine(over.ratio)}{at}" if over else "wrong, not timed"
                    line = f"- `{step.variant}` ({name}, {figure}): "
                    rule = rule_of(" ".join(step.lesson.split()))
                    yield judged.gpu, name, step.kind, line + rule if rule else ""


def rule_of(lesson: str) -> str:
    """What stands after the colon of its first sentence that has one, or that sentence."""
    sentence = RULE.match(lesson)
    rule = sentence[0].rpartition(": ")[2] if sentence else ""
    return sentence[0] if sentence and UNCLEAR.search(rule) else rule


def written() -> dict[Path, str]:
    every = list(lessons(find_workspace(ROOT)))
    studies: dict[str, dict[str, None]] = defaultdict(dict)
    for gpu, study, *_ in every:
        studies[gpu][study] = None
    gpus = ", ".join(f"{gpu} ({', '.join(names)})" for gpu, names in studies.items())
    parts = [HEAD.format(count=sum(bool(line) for *_, line in every), steps=len(every), gpus=gpus)]
    for kind in Change:
        if lines := [line for *_, each, line in every if each == kind and line]:
            title = CATALOGUE[kind].title
            parts += [f"## {title[:1].upper()}{title[1:]}\n", *lines, ""]
    return {DOCS / "lessons.md": "\n".join(parts)}


if __name__ == "__main__":
    write(written())
