"""A workspace from a template, and a step of a ladder as a copy of another."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.derive.figures import known_figures
from workbench.errors import UsageError, nearest, unknown
from workbench.evidence.store import write_bytes
from workbench.study.copying import copied, require_new, step_text, with_step
from workbench.study.model import Prediction, Step, Study
from workbench.study.own_files import all_or_nothing, resolved, write_new
from workbench.study.params import base_name
from workbench.study.text import read_text, stands
from workbench.study.workspace import packaged_content

COMMON = "common"  # what all templates have
IGNORED = ".gitignore"
STUDY = "study.py"


def starters() -> Path:
    """The packaged folder with a folder a template."""
    return packaged_content() / "starters"


def files_of(template: str) -> dict[Path, bytes]:
    """The files of a template by their place in a workspace. Raises UsageError.

    The study is the last: what was interrupted can be done again.
    """
    names = sorted(path.name for path in starters().iterdir() if path.is_dir())
    names.remove(COMMON)
    if template not in names:
        raise unknown("template", template, names)
    found = {
        path.relative_to(folder): path.read_bytes()
        for folder in (starters() / COMMON, starters() / template)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    return dict(sorted(found.items(), key=lambda item: item[0].name == STUDY))


def merged(path: Path, lines: list[str]) -> list[str]:
    """Append the lines that ``path`` lacks; what is there stays. Returns those appended."""
    there = read_text(path) if stands(path) else ""
    known = {line.strip() for line in there.splitlines()}
    missing = [line for line in lines if line not in known]
    if missing:
        gap = "\n" if there and not there.endswith("\n") else ""
        added = "".join(f"{line}\n" for line in missing)
        write_bytes(path, f"{there}{gap}{added}".encode())
    return missing


@dataclass(frozen=True)
class NewWorkspace:
    """``ignored`` are the lines that ``.gitignore`` lacked; ``left`` are files that were there."""

    study: str
    written: list[Path]
    ignored: list[str]
    left: list[Path]


def new_workspace(root: Path, template: str) -> NewWorkspace:
    """Raises UsageError for an unknown template, and where there is a study already."""
    files = files_of(template)
    if studies := sorted(path.parent.name for path in root.glob(f"kernels/*/{STUDY}")):
        raise UsageError(
            f"{resolved(root)} has a study already: {', '.join(studies)}",
            hint="`workbench new NAME --from VARIANT` adds a variant to it; "
            "`workbench init DIR` makes another workspace",
        )
    ignored = files.pop(Path(IGNORED.lstrip("."))).decode().splitlines()
    with all_or_nothing() as made:
        written = [n for n, data in files.items() if write_new(root / n, data, root, made)]
        lines = merged(root / IGNORED, ignored)
    left = [name for name in files if name not in written]
    study = next(name.parts[1] for name in files if name.name == STUDY)
    return NewWorkspace(study, written, lines, left)


_NUMBER = r"\d+(?:\.\d+)?|\.\d+"
_PREDICTION = re.compile(rf"\s*([\w.]+)\s*=\s*({_NUMBER})\s*\.\.\s*({_NUMBER})\s*", re.ASCII)
GRAMMAR = "FIGURE=LOW..HIGH, a factor of the parent's value, such as time=0.8..0.95"


def predicted(text: str) -> Prediction:
    """``time=0.8..0.95``. Raises UsageError."""
    match = _PREDICTION.fullmatch(text)
    if match is None:
        raise UsageError(f"'{text}' is no prediction", hint=f"write {GRAMMAR}")
    figure, low, high = match[1], float(match[2]), float(match[3])
    if figure not in known_figures():
        raise UsageError(f"'{figure}' is no figure", hint=nearest(figure, known_figures()))
    if low > high:
        raise UsageError(f"'{text}' has its higher end first", hint=f"write {GRAMMAR}")
    return Prediction(figure=figure, factor=(low, high), range=None)


def parent_of(study: Study, name: str, *, copied: bool = True) -> str:
    """The step that another builds on; ``copied``: by a copy of its files. Raises UsageError."""
    steps = [step.variant for step in study.ladder.steps]
    if copied and base_name(name) != name and base_name(name) in steps:
        raise UsageError(
            f"'{name}' has no files of its own to copy",
            hint=f"copy {base_name(name)}, and change its cuda.params(...) in the copy",
        )
    if name in steps:
        return name
    if name in study.variants:
        raise UsageError(
            f"'{name}' is a reference, not a step of the ladder",
            hint=f"a step builds on one of {', '.join(steps)}",
        )
    raise unknown("step", name, steps)


def change_text(given: str) -> str:
    """In a line. Raises UsageError for none."""
    change = " ".join(given.split())
    if not change:
        raise UsageError(
            "a step needs its key change: the one thing that it does otherwise",
            hint="such as --change 'eight halves a load' --predict time=0.4..0.8",
        )
    if not change.isprintable():
        raise UsageError(
            "the key change has a character that cannot be printed", hint="take it out"
        )
    return change


def added(study: Study, step: Step, files: Mapping[Path, bytes]) -> None:
    """The step with its files, all of it or nothing. Raises UsageError where a file is there."""
    ladder = study.ladder.path
    read_text(ladder)  # says what is wrong with the file itself
    longer = with_step(ladder, ladder.read_bytes().decode(), step_text(step))
    with all_or_nothing() as made:
        for path, data in files.items():
            if not write_new(path, data, study.folder, made):
                raise UsageError(f"{path} is there already", hint="take another name")
        write_bytes(ladder, longer.encode())


def step_of(
    study: Study, name: str, parent: str, change: str, predict: Sequence[str], *, copied: bool
) -> Step:
    """A step that the ladder has not; ``copied`` as of ``parent_of``. Raises UsageError."""
    parent = parent_of(study, parent, copied=copied)
    require_new(study, name)
    return Step(name, parent, change_text(change), predictions=tuple(map(predicted, predict)))


@dataclass(frozen=True)
class NewStep:
    """``shared`` are the files that it shares with its parent."""

    step: Step
    written: list[Path]
    shared: list[str]


def new_step(study: Study, name: str, parent: str, change: str, predict: Sequence[str]) -> NewStep:
    """A copy of ``parent``, and the step. Raises UsageError."""
    step = step_of(study, name, parent, change, predict, copied=True)
    copy = copied(study, study.variants[parent], name)
    added(study, step, {path: text.encode() for path, text in copy.files.items()})
    return NewStep(step, list(copy.files), list(copy.shared))
