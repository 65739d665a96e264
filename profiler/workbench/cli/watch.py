"""``workbench watch``."""

from __future__ import annotations

import time
from collections.abc import Callable

from workbench.app.executor import Executor
from workbench.app.target import in_place
from workbench.app.watch import Watch
from workbench.cli.options import WatchOptions
from workbench.cli.printing import say
from workbench.cli.streams import executor, note
from workbench.errors import WorkbenchError
from workbench.render.as_json import dumps
from workbench.render.document.environment import Save, saved_lines
from workbench.study.model import Study


def run(options: WatchOptions) -> None:
    rounds(options, executor("watch", options.on), time.sleep)


def rounds(options: WatchOptions, executor: Executor, pause: Callable[[float], None]) -> None:
    """Until Ctrl-C, which is how it is meant to end. Raises UsageError for what is wrong at the
    start; later mistakes in the study's files are reported, and fixed by the next save.
    """
    given = (options.project, options.study, options.shape, options.arch)
    before: Save | None = None
    try:
        for found in Watch(executor, options.variant, *given).results(pause):
            if isinstance(found, WorkbenchError):
                note(f"error: {found.message}")
                note(f"hint: {found.hint or 'fix it and save again'}")
                continue
            study, now = found
            show(now, before, study, options)
            before = before if now.error else now
    except KeyboardInterrupt:
        note("stopped; `workbench ablate` makes evidence of it")


def show(now: Save, before: Save | None, study: Study, options: WatchOptions) -> None:
    if options.json:
        say(dumps(now, indent=None))
        return
    at = time.strftime("%H:%M:%S")
    first, *rest = saved_lines(now, before)
    say(f"{at} {now.variant}: {first}", *(f"  {in_place(text, study)}" for text in rest))
    if now.error:
        note(f"error: {in_place(now.error, study)}")
