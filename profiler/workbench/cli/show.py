"""``workbench show``: one variant, or anyone's Nsight Compute report."""

from __future__ import annotations

from pathlib import Path

from workbench.app.judge import judged
from workbench.app.outcomes import LinesResult, ReportResult, VariantResult
from workbench.app.show import (
    chosen,
    one_kernel,
    report_lines,
    report_metric,
    variant_lines,
    variant_metric,
)
from workbench.app.target import require_current, stale_of
from workbench.cli.options import ShowOptions
from workbench.cli.streams import show
from workbench.derive.matching import groups
from workbench.errors import UsageError
from workbench.judge.ladder import file_warnings
from workbench.ncu.report_file import Report, is_report, read_report
from workbench.study.files import stands


def run(options: ShowOptions) -> None:
    if options.top is not None and not options.source:
        raise UsageError("--top is for the lines of --source")
    if options.sass and not options.source:
        raise UsageError("--sass is for the lines of --source", hint="add --source")
    if options.csv and options.source:
        raise UsageError("--csv prints a table, and --source is none", hint="leave one out")
    options = options.identified("name")
    if is_report(options.name):
        return show_report(read_report(Path(options.name)), options)
    if options.kernel is not None or options.launch is not None:
        hint = "a variant's kernels are taken together"
        raise UsageError("--kernel and --launch are for reports", hint=hint)
    try:
        target = options.target([options.name])
        name = target.variants([options.name])[0]
    except UsageError:
        if stands(Path(options.name)):
            read_report(Path(options.name))  # says what it is
        raise
    if options.metric is not None:
        return show(options, variant_metric(target, name, options.metric))
    if options.source:
        lines = variant_lines(target, name, sass=options.sass)
        return show(options, LinesResult(lines, variant=name))
    ladder, evidence = judged(target, [name])
    damaged = tuple(file_warnings(evidence, [name]))
    show(options, VariantResult(ladder, (ladder.row(name),), damaged))
    require_current(stale_of(ladder, [name]))


def show_report(report: Report, options: ShowOptions) -> None:
    picked = chosen(report, options.kernel, options.launch)
    if options.metric is not None:
        return show(options, report_metric(report, picked, options.metric))
    kernels = groups(picked)
    if options.source:
        launch = one_kernel(kernels, report)
        lines = report_lines(report, launch, sass=options.sass)
        return show(options, LinesResult(lines, report=report, launch=launch))
    return show(options, ReportResult(report, picked, kernels))
