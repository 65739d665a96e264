"""``workbench profile``: variants of a study, or any program."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from pathlib import Path

from workbench.app.judge import profile
from workbench.app.outcomes import VariantResult
from workbench.app.target import find_target, require_current, stale_of, workspace_to_keep
from workbench.cli.options import ProfileOptions
from workbench.cli.streams import DASHES, executor, note, note_failures, show, telling
from workbench.errors import Interrupted, ToolFailed, UsageError
from workbench.reporters.profile import problem
from workbench.words import Status

OF_PROGRAMS = ("kernel", "launch", "skip", "to")
OF_KEPT = ("keep", "build", "check")
OF_VARIANTS = ("on", "shape", "fresh", "study")


def run(options: ProfileOptions) -> int:
    if options.variants[0] == DASHES:
        return run_program(options, options.variants[1:])
    require(options, (*OF_PROGRAMS, *OF_KEPT), "programs", "a program stands after --")
    first = options.variants[0]
    if DASHES in options.variants or first.startswith("python") or is_file(first):
        from workbench.app.program import require_program

        program = [name for name in options.variants if name != DASHES]
        require_program(program)
        raise UsageError(
            "a program is profiled alone, after --",
            hint=f"workbench profile -- {shlex.join(program)}",
        )
    place = (options.project, options.study, options.shape)
    target = find_target(executor(options.on), *place, names=options.variants)
    names = target.variants(options.variants)
    with telling("measuring, and tracing the warps") if options.timeline else nullcontext():
        ladder, failures = profile(target, names, fresh=options.fresh, timeline=options.timeline)
    rows = [ladder.row(name) for name in names]
    show(options, VariantResult(ladder, tuple(rows)))
    for row in rows if options.timeline else ():
        if row.timeline:
            from workbench.app.program import write_trace

            trace = write_trace(Path(row.variant), row.timeline)
            note(f"{trace}: {row.variant} for ui.perfetto.dev")
        elif not target.live:
            note(f"no timeline of {row.variant} is recorded, and nothing is measured here")
    failed = [row for row in rows if row.status == Status.FAILED or row.variant in failures]
    why = {row.variant: failures.get(row.variant) or problem(row) for row in failed}
    note_failures(why, target.study)
    target.executor.require_profiled()
    if failed:
        note("hint: everything else that was measured is kept")
        return 1
    require_current(stale_of(ladder, names))
    return 0


def is_file(name: str) -> bool:
    """Whether a name cannot be a variant's, and a file stands there."""
    return not name.isidentifier() and "[" not in name and Path(name).is_file()


def require(options: ProfileOptions, names: tuple[str, ...], what: str, hint: str) -> None:
    """Raises UsageError for options that say nothing here."""
    for name in names:
        if getattr(options, name) not in (None, False, 0):
            raise UsageError(f"--{name} is for {what}", hint=hint)


def run_program(options: ProfileOptions, program: list[str]) -> int:
    from workbench.app.program import KernelChoice, profile_program, trace_program
    from workbench.study.workspace import find_workspace

    require(options, OF_VARIANTS, "variants", "a program runs here, as it is: leave it out")
    if options.timeline:
        require(options, ("launch", "skip", "to", "keep"), "a profile", "leave it out here")
        show(options, trace_program(program, note, options.kernel))
        return 0
    asked = KernelChoice(**{name: getattr(options, name) for name in OF_PROGRAMS})
    if options.keep:
        from workbench.app.program_study import keep_program

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
