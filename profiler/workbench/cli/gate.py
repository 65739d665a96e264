"""``workbench gate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from workbench.app.gate import GateRequest, gate
from workbench.cli.options import GateOptions
from workbench.cli.streams import executor, note, show
from workbench.errors import CannotTell, GateFailed, UsageError
from workbench.judge.commits import VariantChange
from workbench.study.workspace import find_workspace
from workbench.words import Cause, Move


def run(options: GateOptions) -> int:
    if bool(options.env) == (options.base is not None):
        raise UsageError(
            "name a commit to compare with, or two environments, and not both",
            hint="workbench gate HEAD~1, or workbench gate --env old=PYTHON --env new=PYTHON",
        )
    commits = (options.base or "", options.head)
    asked = GateRequest(**{each.name: getattr(options, each.name) for each in fields(GateRequest)})
    workspace = find_workspace(options.project)
    gated = gate(executor(options.on), workspace, commits, asked, options.env or ())
    show(options, gated)
    return finish(gated.changes)


def finish(changes: Sequence[VariantChange]) -> int:
    if any(change.is_bad for change in changes):
        note("error: " + ", ".join(f"{c.variant} is {c.verdict}" for c in changes if c.is_bad))
        note("hint: add --json to see all that moved")
        return GateFailed.exit_code
    open_ = [change for change in changes if change.verdict == Move.CANNOT_TELL]
    if any(change.cause == Cause.METHOD for change in open_):
        note("hint: the rules differ: read that part of the change, no figure can judge it")
    elif open_:
        note("hint: to decide, run the same command on a machine with a GPU and ncu")
    return CannotTell.exit_code if open_ else 0
