"""A page of anyone's reports: launches, limits, roofline, memory chart, source beside source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from workbench.derive.matching import BY_HAND, LaunchGroup, LaunchPair, Matching
from workbench.derive.rooflines import DRAM, Point
from workbench.derive.source_diff import ProfiledSource
from workbench.judge.findings import Finding
from workbench.ncu.report_file import Report
from workbench.render.chart.charts import memory_chart, stall_pair
from workbench.render.chart.charts import pair as stalls_of
from workbench.render.chart.roofline import NO_ARITHMETIC, Mark, draw, mark, roofs
from workbench.render.chart.svg import KEPT, Canvas, Drawing
from workbench.render.document import launches
from workbench.render.document.blocks import (
    Block,
    Document,
    Fold,
    Marking,
    Section,
    SourceChange,
    code,
    line,
    paragraph,
    words,
)
from workbench.render.document.launches import SIDES, Details, PairRead
from workbench.render.document.limits import meanings
from workbench.render.numbers import microseconds, times
from workbench.render.page import PageContent, StepDiff

MOST = 12  # kernels that are shown in full, those with the most time
ROOFLINE = "What the kernels computed under ncu. A percentage is of the roof over the point."


class LaunchProfile(NamedTuple):
    """A launch with all that its charts and its source view need."""

    details: Details
    point: Point | None
    rates: Mapping[str, float]
    side: ProfiledSource


def show_page(
    report: Report, groups: Sequence[LaunchGroup], profiled: Sequence[LaunchProfile]
) -> PageContent:
    """The launches of one report; ``profiled`` are the typical ones of the first groups."""
    kernels, charts, steps = {_name(each): each for each in profiled}, [], []
    for (name, each), group in zip(kernels.items(), groups, strict=False):
        key, count = f"memory-{each.details.launch.index}", len(group.launches)
        charts.append(memory_chart(key, report.name, {name: each.details.figures}))
        limit, *rest = launches.details(each.details).blocks
        blocks = [limit, charts[-1].block, *rest]
        time = microseconds(group.microseconds) + f" in {count}" * (count > 1)
        steps.append(_step(each.details, name, blocks, time))
    table = [launches.group_table(groups), *launches.untimed(groups)]
    head = [launches.about(report)]
    return _page(
        [report], head, table, steps, len(groups), kernels, charts, {}, next(iter(kernels), "")
    )


def diff_page(
    reports: tuple[Report, Report],
    matching: Matching,
    warnings: Sequence[Finding],
    read: Sequence[tuple[PairRead, LaunchProfile, LaunchProfile]],
) -> PageContent:
    """Two reports, with the first pairs of launches read whole; the largest gain is open."""
    before, after = reports
    kernels: dict[str, LaunchProfile] = {}
    charts: list[Drawing] = []
    changes, steps, gains = {}, [], {}
    for both, *sides in read:
        names = [f"{side}, {_name(one)}" for side, one in zip(SIDES, sides, strict=True)]
        profiles = dict(zip(names, sides, strict=True))
        kernels |= profiles
        name, key = names[1], str(sides[1].details.launch.index)
        changes[name] = StepDiff(both.lines, (names[0], name))
        figures = {side: one.details.figures for side, one in profiles.items()}
        drawn = [memory_chart(f"memory-{key}", after.name, figures)]
        if shown := stalls_of(both.comparison, SIDES):
            drawn.insert(0, stall_pair(f"stall-time-{key}", after.name, shown))
        launched = LaunchPair(both.before.launch, both.after.launch, BY_HAND)
        rest = launches.kernels(launched, both, SIDES, source=True).blocks
        blocks = [*(each.block for each in drawn), *_diff(both, names), *rest]
        old, new = (one.details.launch.microseconds for one in sides)
        gains[name] = old / new if old and new else 0.0
        steps.append(_step(sides[1].details, name, blocks, times(new, old)))
        charts += drawn
    head: list[Block] = [
        *(launches.about(each, side) for each, side in zip(reports, SIDES, strict=True)),
        *launches.comparable(warnings),
        *launches.unmatched(matching, (before.name, after.name)),
    ]
    table = [launches.pair_table(matching.groups)]
    opened, count = max(gains, key=gains.__getitem__, default=""), len(matching.groups)
    return _page(reports, head, table, steps, count, kernels, charts, changes, opened)


def _name(profiled: LaunchProfile) -> str:
    return f"launch {profiled.details.launch.index}"


def _step(details: Details, name: str, blocks: Sequence[Block], badge: str) -> Section:
    launch, kind = details.launch, Marking.BASELINE
    title = line(code(launches.kernel(launch, launches.TITLE_WIDTH)))
    return Section(f"launch-{launch.index}", title, tuple(blocks), kind, name, badge)


def _page(
    reports: Sequence[Report],
    head: Sequence[Block],
    table: Sequence[Block],
    steps: Sequence[Section],
    total: int,
    kernels: Mapping[str, LaunchProfile],
    charts: Sequence[Drawing],
    changes: Mapping[str, StepDiff],
    opened: str,
) -> PageContent:
    """``total`` kernels or pairs, of which those with the most time are ``steps``."""
    roofline = _roofline(reports[-1].name, kernels)
    left = [paragraph(f"The {MOST} with the most time are shown.")] if total > len(steps) else []
    meant = tuple(meanings(each.details.stalls for each in kernels.values()))
    stalls = [Fold(words("The stall reasons in plain words"), meant)] * bool(meant)
    sections = (
        Section("result", (), tuple(head)),
        Section("launches", words("Launches"), (*table, roofline.block)),
        Section("kernels", words("Kernels: limits, memory, stalls"), (*left, *stalls, *steps)),
    )
    return PageContent(
        "workbench diff" if len(reports) > 1 else "workbench show",
        ", ".join(dict.fromkeys(gpu for report in reports for gpu in report.gpus)),
        Document(words(" → ".join(report.name for report in reports)), sections),
        [roofline, *charts],
        {name: each.side for name, each in kernels.items()},
        changes,
        {name: each.details.figures for name, each in kernels.items()},
        opened,
    )


def _diff(both: PairRead, names: Sequence[str]) -> list[Block]:
    """Source beside source, or why there is none."""
    if not both.lines.has_costs or not both.lines.hunks:
        return launches.costliest(both.lines, SIDES)
    return [Fold(words("Source beside source"), (SourceChange(names[1], names[0]),))]


def _roofline(where: str, kernels: Mapping[str, LaunchProfile]) -> Drawing:
    def fill(canvas: Canvas) -> float:
        points = {name: each.point for name, each in kernels.items() if each.point}
        rates = next((each.rates for each in kernels.values() if each.rates), {})
        base = next((point.base for point in points.values()), DRAM)
        drawn = roofs(base, [*points.values()], rates, {})
        if not drawn:
            return canvas.instead("ceilings not collected: profile with --set full")
        marks: list[Mark] = []
        for name, point in points.items():
            time = kernels[name].details.figures["duration"].value * 1e-6
            marks += mark(name, point, point.flops, time, drawn, KEPT)
        if not marks:
            return canvas.instead(NO_ARITHMETIC)
        return draw(canvas, marks, drawn, [*points], work="executed")

    return Drawing("roofline", "Roofline", where, fill, f"Roofline of {where}", ROOFLINE)
