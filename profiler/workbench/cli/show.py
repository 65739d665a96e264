"""``workbench show``: one variant, or anyone's Nsight Compute report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from msgspec import UNSET

from workbench.app.judge import judged
from workbench.app.show import (
    Metric,
    SourceListing,
    chosen,
    one_kernel,
    read,
    report_lines,
    report_metric,
    variant_lines,
    variant_metric,
)
from workbench.app.target import require_current, stale_of
from workbench.cli.options import ShowOptions
from workbench.cli.printing import output, show_brief, show_json, tell
from workbench.derive.matching import groups
from workbench.errors import UsageError
from workbench.judge.comparability import file_warnings
from workbench.judge.findings import sentences
from workbench.ncu.report_file import Report, is_report, read_report
from workbench.render import answers, brief, source_lines
from workbench.render.answers import ReportAnswer, ReportLines, VariantAnswer, VariantLines
from workbench.render.document import launches, variant
from workbench.render.document.blocks import Block, paragraph, warned
from workbench.render.document.launches import DETAILED, left_out

HOTTEST = 10  # lines before the sources


def run(options: ShowOptions) -> None:
    if options.top is not None and not options.source:
        raise UsageError("--top is for the lines of --source")
    if options.sass and not options.source:
        raise UsageError("--sass is for the lines of --source", hint="add --source")
    if options.csv and options.source:
        raise UsageError("--csv prints a table, and --source is none", hint="leave one out")
    options = identified(options)
    if is_report(options.name):
        return show_report(read_report(Path(options.name)), options)
    if options.kernel is not None or options.launch is not None:
        hint = "a variant's kernels are taken together"
        raise UsageError("--kernel and --launch are for reports", hint=hint)
    target = options.target([options.name])
    name = target.variants([options.name])[0]
    if options.metric is not None:
        return show_metric(options, variant_metric(target, name, options.metric))
    if options.source:
        lines = variant_lines(target, name, sass=options.sass)
        return show_lines(options, lines, partial(VariantLines, variant=name))
    found, evidence = judged(target, [name])
    row = found.row(name)
    damaged = tuple(file_warnings(evidence, [name]))
    tell(
        options,
        lambda: VariantAnswer(
            study=found.study,
            gpu=found.gpu,
            of_row=answers.whole_row(found, row),
            warnings=damaged,
        ),
        lambda: [
            variant.origin(found),
            variant.variant(row, found),
            variant.evidence_states(row),
            *warned(sentences(damaged)),
        ],
        lambda: brief.more(found, row),
        brief.MORE,
    )
    require_current(stale_of(found, [name]))


def identified(options: ShowOptions) -> ShowOptions:
    """An evidence id, STUDY/SHAPE/VARIANT@DATE, as the options that it stands for."""
    if options.name.count("/") != 2 or is_report(options.name):
        return options
    study, shape, name = options.name.split("/")
    return replace(options, study=study, shape=shape, name=name.partition("@")[0])


def show_report(report: Report, options: ShowOptions) -> None:
    picked = chosen(report, options.kernel, options.launch)
    if options.metric is not None:
        return show_metric(options, report_metric(report, picked, options.metric))
    found = groups(picked)
    if options.source:
        launch = one_kernel(found, report)
        lines = report_lines(report, launch, sass=options.sass)
        made = partial(
            ReportLines,
            of_report=report,
            launch=launch.index,
            kernel=launch.kernel,
            without_text=[*lines.notes],
        )
        return show_lines(options, lines, made, launches.about(report))
    if options.json:
        kernels = [answers.kernel(read(report, group.typical)[1], group) for group in found]
        return show_json(ReportAnswer(of_report=report, launches=picked, kernels=kernels))
    if options.brief:
        few = found[:DETAILED]
        told_of = [brief.kernel(read(report, g.typical)[1], len(g.launches)) for g in few]
        return show_brief({"report": report.name, "kernels": told_of}, brief.MORE)
    every = options.kernel is not None or options.launch is not None
    shown = found if every else found[:DETAILED]
    blocks: list[Block] = [launches.about(report), launches.group_table(found)]
    blocks += launches.untimed(found)
    blocks += [launches.details(read(report, g.typical)[1], len(g.launches)) for g in shown]
    if len(found) > len(shown):
        blocks.append(left_out("shown", "--kernel NAME or --launch N chooses others"))
    return output(options).show(*blocks)


def show_metric(options: ShowOptions, found: Metric) -> None:
    of = f" of {found.variant}" if found.variant else ""
    title = f"{found.metric}{of} ({found.capture})"
    tell(
        options,
        lambda: found,
        lambda: [paragraph(title), variant.metric_table(found.metrics)],
    )


def show_lines(
    options: ShowOptions, found: SourceListing, made: Callable[..., object], *head: Block
) -> None:
    """The hottest lines, and without ``--top`` every file with its stalls. ``made`` is the record
    of JSON, ``head`` stands before the lines elsewhere.
    """
    files, code = source_lines.hottest_first(found.files), found.code
    if options.json:
        return show_json(made(files=files, sass=code.instructions if code else UNSET))
    out = output(options)
    if head:
        out.show(*head)
        out.gap()
    by_line = code.by_line if code else {}
    of_lines = by_line if options.top else {}
    out.lines(partial(source_lines.hottest, files, options.top or HOTTEST, of_lines))
    if options.top is None:
        out.gap()
        out.lines(partial(source_lines.sources, files, found.notes, by_line))
