"""``workbench advise``: what limits a variant now, and what kind of change to try next."""

from __future__ import annotations

from shlex import quote

from workbench.app.judge import judged
from workbench.app.outcomes import VariantResult
from workbench.app.show import current_capture
from workbench.cli.options import AdviseOptions
from workbench.cli.printing import show
from workbench.errors import UsageError
from workbench.judge.ladder import file_warnings
from workbench.ncu.report_file import is_report


def run(options: AdviseOptions) -> None:
    if is_report(options.name):
        raise UsageError(
            f"{options.name} is a report, and advice is for variants of a study",
            hint=f"`workbench show {quote(options.name)}` ends in what to try next",
        )
    target = options.target([options.name])
    name = target.variants([options.name])[0]
    current_capture(target, name)
    found, evidence = judged(target, [name])
    row, damaged = found.row(name), tuple(file_warnings(evidence, [name]))
    show(options, VariantResult(found, (row,), damaged))
