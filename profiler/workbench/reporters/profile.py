"""``profile``: variants with the figures of their captures, or a program's kernels by time."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from shlex import quote
from typing import TYPE_CHECKING

from workbench.app.outcomes import ProgramResult, TracedProgram, VariantResult
from workbench.app.show import read
from workbench.judge.findings import sentence, sentences
from workbench.judge.ladder import Row
from workbench.render import answers, as_table, doc, in_short
from workbench.render.document import launches, variant, warp_times
from workbench.reporters import show

if TYPE_CHECKING:
    from pandas import DataFrame

MOST = 12  # kernels of a program that are listed


Result = VariantResult | ProgramResult | TracedProgram


def data(result: Result) -> object:
    if isinstance(result, TracedProgram):
        return result
    if isinstance(result, ProgramResult):
        rows = [answers.listed(group) for group in result.listed]
        return answers.ProgramAnswer(
            program=result.command,
            failure=result.failure,
            missing=result.missing,
            listed=rows,
            profile=show.report(result.full),
            study=result.steps,
        )
    return answers.ablation(result.ladder, full=[row.variant for row in result.rows])


def brief(result: Result) -> dict[str, object]:
    if isinstance(result, TracedProgram):
        wrong = [in_short.short(text) for text in sentences(result.faults)]
        return {"faults": wrong, "files": [str(path) for path in result.files]}
    if isinstance(result, ProgramResult):
        few = [in_short.listed(group) for group in result.listed[:MOST]]
        kernels = show.brief(result.full)["kernels"]
        for kernel in kernels:
            del kernel["figures"], kernel["bottlenecks"]
            kernel["next"] = kernel["next"] and kernel["next"][: launches.DETAILED]
        report = str(result.full.report.path)
        failed = {"problem": result.failure} if result.failure else {}
        kept = {"study": [in_short.program_step(step) for step in result.steps]}
        return {"report": report, "listed": few, "kernels": kernels, **failed, **kept}
    return in_short.together([in_short.step(result.ladder, row) for row in result.rows])


def frame(result: Result, note: Callable[[str], None]) -> DataFrame:
    """The figures of variants; the kernels of a program, or the steps of its study."""
    if isinstance(result, TracedProgram):
        return as_table.frame(result.timeline, "kernel")
    if isinstance(result, ProgramResult):
        if result.steps:
            rows = (
                {**in_short.program_step(step), "speedup_over_parent": step.speedup_over_parent}
                for step in result.steps
            )
            return as_table.frame(rows, "variant")
        return as_table.frame(map(answers.listed, result.listed), "kernel")
    for text in sentences(result.ladder.warnings):
        note(text)
    return as_table.joined(as_table.figures(r.figures, variant=r.variant) for r in result.rows)


def blocks(result: Result, _: object) -> Iterator[doc.Block]:
    if isinstance(result, TracedProgram):
        yield from warp_times.launches(result.timeline, result.faults)
        trace, chart = map(str, result.files)
        yield doc.paragraph("For ui.perfetto.dev: ", doc.code(trace), "; chart: ", doc.code(chart))
        return
    if isinstance(result, ProgramResult):
        yield from _program(result)
        return
    ladder = result.ladder
    yield variant.origin(ladder)
    for row in result.rows:
        yield variant.variant(row, ladder)
    yield from doc.warned(sentences(ladder.warnings))


def _program(result: ProgramResult) -> Iterator[doc.Block]:
    """Kernels by time, then what limits those that were profiled."""
    if result.steps:
        yield launches.program_ladder(result.steps)
    yield launches.program(shlex.join(result.command), result.listed, is_cut=result.is_cut)
    every = result.listed[:MOST]
    yield launches.group_table(every, result.listed)
    if len(result.listed) > len(every):
        yield doc.paragraph(f"{len(result.listed) - len(every)} more with less time: --json")
    yield from launches.untimed(result.listed)
    yield launches.about(result.full.report)
    for group in result.full.groups[: launches.DETAILED]:
        yield launches.in_short(read(result.full.report, group.typical)[1])
    shown = doc.code(f"workbench show {quote(str(result.full.report.path))}")
    yield doc.paragraph("All counters: ", shown, ", lines with ", doc.code("--launch N --source"))


def problem(row: Row) -> str:
    """Why a row has no figures."""
    return sentence(row.problem)
