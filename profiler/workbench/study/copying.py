"""A variant copied under another name: its module, and the kernels that are its own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import UsageError
from workbench.study.model import Study, Variant
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
