"""``profile``: variants with the figures of their captures, or a program's kernels by time."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from workbench.app.ablate import VariantResult, profile
from workbench.app.program import (
    KernelChoice,
    ProgramResult,
    TracedProgram,
    keep_program,
    profile_program,
    require_program,
    trace_program,
    write_trace,
)
from workbench.app.target import find_target, workspace_to_keep
from workbench.cli.options import ProfileOptions
from workbench.cli.show import report_answer, report_brief
from workbench.cli.streams import DASHES, executor, note, note_failures, show
from workbench.errors import Interrupted, ToolFailed, UsageError
from workbench.judge.findings import sentence, sentences
from workbench.render import answers, as_table, doc, in_short
from workbench.render.document import launches, variant
from workbench.render.document.printed_ladder import origin
from workbench.study.workspace import find_workspace
from workbench.words import Status

if TYPE_CHECKING:
    from pandas import DataFrame


OF_PROGRAMS = ("kernel", "launch", "skip", "to")
OF_KEPT = ("keep", "build", "check")
OF_VARIANTS = ("on", "shape", "fresh", "study")


def run(options: ProfileOptions) -> int:
    if options.variants[0] == DASHES:
        return run_program(options, options.variants[1:])
    require(options, (*OF_PROGRAMS, *OF_KEPT), "programs", "a program stands after --")
    first = options.variants[0]
    may_be_file = not first.isidentifier() and "[" not in first  # and no variant's name
    is_program = first.startswith("python") or (may_be_file and Path(first).is_file())
    if DASHES in options.variants or is_program:
        program = [name for name in options.variants if name != DASHES]
        require_program(program)
        raise UsageError(
            "a program is profiled alone, after --",
            hint=f"workbench profile -- {shlex.join(program)}",
        )
    place = (options.project, options.study, options.shape)
    target = find_target(executor(options.on), *place, names=options.variants)
    names = target.variants(options.variants)
    ladder, failures = profile(target, names, fresh=options.fresh, timeline=options.timeline)
    rows = [ladder.row(name) for name in names]
    show(options, VariantResult(ladder, tuple(rows)))
    for row in rows if options.timeline else ():
        if row.timeline:
            trace = write_trace(Path(row.variant), row.timeline)
            note(f"{trace}: {row.variant} for ui.perfetto.dev")
        elif not target.live:
            note(f"no timeline of {row.variant} is recorded, and nothing is measured here")
    failed = [row for row in rows if row.status == Status.FAILED or row.variant in failures]
    why = {row.variant: failures.get(row.variant) or sentence(row.problem) for row in failed}
    note_failures(why, target.study)
    target.executor.require_profiled()
    if failed:
        note("hint: everything else that was measured is kept")
        return 1
    target.executor.require_current(ladder.stale(names))
    return 0


def require(options: ProfileOptions, names: tuple[str, ...], what: str, hint: str) -> None:
    """Raises UsageError for options that say nothing here."""
    for name in names:
        if getattr(options, name) not in (None, False, 0):
            raise UsageError(f"--{name} is for {what}", hint=hint)


def run_program(options: ProfileOptions, program: list[str]) -> int:
    require(options, OF_VARIANTS, "variants", "a program runs here, as it is: leave it out")
    if options.timeline:
        require(options, ("launch", "skip", "to", "keep"), "a profile", "leave it out here")
        show(options, trace_program(program, note, options.kernel))
        return 0
    asked = KernelChoice(**{name: getattr(options, name) for name in OF_PROGRAMS})
    if options.keep:
        require(options, ("launch", "to"), "one report", "with --keep it stands in the study")
        kept = {"build": options.build, "check": options.check}
        workspace = workspace_to_keep(options.project, options.keep)
        result = keep_program(workspace, options.keep, program, note, asked, **kept)
    else:
        require(options, OF_KEPT[1:], "a study", "name it with --keep NAME")
        settings = find_workspace(options.project).config.profiler
        result = profile_program(program, settings, note, asked)
    show(options, result)
    for kernel in result.missing:
        note(f"warning: {kernel} was not launched in the same way again: not profiled")
    if result.interrupted:
        raise Interrupted("interrupted: the report has what was profiled until then")
    if result.failure:
        hint = "the profile is of the kernels that it launched before"
        raise ToolFailed(f"{shlex.join(program)} {result.failure}", hint=hint)
    return 0


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
            profile=report_answer(result.full),
            study=result.steps,
        )
    return answers.ablation(result.ladder, full=[row.variant for row in result.rows])


def brief(result: Result) -> dict[str, object]:
    if isinstance(result, TracedProgram):
        wrong = [in_short.short(text) for text in sentences(result.faults)]
        return {"faults": wrong, "files": [str(path) for path in result.files]}
    if isinstance(result, ProgramResult):
        few = [in_short.listed(group) for group in result.listed[:MOST]]
        kernels = report_brief(result.full)["kernels"]
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
    """Variants; of a program kernels by time, then what limits those that were profiled."""
    if isinstance(result, TracedProgram):
        yield from variant.traced(result.timeline, result.faults)
        trace, chart = map(str, result.files)
        yield doc.paragraph("For ui.perfetto.dev: ", doc.code(trace), "; chart: ", doc.code(chart))
        return
    if isinstance(result, ProgramResult):
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
            yield launches.details(result.full.details(group), short=True)
        shown = doc.code(f"workbench show {quote(str(result.full.report.path))}")
        yield doc.paragraph(
            "All counters: ", shown, ", lines with ", doc.code("--launch N --source")
        )
        return
    ladder = result.ladder
    yield origin(ladder)
    for row in result.rows:
        yield variant.variant(row, ladder)
    yield from doc.warned(sentences(ladder.warnings))
