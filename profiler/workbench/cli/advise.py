"""``advise``: what to try next after a variant, or with the kernels of a report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.app.ablate import VariantResult, judged_variant
from workbench.app.show import ReportResult, chosen, current_capture
from workbench.cli.options import AdviseOptions
from workbench.cli.show import report_answer, report_brief
from workbench.cli.streams import show
from workbench.judge.findings import sentences
from workbench.ncu.report_file import is_report, read_report
from workbench.render import answers, doc, in_short
from workbench.render.document import advice, launches
from workbench.render.document.printed_ladder import origin


def run(options: AdviseOptions) -> None:
    options = options.identified("name")
    if is_report(options.name):
        report = read_report(Path(options.name))
        picked = chosen(report, options.kernel, None)
        return show(options, ReportResult(report, picked))
    target = options.target([options.name])
    name = target.variants([options.name])[0]
    current_capture(target, name)
    show(options, judged_variant(target, name))


def data(result: VariantResult | ReportResult) -> object:
    if isinstance(result, ReportResult):
        return report_answer(result)
    return answers.advised(result.ladder, result.row, result.damaged)


def brief(result: VariantResult | ReportResult) -> dict[str, object]:
    if isinstance(result, ReportResult):
        return report_brief(result)
    return in_short.step(result.ladder, result.row)


def blocks(result: VariantResult | ReportResult, options: Any) -> Iterator[doc.Block]:
    """The advice; of a report for the kernels with the most time, each with its share of it."""
    if isinstance(result, VariantResult):
        yield origin(result.ladder)
        yield from doc.warned(sentences(result.damaged))
        yield advice.to_try(result.row.advice, result.row.variant)
        return
    yield launches.about(result.report)
    shown = result.groups if options.kernel is not None else result.groups[: launches.DETAILED]
    for group in shown:
        details = result.details(group)
        name = launches.kernel(group.typical, launches.TITLE_WIDTH)
        title = doc.line(doc.code(name), launches.of_all(group, result.groups))
        first = advice.first_look(details.advice, details.hottest)[:1]
        parts = (*first, advice.to_try(details.advice))
        yield doc.section(f"launch-{group.typical.index}", title, *parts)
    if len(result.groups) > len(shown):
        yield launches.left_out("shown", "--kernel NAME chooses others")
