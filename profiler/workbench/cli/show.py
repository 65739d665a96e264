"""``show``: a variant, the launches of a report, a metric, or source lines."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from workbench.app.ablate import VariantResult, judged_variant
from workbench.app.show import (
    Metric,
    ReportResult,
    SourceListing,
    chosen,
    current_capture,
    instructions_of,
    listed,
    report_lines,
    report_metric,
)
from workbench.app.target import Target
from workbench.cli.options import ShowOptions
from workbench.cli.streams import show
from workbench.derive.source_diff import line_costs
from workbench.errors import UsageError
from workbench.judge.findings import sentences
from workbench.ncu.capture import find_metric, kept_metric, load_sources, require_lines
from workbench.ncu.report_file import is_report, read_report
from workbench.render import answers, as_table, doc, in_short
from workbench.render.answers import ReportAnswer, ReportLines, VariantAnswer, VariantLines
from workbench.render.as_json import shown_fields
from workbench.render.document import hunks, launches, variant
from workbench.render.document.hunks import hottest_first
from workbench.render.document.printed_ladder import origin
from workbench.study.files import stands
from workbench.study.front_ends import front_ends_of, why_no_lines
from workbench.study.sources import source_files, source_texts

if TYPE_CHECKING:
    from pandas import DataFrame


def run(options: ShowOptions) -> None:
    if options.top is not None and not options.source:
        raise UsageError("--top is for the lines of --source")
    if options.sass and not options.source:
        raise UsageError("--sass is for the lines of --source", hint="add --source")
    if options.csv and options.source:
        raise UsageError("--csv prints a table, and --source is none", hint="leave one out")
    options = options.identified("name")
    if is_report(options.name):
        report = read_report(Path(options.name))
        picked = chosen(report, options.kernel, options.launch)
        if options.metric is not None:
            return show(options, report_metric(report, picked, options.metric))
        of_report = ReportResult(report, picked)
        if not options.source:
            return show(options, of_report)
        if len(kernels := of_report.groups) > 1:
            names = ", ".join(dict.fromkeys(group.typical.kernel for group in kernels[:8]))
            raise UsageError(
                f"{report.name} holds {len(kernels)} kernels or launch shapes",
                hint=f"choose one with --kernel NAME or --launch N: {names}",
            )
        return show(options, report_lines(report, kernels[0].typical, sass=options.sass))
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
        return show(options, variant_lines(target, name, sass=options.sass))
    result = judged_variant(target, name)
    show(options, result)
    target.executor.require_current(result.ladder.stale([name]))


def variant_metric(target: Target, name: str, metric: str) -> Metric:
    report, wanted, capture = current_capture(target, name)
    values = find_metric(report, wanted, metric) if report else kept_metric(capture, metric)
    return Metric(metric, name, capture.path.name, values)


def variant_lines(target: Target, name: str, *, sass: bool) -> SourceListing:
    """Raises UsageError where the capture has no lines, or no instructions."""
    report, wanted, capture = current_capture(target, name)
    sources = source_files(target.study, target.study.variants[name])
    if not sass:
        require_lines(capture, why_no_lines(front_ends_of(sources)))
    if report is not None:
        texts = load_sources(report, wanted)
    else:  # the capture is current: its sources are the workspace's
        charged = set(capture.lines["file"])
        texts_here = source_texts(target.study, target.study.variants[name])
        texts = {file: text for file, text in texts_here.items() if file in charged}
    costs = line_costs(capture.lines, capture.metrics, capture.collected)
    files = {file: listed(costs, file, text) for file, text in texts.items()}
    paths = {file: target.study.in_place(file) for file in files}
    code = instructions_of(capture, name) if sass else None
    return SourceListing(files, code, paths=paths, variant=name)


HOTTEST = 10  # lines before the sources
Shown = VariantResult | ReportResult | SourceListing | Metric


def data(result: Shown) -> object:
    match result:
        case VariantResult(ladder=ladder, row=row, damaged=damaged):
            whole = answers.whole_row(ladder, row)
            return VariantAnswer(study=ladder.study, gpu=ladder.gpu, of_row=whole, warnings=damaged)
        case ReportResult():
            return report_answer(result)
        case SourceListing():
            files = hottest_first(result.files)
            sass = result.code.instructions if result.code else UNSET
            if result.report is None or result.launch is None:
                return VariantLines(variant=result.variant, files=files, sass=sass)
            return ReportLines(
                of_report=result.report,
                launch=result.launch.index,
                kernel=result.launch.kernel,
                without_text=[*result.notes],
                files=files,
                sass=sass,
            )
    return result


def report_answer(result: ReportResult) -> ReportAnswer:
    kernels = [answers.kernel(result.details(each), each) for each in result.groups]
    return ReportAnswer(of_report=result.report, launches=result.picked, kernels=kernels)


def brief(result: VariantResult | ReportResult) -> dict[str, object]:
    if isinstance(result, VariantResult):
        return in_short.more(result.ladder, result.row)
    return report_brief(result)


def report_brief(result: ReportResult) -> dict[str, Any]:
    """Return the kernels with the most time."""
    few = result.groups[: launches.DETAILED]
    kernels = [in_short.kernel(result.details(each), len(each.launches)) for each in few]
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
            read = ((group.typical, result.details(group)) for group in result.groups)
            return as_table.joined(
                as_table.figures(d.figures, launch=x.index, kernel=x.kernel) for x, d in read
            )
        case Metric(metrics=metrics):
            return as_table.frame(map(shown_fields, metrics), "launch")
    raise TypeError(result)  # of lines there is no table: `show` refuses


def blocks(result: Shown, options: Any) -> Iterator[doc.Block]:
    match result:
        case VariantResult(ladder=ladder, row=row, damaged=damaged):
            yield origin(ladder)
            yield variant.variant(row, ladder)
            yield variant.evidence_states(row)
            yield from doc.warned(sentences(damaged))
        case ReportResult(groups=kernels):
            yield launches.about(result.report)
            yield launches.group_table(kernels)
            yield from launches.untimed(kernels)
            every = options.kernel is not None or options.launch is not None
            shown = kernels if every else kernels[: launches.DETAILED]
            for each in shown:
                yield launches.details(result.details(each), len(each.launches))
            if len(kernels) > len(shown):
                yield launches.left_out("shown", "--kernel NAME or --launch N chooses others")
        case Metric():
            of = f" of {result.variant}" if result.variant else ""
            yield doc.paragraph(f"{result.metric}{of} ({result.capture})")
            yield doc.table("metric", variant.METRICS, result.metrics)
        case SourceListing():
            yield from _lines(result, options)


def _lines(listing: SourceListing, options: Any) -> Iterator[doc.Block]:
    """The hottest lines, and without ``--top`` every file with its stalls."""
    paths = listing.paths
    files = {paths.get(file, file): x for file, x in hottest_first(listing.files).items()}
    code = listing.code.by_line if listing.code else {}
    by_line = {(paths.get(file, file), line): x for (file, line), x in code.items()}
    if listing.report is not None:
        yield launches.about(listing.report)
    of_lines = by_line if options.top else {}
    yield doc.LinesBlock(list(hunks.hottest(files, options.top or HOTTEST, of_lines)))
    if options.top is None:
        yield doc.LinesBlock(list(hunks.sources(files, listing.notes, by_line)))
