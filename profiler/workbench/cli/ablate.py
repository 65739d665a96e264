"""``ablate``: a ladder, one step of it in short, or the ladders at all shapes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from workbench.app.ablate import JudgedStep, ablate, step
from workbench.app.report import report_if_due
from workbench.app.target import find_target, targets_of_study
from workbench.cli.options import AblateOptions
from workbench.cli.streams import executor, note, note_failures, show
from workbench.errors import UsageError
from workbench.judge.ladder import Ablation
from workbench.render import answers, as_table, doc, in_short
from workbench.render.document.printed_ladder import screen, warnings, whole
from workbench.study.params import including

if TYPE_CHECKING:
    from pandas import DataFrame


def run(options: AblateOptions) -> int:
    """A ladder; or with ``--brief`` one step of a coding agent's loop, at the shape where it is
    judged: exit code 0 where it is kept, 1 where it is not, 5 where that is not certain.
    """
    fixes = options.fixes or []
    if options.quick and not options.brief:
        raise UsageError("--quick needs --brief", hint="`workbench ablate FIX --brief --quick`")
    if options.all_shapes and options.shape is not None:
        raise UsageError("--shape and --all-shapes exclude each other")
    is_step = options.brief and len(fixes) == 1 and not options.all_shapes
    place = executor(options.on), options.project, options.study
    if options.all_shapes:
        targets = targets_of_study(*place)
    else:
        targets = [find_target(*place, options.shape, names=fixes, where_judged=is_step)]
    target, here = targets[-1], targets[-1].executor
    how = {"fresh": options.fresh, "profile": not options.no_profile}
    failed: dict[str, str] = {}
    ladders: list[Ablation] = []

    def tables() -> Iterator[Ablation]:
        everywhere = options.json or options.all_shapes
        for ladder, failures in ablate(targets, fixes, **how, everywhere=everywhere):
            at = f" at {ladder.shape}" if options.all_shapes else ""
            failed.update({f"{name}{at}": why for name, why in failures.items()})
            ladders[:] = [ladder]
            yield ladder

    if is_step:
        done = step(target, fixes[0], **how, quick=options.quick)
        failed, ladders = done.failures, [done.ladder]
        show(options, replace(done, unprofiled=here.unprofiled))
    else:
        show(options, tables() if options.all_shapes else next(tables()))
    note_failures(failed, target.study)
    if not is_step:
        if failed:
            note("hint: everything else that was measured is kept and in the table")
        sys.stdout.flush()  # a folder that takes no report costs no more
        for text in report_if_due(target, fixes, ladders[0]):
            note(text)
    here.require_profiled()
    if is_step or not failed:
        here.require_current(ladders[0].stale(including(target.study, fixes)[1]))
    return done.exit_code if is_step else int(bool(failed))


def data(result: Ablation | Iterable[Ablation], *, full: bool = True) -> object:
    if isinstance(result, Ablation):
        return answers.ablation(result, short=not full)
    return {"tables": [answers.ablation(each, short=not full) for each in result]}


def brief(result: Ablation | JudgedStep) -> dict[str, object]:
    if isinstance(result, Ablation):
        return in_short.ladder(result)
    return {
        **in_short.step(result.ladder, result.row),
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
