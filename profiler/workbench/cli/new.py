"""``new``: a step as a copy of its parent: the files under another name, and the step added to the
text of the ladder.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from workbench.app.executor import Local
from workbench.app.target import find_study, require_step
from workbench.cli.options import NewOptions
from workbench.cli.streams import show
from workbench.errors import UsageError, nearest
from workbench.ncu.catalog import known_figures
from workbench.problems.user_files import literal
from workbench.render.as_json import Data, shown_fields
from workbench.render.templates import templates
from workbench.study.files import (
    all_or_nothing,
    alone,
    read_text,
    shown_path,
    stands,
    write_bytes,
    write_new,
)
from workbench.study.model import Prediction, Step, Study, Variant, base_name
from workbench.study.sources import source_files

KERNELS = (".cu",)  # what a variant's module names and a change goes into
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
TAKEN = ("study",)  # modules of a study that are no variants
_NUMBER = r"\d+(?:\.\d+)?|\.\d+"
_PREDICTION = re.compile(rf"\s*([\w.]+)\s*=\s*({_NUMBER})\s*\.\.\s*({_NUMBER})\s*", re.ASCII)
GRAMMAR = "FIGURE=LOW..HIGH, a factor of the parent's value, such as time=0.8..0.95"


@dataclass(frozen=True)
class NewStep:
    """``written`` are its own files, ``shared`` those that it shares with its parent;
    ``predictions`` is how many it has, and ``next_command`` the one to go on with.
    """

    study: str
    variant: str
    parent: str
    written: list[str]
    shared: list[str]
    ladder: str
    predictions: int
    next_command: str


def run(options: NewOptions) -> None:
    workspace, study = find_study(Local(), options.project, options.study)
    if workspace.packaged:
        raise UsageError(
            "there is no workspace here to add a variant to",
            hint="`workbench init` makes one; or go to a folder with a workbench.toml",
        )
    asked = (options.name, options.parent, options.change or "", options.predict or [])
    made = new_step(study, *asked, by_name=options.study is not None)
    show(options, made)


def new_step(
    study: Study, name: str, parent: str, change: str, predict: Sequence[str], *, by_name: bool
) -> NewStep:
    """A copy of ``parent``, and the step. ``by_name``: the next command names the study. Raises
    UsageError.
    """
    module, steps = base_name(parent), [step.variant for step in study.ladder.steps]
    if module != parent and module in steps:
        raise UsageError(
            f"'{parent}' has no files of its own to copy",
            hint=f"copy {module}, and change its cuda.params(...) in the copy",
        )
    require_step(study, parent)
    require_new(study, name)
    line = " ".join(change.split())
    if not line:
        raise UsageError(
            "a step needs its key change: the one thing that it does otherwise",
            hint="such as --change 'eight halves a load' --predict time=0.4..0.8",
        )
    if not line.isprintable():
        raise UsageError(
            "the key change has a character that cannot be printed", hint="take it out"
        )
    step = Step(name, parent, line, predictions=tuple(map(predicted, predict)))
    files, shared = copied(study, study.variants[parent], name)
    added(study, step, files)
    return NewStep(
        study=study.name,
        variant=name,
        parent=parent,
        written=list(map(shown_path, files)),
        shared=shared,
        ladder=shown_path(study.ladder.path),
        predictions=len(step.predictions),
        next_command=f"workbench ablate {name}{f' --study {quote(study.name)}' * by_name}",
    )


def require_new(study: Study, name: str) -> None:
    """Raises UsageError for a name that no new variant can have."""
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            f"'{name}' is no name for a variant",
            hint="it becomes the name of a module: letters, digits and _, such as fix2",
        )
    taken = {base_name(taken) for taken in study.variants}
    if name in taken or name in TAKEN:
        what = f"a variant of {study.name}" if name in taken else "the name of a study's own file"
        free = next(f"fix{n}" for n in range(1, len(taken) + 2) if f"fix{n}" not in taken)
        raise UsageError(
            f"'{name}' is {what} already", hint=f"choose a name that is free, such as {free}"
        )


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


def copied(study: Study, parent: Variant, name: str) -> tuple[dict[Path, str], list[str]]:
    """The files of ``name`` as a copy of ``parent``: path of each new file to its text, the module
    first, and the names of those that it goes on sharing with its parent. Nothing is written.

    Its own are the module, each kernel that the module names, and any other of its sources that is
    called as the parent is. They are renamed, and the names in them. Raises UsageError where one of
    them is there already.
    """
    module, *others = source_files(study, parent)
    old = base_name(parent.name)
    named = set(re.findall(r"""["']([\w.-]+)["']""", read_text(module)))
    copies = [p for p in others if p.stem == old or (p.suffix in KERNELS and p.name in named)]
    kernels = [path for path in copies if path.stem != old]
    renamed = {path.name: f"{name}{path.suffix}" for path in [module, *copies] if path.stem == old}
    for path in kernels:
        only = len(kernels) == 1 and f"{name}{path.suffix}" not in renamed.values()
        renamed[path.name] = f"{name}{path.suffix}" if only else f"{name}_{path.name}"
    texts = {
        study.folder / renamed[p.name]: _with(read_text(p), renamed) for p in [module, *copies]
    }
    for path, text in texts.items():
        require_free(path, text)
    return texts, [path.name for path in others if path not in copies]


def require_free(path: Path, text: str) -> None:
    """Raises UsageError where a file is there, but for the same one: a `new` that was killed before
    it had added the step has left it.
    """
    if stands(path) and read_text(path) != text:
        raise UsageError(f"{path} is there already", hint="move it away, or take another name")


def _with(text: str, renamed: Mapping[str, str]) -> str:
    """Names of files in quotes become those of the copies."""
    return re.sub(
        r"""(["'])([\w.-]+)\1""",
        lambda match: f"{match[1]}{renamed.get(match[2], match[2])}{match[1]}",
        text,
    )


def added(study: Study, step: Step, files: Mapping[Path, str]) -> None:
    """The step with its files, all of it or nothing. Raises UsageError where a file is there."""
    ladder = study.ladder.path
    with alone(ladder.parent), all_or_nothing() as made:
        read_text(ladder)  # says what is wrong with the file itself
        longer = with_step(ladder, ladder.read_bytes().decode(), step_text(step))
        for path, text in files.items():
            if not write_new(path, text.encode(), study.folder, made):
                require_free(path, text)
        write_bytes(ladder, longer.encode())


def step_text(step: Step) -> str:
    """The step as TOML."""
    return templates().get_template("new/step.toml.j2").render(step=step, literal=literal)


def with_step(path: Path, text: str, added: str) -> str:
    """The ladder's text with the step at its end, and the line ends that it has.

    What TOML reads of it afterwards is compared with what it should be, so that a layout that is
    not understood is refused, not spoilt. Raises UsageError.
    """
    wanted = tomllib.loads(text)
    steps, (new,) = wanted.get("step", []), tomllib.loads(added)["step"]
    if new["variant"] in [step.get("variant") for step in steps]:
        raise UsageError(f"{path} has a step {new['variant']!r}", hint="take another name")
    wanted["step"] = [*steps, new]
    end = "\r\n" if "\r\n" in text else "\n"
    longer = f"{text.rstrip()}\n\n{added.strip()}\n".replace("\r\n", "\n").replace("\n", end)
    with suppress(tomllib.TOMLDecodeError):
        if tomllib.loads(longer) == wanted:
            return longer
    raise UsageError(
        f"{path} has its steps in a form that none can be added to",
        hint="write them as [[step]] tables, or add this one by hand",
    )


def brief(result: NewStep) -> Data:
    return {**shown_fields(result), "next_command": f"{result.next_command} --brief"}


def lines(result: NewStep) -> list[str]:
    said = [f"{result.variant}, a copy of {result.parent}:"]
    said += [f"  wrote {path}" for path in result.written]
    said.append(f"  a step in {result.ladder}")
    if result.shared:
        said.append(f"  shared with {result.parent}, as before: {', '.join(result.shared)}")
    if not result.predictions:
        said.append(
            f"  no prediction: write one into {Path(result.ladder).name} before you measure"
        )
    return [*said, f"next: change {result.written[-1]}, then `{result.next_command}`"]
