"""``workbench try``: from a file that somebody already has to evidence."""

from __future__ import annotations

from dataclasses import fields, replace

from workbench.app.executor import Executor
from workbench.app.target import shown_path
from workbench.app.try_ import Attempt, AttemptOptions, attempt, refusal
from workbench.cli.options import TryOptions
from workbench.cli.streams import executor, note, show
from workbench.errors import CannotTell, EnvironmentLacks, GateFailed, ToolFailed
from workbench.run import machine
from workbench.run.protocol import Failed
from workbench.study.sources import virtual_name
from workbench.words import TryVerdict


def finish(done: Attempt, executor: Executor) -> int:
    """The exit code, and what goes with it on stderr."""
    if done.kept:
        note(f"kept as {shown_path(done.kept)}")
    if isinstance(done.built, Failed):
        error = done.built.error
        mine = error.message.replace(virtual_name(done.study, ""), "")
        raise ToolFailed(mine, hint=error.hint)
    if done.verdict == TryVerdict.UNCHECKED:
        lacks = machine.why_not_measuring()
        raise EnvironmentLacks(
            f"nothing was measured: {lacks.message}",
            hint="the same command measures where there is a GPU with ncu: `workbench doctor`",
        )
    if no := refusal(done):
        raise no
    if done.judged is None:
        note(f"not timed: {machine.why_not_measuring().message}")
    executor.require_profiled()
    for why in done.uncompared:
        note(why)
    return 0


def run(options: TryOptions) -> int:
    here, names = executor(options.on), {field.name for field in fields(AttemptOptions)}
    asked = {name: value for name, value in vars(options).items() if value and name in names}
    try:
        done = attempt(
            here, options.source, AttemptOptions(**asked, profile=not options.no_profile)
        )
    except (CannotTell, GateFailed) as error:  # it cannot be called, or not compared
        if options.json:
            show(options, error)
        raise
    show(options, replace(done, unprofiled=here.unprofiled))
    return finish(done, here)
