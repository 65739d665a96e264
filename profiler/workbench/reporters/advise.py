"""``advise``: what to try next after a variant, or with the kernels of a report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workbench.app.outcomes import ReportResult, VariantResult
from workbench.app.show import read
from workbench.judge.findings import sentences
from workbench.render import answers, doc, in_short
from workbench.render.document import advice, launches, variant
from workbench.reporters import show


def data(result: VariantResult | ReportResult) -> object:
    if isinstance(result, ReportResult):
        return show.data(result)
    return answers.advised(result.ladder, result.row, result.damaged)


def brief(result: VariantResult | ReportResult) -> dict[str, object]:
    if isinstance(result, ReportResult):
        return show.brief(result)
    return in_short.step(result.ladder, result.row)


def blocks(result: VariantResult | ReportResult, options: Any) -> Iterator[doc.Block]:
    if isinstance(result, ReportResult):
        yield from _report(result, options)
        return
    yield variant.origin(result.ladder)
    yield from doc.warned(sentences(result.damaged))
    yield advice.to_try(result.row.advice, result.row.variant)


def _report(result: ReportResult, options: Any) -> Iterator[doc.Block]:
    """The kernels with the most time, each with its share of it."""
    yield launches.about(result.report)
    shown = result.groups if options.kernel is not None else result.groups[: launches.DETAILED]
    for group in shown:
        details = read(result.report, group.typical)[1]
        name = launches.kernel(group.typical, launches.TITLE_WIDTH)
        title = doc.line(doc.code(name), launches.of_all(group, result.groups))
        first = advice.first_look(details.advice, details.hottest)[:1]
        parts = (*first, advice.to_try(details.advice))
        yield doc.section(f"launch-{group.typical.index}", title, *parts)
    if len(result.groups) > len(shown):
        yield launches.left_out("shown", "--kernel NAME chooses others")
