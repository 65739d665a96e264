"""``diff``: two variants, or two reports, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from workbench.app.kernel_code import MachineCodeResult
from workbench.app.outcomes import PairResult, ReportPairResult
from workbench.app.show import profiled, read_pair
from workbench.derive.matching import PairGroup
from workbench.derive.source_diff import SourceDiff
from workbench.judge.findings import sentences
from workbench.render import answers, source_lines
from workbench.render import brief as in_short
from workbench.render.document import hunks, launches, variant
from workbench.render.document.blocks import Block, LinesBlock, paragraph
from workbench.render.document.launches import DETAILED, SIDES, PairRead, left_out
from workbench.render.launch_page import MOST, diff_page
from workbench.render.page import PageContent
from workbench.reporters import sass


def data(result: PairResult | ReportPairResult | MachineCodeResult) -> object:
    if isinstance(result, MachineCodeResult):
        return sass.data(result)
    if isinstance(result, PairResult):
        return answers.variant_pair(result.ladder, result.pair, result.changes)
    return answers.ReportPair(
        before=result.before,
        after=result.after,
        warnings=list(result.warnings),
        kernels=[
            answers.kernel_pair(_read(result, group), group) for group in result.matching.groups
        ],
        only_before=result.matching.only_before,
        only_after=result.matching.only_after,
    )


def brief(result: PairResult | ReportPairResult | MachineCodeResult) -> dict[str, object]:
    if isinstance(result, MachineCodeResult):
        return sass.brief(result)
    if isinstance(result, PairResult):
        return in_short.pair(result.ladder, result.pair)
    both = [_read(result, group) for group in result.matching.groups[:DETAILED]]
    return {
        "before": result.before.name,
        "after": result.after.name,
        "kernels": [in_short.kernel_pair(each.comparison, each.after.advice) for each in both],
        "warnings": [*sentences(result.warnings)],
        **in_short.command("", "show", str(result.after.path)),
    }


def blocks(
    result: PairResult | ReportPairResult | MachineCodeResult, options: Any
) -> Iterator[Block]:
    if isinstance(result, MachineCodeResult):
        yield from sass.blocks(result, options)
        return
    if isinstance(result, ReportPairResult):
        yield from _reports(result, options)
        return
    names = (result.pair.before.variant, result.pair.after.variant)
    yield variant.origin(result.ladder)
    yield from launches.variants(result.pair, result.changes, source=options.source)
    if options.source:
        yield from _source(result.changes, names, result.paths)


def page(result: ReportPairResult) -> PageContent:
    reports = result.before, result.after
    read = []
    for group in result.matching.groups[:MOST]:
        launches_ = group.typical.before, group.typical.after
        one, other = (profiled(*each) for each in zip(reports, launches_, strict=True))
        read.append((_read(result, group), one, other))
    return diff_page(reports, result.matching, result.warnings, read)


def _reports(result: ReportPairResult, options: Any) -> Iterator[Block]:
    before, after, matching = result.before, result.after, result.matching
    for report, side in zip((before, after), SIDES, strict=True):
        yield launches.about(report, side)
    yield from launches.comparable(result.warnings)
    yield from launches.unmatched(matching, (before.name, after.name))
    if not matching.groups:
        return
    yield launches.pair_table(matching.groups)
    every = options.kernel is not None or options.launch is not None
    shown = matching.groups if every else matching.groups[:DETAILED]
    for group in shown:
        read = _read(result, group)
        source = options.source and read.lines.has_costs
        yield launches.kernels(group.typical, read, SIDES, source=source)
        if source:
            yield from _source(read.lines, SIDES)
    if len(matching.groups) > len(shown):
        yield left_out("compared", "--kernel NAME or --launch A:B chooses others")


def _read(result: ReportPairResult, group: PairGroup) -> PairRead:
    return read_pair(result.before, result.after, group.typical)


def _source(
    changes: SourceDiff, names: tuple[str, str], paths: Mapping[str, str] = hunks.NO_PATHS
) -> Iterator[Block]:
    """Every hunk with its costs, or why there are none."""
    if absent := hunks.absences(changes, names):
        yield paragraph(absent)
    yield LinesBlock(lambda width: source_lines.diff(changes, names, width, paths))
