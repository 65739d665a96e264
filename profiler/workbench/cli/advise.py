"""``workbench advise``: what limits a variant or the kernels of a report, and what to try next."""

from __future__ import annotations

from pathlib import Path

from workbench.app.judge import judged
from workbench.app.outcomes import ReportResult, VariantResult
from workbench.app.show import chosen, current_capture
from workbench.cli.options import AdviseOptions
from workbench.cli.streams import show
from workbench.derive.matching import groups
from workbench.errors import UsageError
from workbench.judge.ladder import file_warnings
from workbench.ncu.report_file import is_report, read_report


def run(options: AdviseOptions) -> None:
    options = options.identified("name")
    if is_report(options.name):
        report = read_report(Path(options.name))
        picked = chosen(report, options.kernel, None)
        return show(options, ReportResult(report, picked, groups(picked)))
    if options.kernel is not None:
        raise UsageError("--kernel is for reports", hint="a variant's kernels are taken together")
    target = options.target([options.name])
    name = target.variants([options.name])[0]
    current_capture(target, name)
    ladder, evidence = judged(target, [name])
    row, damaged = ladder.row(name), tuple(file_warnings(evidence, [name]))
    show(options, VariantResult(ladder, (row,), damaged))
