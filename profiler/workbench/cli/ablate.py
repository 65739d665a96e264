"""``ablate``: a ladder, one step of it in short, or the ladders at all shapes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Any

from workbench.app.executor import Executor
from workbench.app.judge import JudgedStep, ablate, step
from workbench.app.report import is_due, reported
from workbench.app.target import (
    Target,
    find_study,
    find_target,
    of_one_gpu,
    profiled_shape,
    require_current,
    shown_path,
    stale_of,
    target_at,
)
from workbench.cli.options import AblateOptions
from workbench.cli.streams import executor, note, note_failures, show
from workbench.errors import CannotTell, EnvironmentLacks, UsageError
from workbench.judge.ladder import Ablation
from workbench.render import answers, as_table, doc, in_short
from workbench.render.document.printed_ladder import screen, warnings, whole
from workbench.study.params import Picked
from workbench.study.workspace import including
from workbench.words import Verdict

if TYPE_CHECKING:
    from pandas import DataFrame


def run(options: AblateOptions) -> int:
    here, fixes = executor(options.on), options.fixes or []
    if options.quick and not options.brief:
        raise UsageError("--quick needs --brief", hint="`workbench ablate FIX --brief --quick`")
    if options.brief and len(fixes) == 1 and not options.all_shapes:
        return run_step(options, here, fixes[0])
    targets = targets_of(options, here, fixes)
    failed: dict[str, str] = {}
    last: list[Ablation] = []

    def tables() -> Iterator[Ablation]:
        how = {"fresh": options.fresh, "profile": not options.no_profile}
        everywhere = options.json or options.all_shapes
        for ladder, failures in ablate(targets, fixes, **how, everywhere=everywhere):
            place = f" at {ladder.shape}" * options.all_shapes
            failed.update({f"{name}{place}": why for name, why in failures.items()})
            last[:] = [ladder]
            yield ladder

    show(options, tables() if options.all_shapes else next(tables()))
    return finish(targets[-1], fixes, last[0], failed)


def targets_of(options: AblateOptions, executor: Executor, fixes: list[str]) -> list[Target]:
    """The shape, or every profiled one: the study's own comes last, since its report is about all
    of them.
    """
    if not options.all_shapes:
        place = (options.project, options.study, options.shape)
        return [find_target(executor, *place, names=fixes)]
    if options.shape is not None:
        raise UsageError("--shape and --all-shapes exclude each other")
    workspace, study = find_study(executor, options.project, options.study)
    names = [name for name, shape in study.shapes.items() if shape.profiled]
    targets: list[Target] = []
    lacking: list[str] = []
    for name in sorted(names, key=lambda name: name == study.default_shape):
        try:
            targets.append(target_at(executor, workspace, Picked(study, name)))
        except EnvironmentLacks:
            if name == study.default_shape:
                raise
            lacking.append(name)
    if lacking:
        note(f"no evidence is recorded at {', '.join(lacking)}")
    return of_one_gpu(targets, targets[-1].folder)


def run_step(options: AblateOptions, executor: Executor, fix: str) -> int:
    """One step of a coding agent's loop, at the shape where it is judged: exit code 0 where it is
    kept, 1 where it is not, 5 where that is not certain.
    """
    workspace, study = find_study(executor, options.project, options.study)
    study, (fix,) = including(study, [fix])
    planned = study.ladder.step(fix)
    shape = options.shape or (planned and planned.shape) or None
    target = target_at(executor, workspace, profiled_shape(study, shape))
    how = {"fresh": options.fresh, "quick": options.quick, "profile": not options.no_profile}
    done = step(target, fix, **how)
    show(options, replace(done, unprofiled=executor.unprofiled))
    note_failures(done.failures, target.study)
    executor.require_profiled()
    require_current(stale_of(done.found, [fix]))
    verdict = done.row.verdict
    if done.failures or verdict not in (Verdict.KEPT, Verdict.BASELINE, Verdict.INCONCLUSIVE):
        return 1
    open_ = verdict == Verdict.INCONCLUSIVE or (verdict == Verdict.KEPT and done.provisional)
    return CannotTell.exit_code if open_ else 0


def finish(target: Target, fixes: list[str], ladder: Ablation, failed: dict[str, str]) -> int:
    """Write the report if it is not up to date, after all else was printed. Outside of a workspace
    there is none but that of ``workbench report``.
    """
    note_failures(failed, target.study)
    if failed:
        note("hint: everything else that was measured is kept and in the table")
    sys.stdout.flush()  # a folder that takes no report costs no more
    folder = target.reports(ladder.shape)
    if target.workspace.packaged:
        note(f"no report outside of a workspace; `workbench report` writes {shown_path(folder)}")
    else:
        if is_due(folder, target):
            for path in reported(target, fixes, source=ladder.source):
                note(f"wrote {shown_path(path)}")
        if ladder.best is not None and ladder.best.advice:
            note(f"next: `workbench advise {quote(ladder.best.variant)}{named_again(target)}`")
    target.executor.require_profiled()
    if not failed:
        require_current(stale_of(ladder, fixes))
    return int(bool(failed))


def named_again(target: Target) -> str:
    """The options that another verb needs to be about the same."""
    study, workspace = target.study, target.workspace
    alone = len(workspace.studies()) == 1 or workspace.config.study == study.name
    return ("" if alone else f" --study {quote(study.name)}") + (
        "" if target.shape == study.default_shape else f" --shape {quote(target.shape)}"
    )


def data(result: Ablation | Iterable[Ablation], *, full: bool = True) -> object:
    if isinstance(result, Ablation):
        return answers.ablation(result, short=not full)
    return {"tables": [answers.ablation(each, short=not full) for each in result]}


def brief(result: Ablation | JudgedStep) -> dict[str, object]:
    if isinstance(result, Ablation):
        return in_short.ladder(result)
    return {
        **in_short.step(result.found, result.row),
        "provisional": result.provisional or None,
        "seconds": result.seconds,
        "failures": in_short.failed(result.failures),
        **in_short.error(result.unprofiled),
    }


def frame(result: Ablation | Iterable[Ablation], note: Callable[[str], None]) -> DataFrame:
    every = [result] if isinstance(result, Ablation) else list(result)
    for text in dict.fromkeys(text for each in every for text in warnings(each)):
        note(doc.plain(text))
    return as_table.variants(*every)


def blocks(result: Ablation | Iterable[Ablation], options: Any) -> Iterator[doc.Block]:
    """A screen, or all rows and columns, of each shape."""
    if isinstance(result, Ablation):
        named = options.fixes or []
        yield from screen(result, named) if not options.all_ else whole(result)
        return
    for each in result:
        yield from blocks(each, options)
