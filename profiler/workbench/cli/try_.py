"""``workbench try``: from a file that somebody already has to evidence."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature

from workbench.app.executor import Executor
from workbench.app.target import shown_path
from workbench.app.try_ import Attempt, attempt, blocks, refusal
from workbench.cli.options import TryOptions
from workbench.cli.printing import show_json, tell
from workbench.cli.streams import executor, note
from workbench.errors import CannotTell, EnvironmentLacks, GateFailed, ToolFailed
from workbench.render import answers, as_json, brief
from workbench.run import machine
from workbench.run.protocol import Failed
from workbench.study.sources import virtual_name
from workbench.words import TryVerdict


def as_data(done: Attempt) -> Mapping[str, object]:
    row, judged = done.row, done.judged
    return {
        **as_json.shown_fields(done),
        "tried": answers.whole_row(judged, row) if judged and row else None,
        "references": [answers.row(judged, r) for r in done.references] if judged else [],
    }


def as_brief(done: Attempt) -> Mapping[str, object]:
    """The verdict, then the step of the study that was made of the file."""
    row, judged = done.row, done.judged
    data = brief.step(judged, row) if judged and row else {}
    gates = data.get("failed")
    failed = brief.failed(done.failures) or []
    error = done.trial.errors.get(done.problem.baseline.name, (None,))
    wrong = {"why": done.wrong, "max_error": error[0], "allowed": done.facts.absolute}
    return {
        **data,
        "file": done.problem.title,
        "verdict": done.verdict,
        "accuracy": data.get("accuracy") or _accuracy(done),
        **(wrong if done.wrong else {}),
        "failed": [*(gates if isinstance(gates, list) else ()), *failed] or None,
        "workspace": str(done.folder),
    }


def _accuracy(done: Attempt) -> dict[str, float] | None:
    times = done.times_reference_error
    return None if times is None else {"times_reference": times}


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
    for name, why in done.failures.items():  # of references
        note(f"not compared with {name}: {why}")
    return 0


def run(options: TryOptions) -> int:
    here, known = executor("try", options.on), signature(attempt).parameters
    given = {name: value for name, value in vars(options).items() if value and name in known}
    try:
        done = attempt(here, **given, profile=not options.no_profile)
    except (CannotTell, GateFailed) as error:  # it cannot be called, or not compared
        if options.json:
            is_open = isinstance(error, CannotTell)
            verdict = TryVerdict.UNCHECKED if is_open else TryVerdict.FAILED
            show_json({"verdict": verdict, "why": error.message, "hint": error.hint})
        raise
    tell(
        options,
        lambda: as_data(done),
        lambda: blocks(done, profiled=not options.no_profile),
        lambda: {**as_brief(done), **brief.unprofiled(here.unprofiled)},
    )
    return finish(done, here)
