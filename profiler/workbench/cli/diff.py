"""``workbench diff``: two variants of a study, or two Nsight Compute reports of anyone."""

from __future__ import annotations

from pathlib import Path

from workbench.app.judge import judged
from workbench.app.kernel_code import (
    CUBIN,
    code_of_binaries,
    code_of_captures,
    code_of_reports,
    compiled_code,
)
from workbench.app.outcomes import PairResult, ReportPairResult
from workbench.app.show import pairs, require_pairs
from workbench.app.target import find_study, in_place, require_current, stale_of
from workbench.cli.options import DiffOptions
from workbench.cli.streams import executor, show
from workbench.errors import CannotTell, EnvironmentLacks, UsageError
from workbench.judge.comparison import warnings
from workbench.judge.findings import sentence
from workbench.judge.ladder import judge_pair, pair_sources
from workbench.ncu.report_file import Report, is_report, read_report
from workbench.study.files import for_shell
from workbench.words import Status


def run(options: DiffOptions) -> None:
    options = options.identified("before", "after")
    names = [options.before, options.after]
    if all(name.endswith(CUBIN) for name in names):
        return show(options, code_of_binaries(*map(Path, names)))
    files = [name for name in names if is_report(name) or name.endswith(CUBIN)]
    if all(map(is_report, names)):
        return reports(read_report(Path(options.before)), read_report(Path(options.after)), options)
    if files:
        takes = "`diff` takes two reports, two cubin files or two variants"
        shows = f"`workbench show {for_shell(files[0])}` shows it; " * is_report(files[0])
        message = f"{files[0]} is a file, the other is none of its kind"
        raise UsageError(message, hint=f"{shows}{takes}")
    if options.kernel is not None or options.launch is not None:
        hint = "a variant's kernels are taken together"
        raise UsageError("--kernel and --launch are for reports", hint=hint)
    return variants(options)


def variants(options: DiffOptions) -> None:
    names = [options.before, options.after]
    if options.sass:
        return machine_code(options, names)
    target = options.target(names)
    before, after = target.variants(names)
    require_two(before, after)
    ladder, evidence = judged(target, [before, after], sources=True)
    rows = ladder.row(before), ladder.row(after)
    pair = judge_pair(evidence, target.workspace.config, *rows)
    # Of a stale or a wrong variant the sources can be compared all the same.
    is_absent = any(row.is_unsupported or row.status == Status.MISSING for row in rows)
    if is_absent and pair.speedup is None and pair.comparison is None:
        why = "; ".join(f"{row.variant}: {sentence(row.problem)}" for row in rows if row.problem)
        raise CannotTell(
            f"nothing of both is recorded at {ladder.shape}" + f" ({why})" * bool(why),
            hint="name a shape that both have: --shape",
        )
    changes = pair_sources(evidence, before, after)
    paths = {file.after: in_place(file.after, target.study) for file in changes.files if file.after}
    show(options, PairResult(ladder, pair, changes, paths))
    require_current(stale_of(ladder, [before, after]))


def require_two(before: str, after: str) -> None:
    if before == after:
        raise UsageError(f"'{before}' is compared with itself", hint="name two variants")


def machine_code(options: DiffOptions, names: list[str]) -> None:
    try:
        target = options.target(names)
        before, after = target.variants(names)
        require_two(before, after)
        result = code_of_captures(target, before, after)
    except (EnvironmentLacks, CannotTell) as error:
        require_two(*names)
        here = executor()
        workspace, study = find_study(here, options.project, options.study)
        result = compiled_code(here, workspace, study, names, error.message)
    show(options, result)


def reports(before: Report, after: Report, options: DiffOptions) -> None:
    matching = pairs(before, after, options.kernel, options.launch)
    if options.sass:
        show(options, code_of_reports(before, after, matching))
        return require_pairs(matching)
    unlike = warnings(before, after, matching)
    show(options, ReportPairResult(before, after, matching, unlike))
    require_pairs(matching)
