"""A variant copied under another name, and its step added to the text of the ladder."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import UsageError
from workbench.study.model import Prediction, Step, Study, Variant
from workbench.study.params import base_name
from workbench.study.sources import source_files
from workbench.study.text import read_text, stands

KERNELS = (".cu",)  # what a variant's module names and a change goes into
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
TAKEN = ("study",)  # modules of a study that are no variants


@dataclass(frozen=True)
class Copied:
    """``files``: path of each new file to its text, the module first. ``shared`` are the names of
    files that the copy goes on sharing with its parent.
    """

    files: Mapping[Path, str]
    shared: tuple[str, ...]


def require_new(study: Study, name: str) -> None:
    """Raises UsageError for a name that no new variant can have."""
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            f"'{name}' is no name for a variant",
            hint="it becomes the name of a module: letters, digits and _, such as fix2",
        )
    known = {base_name(known) for known in study.variants}
    if name in known or name in TAKEN:
        what = f"a variant of {study.name}" if name in known else "the name of a study's own file"
        raise UsageError(
            f"'{name}' is {what} already",
            hint=f"choose a name that is free, such as {free_name(known)}",
        )


def free_name(known: set[str]) -> str:
    """The first of fix1, fix2, ... that is not taken."""
    return next(f"fix{n}" for n in range(1, len(known) + 2) if f"fix{n}" not in known)


def copied(study: Study, parent: Variant, name: str) -> Copied:
    """The files of ``name`` as a copy of ``parent``; nothing is written.

    Its own are the module, each kernel that the module names, and any other of its sources that is
    called as the parent is. They are renamed, and the names in them. Raises UsageError where one of
    them is there already.
    """
    module, *others = source_files(study, parent)
    old = base_name(parent.name)
    named = _quoted(read_text(module))
    own = [p for p in others if p.stem == old or (p.suffix in KERNELS and p.name in named)]
    kernels = [path for path in own if path.stem != old]
    renamed = {path.name: f"{name}{path.suffix}" for path in [module, *own] if path.stem == old}
    for path in kernels:
        only = len(kernels) == 1 and f"{name}{path.suffix}" not in renamed.values()
        renamed[path.name] = f"{name}{path.suffix}" if only else f"{name}_{path.name}"
    texts = {study.folder / renamed[p.name]: _with(read_text(p), renamed) for p in [module, *own]}
    for path in texts:
        if stands(path):
            raise UsageError(f"{path} is there already", hint="move it away, or take another name")
    return Copied(texts, tuple(path.name for path in others if path not in own))


def _quoted(text: str) -> set[str]:
    return set(re.findall(r"""["']([\w.-]+)["']""", text))


def _with(text: str, renamed: Mapping[str, str]) -> str:
    """Names of files in quotes become those of the copies."""
    return re.sub(
        r"""(["'])([\w.-]+)\1""",
        lambda match: f"{match[1]}{renamed.get(match[2], match[2])}{match[1]}",
        text,
    )


# The first table of the references, and the comment right above it.
_REFERENCES = re.compile(r"^(?:[ \t]*#.*\n)*[ \t]*\[\[\s*[\"']?reference\b", re.MULTILINE)
UNPREDICTED = """\
# What you expect, as a factor of the parent's value; write it before you measure.
# [[step.prediction]]
# figure = "time"
# factor = [0.8, 0.95]
"""


def step_text(step: Step) -> str:
    """The step as TOML."""
    lines = [
        "[[step]]",
        f"variant = {quoted(step.variant)}",
        *([f"parent = {quoted(step.parent)}"] if step.parent else []),
        f"key_change = {quoted(step.key_change)}",
    ]
    text = "\n".join(lines) + "\n"
    for prediction in step.predictions:
        text += (
            f"\n[[step.prediction]]\nfigure = {quoted(prediction.figure)}\n{_bounds(prediction)}\n"
        )
    return text if step.predictions else f"{text}\n{UNPREDICTED}"


def _bounds(prediction: Prediction) -> str:
    key = "factor" if prediction.factor is not None else "range"
    low, high = prediction.factor or prediction.range or (0.0, 0.0)
    return f"{key} = [{low:g}, {high:g}]"


def quoted(text: str) -> str:
    """A string of TOML: JSON's escapes are among its own."""
    return json.dumps(text, ensure_ascii=False)


def with_step(path: Path, text: str, added: str) -> str:
    """The ladder's text with the step behind the last one: before the references, or at its end.

    What TOML reads of it afterwards is compared with what it should be, so that a layout that is
    not understood is refused, not spoilt. Raises UsageError.
    """
    wanted = tomllib.loads(text)
    wanted["step"] = [*wanted.get("step", []), *tomllib.loads(added)["step"]]
    references = _REFERENCES.search(text)
    for place in (references.start() if references else len(text), len(text)):
        tried = _inserted(text[:place], text[place:], added)
        if _read(tried) == wanted:
            return tried
    raise UsageError(
        f"{path} has its steps in a form that none can be added to",
        hint="write them as [[step]] tables, or add this one by hand",
    )


def _read(text: str) -> dict[str, object] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _inserted(above: str, below: str, added: str) -> str:
    """With one empty line on either side, and the line ends that the file has."""
    end = "\r\n" if "\r\n" in above + below else "\n"
    kept = above.rstrip()
    return (
        (kept + 2 * end if kept else "")
        + added.strip().replace("\n", end)
        + end
        + (end + below if below.strip() else "")
    )
