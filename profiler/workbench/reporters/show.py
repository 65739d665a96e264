"""``show``: a variant, the launches of a report, a metric, or source lines."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from workbench.app.outcomes import LinesResult, ReportResult, VariantResult
from workbench.app.show import Metric, read
from workbench.derive.matching import LaunchGroup
from workbench.judge.findings import sentences
from workbench.render import answers, as_table, doc, in_short
from workbench.render.answers import ReportAnswer, ReportLines, VariantAnswer, VariantLines
from workbench.render.as_json import shown_fields
from workbench.render.document import hunks, launches, variant
from workbench.render.document.hunks import hottest_first

if TYPE_CHECKING:
    from pandas import DataFrame

HOTTEST = 10  # lines before the sources
Shown = VariantResult | ReportResult | LinesResult | Metric


def data(result: Shown) -> object:
    match result:
        case VariantResult(ladder=ladder, row=row, damaged=damaged):
            whole = answers.whole_row(ladder, row)
            return VariantAnswer(study=ladder.study, gpu=ladder.gpu, of_row=whole, warnings=damaged)
        case ReportResult():
            return report(result)
        case LinesResult(listing=listing):
            files = hottest_first(listing.files)
            sass = listing.code.instructions if listing.code else UNSET
            if result.report is None or result.launch is None:
                return VariantLines(variant=result.variant, files=files, sass=sass)
            return ReportLines(
                of_report=result.report,
                launch=result.launch.index,
                kernel=result.launch.kernel,
                without_text=[*listing.notes],
                files=files,
                sass=sass,
            )
    return result


def report(result: ReportResult) -> ReportAnswer:
    kernels = [answers.kernel(_details(result, each), each) for each in result.groups]
    return ReportAnswer(of_report=result.report, launches=result.picked, kernels=kernels)


def brief(result: VariantResult | ReportResult) -> dict[str, Any]:
    if isinstance(result, VariantResult):
        return in_short.more(result.ladder, result.row)
    few = result.groups[: launches.DETAILED]
    kernels = [in_short.kernel(_details(result, each), len(each.launches)) for each in few]
    lines = ("show", str(result.report.path), "--source", "--top", "5", "--json")
    return {
        "report": result.report.name,
        "kernels": kernels,
        "next_command": shlex.join(("workbench", *lines)),
    }


def frame(result: Shown, note: Callable[[str], None]) -> DataFrame:
    """Figures of a variant or of the kernels of a report; a metric of all launches."""
    match result:
        case VariantResult(row=row, damaged=damaged):
            for text in sentences(damaged):
                note(text)
            return as_table.figures(row.figures)
        case ReportResult():
            read = ((group.typical, _details(result, group)) for group in result.groups)
            return as_table.joined(
                as_table.figures(d.figures, launch=x.index, kernel=x.kernel) for x, d in read
            )
        case Metric(metrics=metrics):
            return as_table.frame(map(shown_fields, metrics), "launch")
    raise TypeError(result)  # of lines there is no table: `show` refuses


def blocks(result: Shown, options: Any) -> Iterator[doc.Block]:
    match result:
        case VariantResult(ladder=ladder, row=row, damaged=damaged):
            yield variant.origin(ladder)
            yield variant.variant(row, ladder)
            yield variant.evidence_states(row)
            yield from doc.warned(sentences(damaged))
        case ReportResult():
            yield from _report(result, options)
        case Metric():
            of = f" of {result.variant}" if result.variant else ""
            yield doc.paragraph(f"{result.metric}{of} ({result.capture})")
            yield doc.table("metric", variant.METRICS, result.metrics)
        case LinesResult():
            yield from _lines(result, options)


def _report(result: ReportResult, options: Any) -> Iterator[doc.Block]:
    kernels = result.groups
    yield launches.about(result.report)
    yield launches.group_table(kernels)
    yield from launches.untimed(kernels)
    every = options.kernel is not None or options.launch is not None
    shown = kernels if every else kernels[: launches.DETAILED]
    for each in shown:
        yield launches.details(_details(result, each), len(each.launches))
    if len(kernels) > len(shown):
        yield launches.left_out("shown", "--kernel NAME or --launch N chooses others")


def _details(result: ReportResult, group: LaunchGroup) -> launches.Details:
    return read(result.report, group.typical)[1]


def _lines(result: LinesResult, options: Any) -> Iterator[doc.Block]:
    """The hottest lines, and without ``--top`` every file with its stalls."""
    listing = result.listing
    paths = listing.paths
    files = {paths.get(file, file): x for file, x in hottest_first(listing.files).items()}
    code = listing.code.by_line if listing.code else {}
    by_line = {(paths.get(file, file), line): x for (file, line), x in code.items()}
    if result.report is not None:
        yield launches.about(result.report)
    of_lines = by_line if options.top else {}
    yield doc.LinesBlock(partial(hunks.hottest, files, options.top or HOTTEST, of_lines))
    if options.top is None:
        yield doc.LinesBlock(partial(hunks.sources, files, listing.notes, by_line))
