"""Writes a function into a study as one of its variants."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from workbench.commands.new import change_text, parent_of, predicted
from workbench.commands.target import find_study, shown_path
from workbench.errors import UsageError
from workbench.evidence.store import write_bytes
from workbench.library.functions import PROVENANCE, around_of, module_of, plain_function
from workbench.study.copying import require_new
from workbench.study.ladder_text import step_text, with_step
from workbench.study.model import Step, Study
from workbench.study.text import read_text, stands

KERNEL = re.compile(r"""\bcuda\.kernel\(\s*["']([^"']+)["']""")
OURS = PROVENANCE.rpartition("} by ")[2]


def write_variant(
    function: Callable[..., Any],
    *,
    name: str,
    parent: str,
    change: str,
    predict: Sequence[str],
    study: str | None,
    project: Path | None,
) -> None:
    """The module, and the step where the ladder has none of that name. Raises UsageError."""
    workspace, found = find_study(project, study, tell=False)
    if workspace.packaged:
        raise UsageError(
            "there is no workspace here to write a variant into",
            hint="`workbench init` makes one; or name its folder: @wb.variant(project=...)",
        )
    text = module_of(function)
    require_sources(found, text, around_of(plain_function(function)).folder)
    module = found.folder / f"{name}.py"
    step = found.ladder.step(name)
    if step is None:
        _add(found, module, text, _step(found, name, parent, change, predict))
        return
    if step.parent != parent:
        raise UsageError(
            f"step '{name}' of {shown_path(found.ladder.path)} builds on '{step.parent}', "
            f"not on '{parent}'",
            hint="change it there, or take another name",
        )
    was = read_text(module)
    if OURS not in was.partition("\n")[0]:
        raise UsageError(
            f"{shown_path(module)} was not written from a function", hint="take another name"
        )
    if was != text:
        write_bytes(module, text.encode())


def require_sources(study: Study, text: str, folder: Path) -> None:
    """Raises UsageError for a kernel that lies beside the script, where no variant finds it."""
    for name in KERNEL.findall(text):
        if (folder / name).is_file() and not (study.folder / name).is_file():
            raise UsageError(
                f"{name} lies beside the script, and a variant's files in {study.folder}",
                hint=f"move it there: mv {quote(str(folder / name))} {quote(str(study.folder))}",
            )


def _step(study: Study, name: str, parent: str, change: str, predict: Sequence[str]) -> Step:
    require_new(study, name)
    return Step(
        name,
        parent_of(study, parent, copied=False),
        change_text(change),
        predictions=tuple(map(predicted, predict)),
    )


def _add(study: Study, module: Path, text: str, step: Step) -> None:
    if stands(module):
        raise UsageError(f"{shown_path(module)} is there already", hint="take another name")
    ladder = study.ladder.path
    read_text(ladder)  # says what is wrong with the file itself
    longer = with_step(ladder, ladder.read_bytes().decode(), step_text(step))
    write_bytes(module, text.encode())
    try:
        write_bytes(ladder, longer.encode())
    except BaseException:
        module.unlink(missing_ok=True)
        raise
