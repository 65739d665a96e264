"""``workbench new``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from workbench.app.target import find_study, shown_path
from workbench.cli.options import NewOptions
from workbench.cli.printing import say, show_json
from workbench.cli.streams import executor
from workbench.derive.figures import known_figures
from workbench.errors import UsageError, nearest, unknown
from workbench.evidence.store import write_bytes
from workbench.study.copying import copied, require_new, step_text, with_step
from workbench.study.model import Prediction, Step, Study
from workbench.study.own_files import all_or_nothing, write_new
from workbench.study.params import base_name
from workbench.study.text import read_text

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


def run(options: NewOptions) -> None:
    workspace, study = find_study(executor("new"), options.project, options.study, tell=False)
    if workspace.packaged:
        raise UsageError(
            "there is no workspace here to add a variant to",
            hint="`workbench init` makes one; or go to a folder with a workbench.toml",
        )
    parent = study.variants[parent_of(study, options.parent)]
    require_new(study, options.name)
    copy = copied(study, parent, options.name)
    predictions = tuple(map(predicted, options.predict or []))
    step = Step(
        options.name, parent.name, change_text(options.change or ""), predictions=predictions
    )
    files = {path: text.encode() for path, text in copy.files.items()}
    added(study, step, files)
    ladder = study.ladder.path
    chosen = f" --study {quote(study.name)}" if options.study else ""
    command = f"workbench ablate {step.variant}{chosen}"
    if options.json:
        return show_json(
            {
                "study": study.name,
                "variant": step.variant,
                "parent": parent.name,
                "written": [shown_path(path) for path in files],
                "shared": list(copy.shared),
                "ladder": shown_path(ladder),
                "predictions": len(step.predictions),
                "next": command,
            }
        )
    say(f"{step.variant}, a copy of {parent.name}:")
    say(*(f"  wrote {shown_path(path)}" for path in files), f"  a step in {shown_path(ladder)}")
    if copy.shared:
        say(f"  shared with {parent.name}, as before: {', '.join(copy.shared)}")
    if not step.predictions:
        say(f"  no prediction: write one into {ladder.name} before you measure")
    return say(f"next: change {shown_path(list(files)[-1])}, then `{command}`")
