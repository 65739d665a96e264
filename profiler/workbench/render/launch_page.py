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
from workbench.render.chart.roofline import NO_ARITHMETIC, Mark, draw, mark, roofs
from workbench.render.chart.stalls import pair as stalls_of
from workbench.render.chart.svg import KEPT, Canvas, Drawing
from workbench.render.document import advice, launches, pair, variant, why
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
    names = [_name(each) for each in profiled]
    kernels = dict(zip(names, profiled, strict=True))
    charts = [_roofline(report.name, kernels)]
    steps = []
    for (name, each), group in zip(kernels.items(), groups, strict=False):
        details, key = each.details, f"memory-{each.details.launch.index}"
        charts.append(memory_chart(key, report.name, {name: details.figures}))
        blocks: list[Block] = [
            *advice.first_look(details.advice, details.hottest),
            charts[-1].block,
            paragraph("Top bottlenecks:"),
            *launches.bottlenecks(details),
            *variant.profile(details.figures, details.stalls, details.occupancy_limiters, ()),
        ]
        time = microseconds(group.microseconds)
        count = len(group.launches)
        steps.append(_step(details, name, blocks, time if count == 1 else f"{time} in {count}"))
    table: list[Block] = [
        launches.group_table(groups),
        *launches.untimed(groups),
        charts[0].block,
    ]
    document = _document(report.name, [launches.about(report)], table, steps, len(groups))
    return PageContent(
        "workbench show",
        ", ".join(report.gpus),
        document,
        charts,
        {name: each.side for name, each in kernels.items()},
        {},
        {name: each.details.figures for name, each in kernels.items()},
        names[0] if names else "",
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
    changes, steps, gains = {}, [], {}
    charts: list[Drawing] = []
    for both, *sides in read:
        names = [f"{side}, {_name(one)}" for side, one in zip(SIDES, sides, strict=True)]
        kernels |= dict(zip(names, sides, strict=True))
        name, key = names[1], str(sides[1].details.launch.index)
        changes[name] = StepDiff(both.lines, (names[0], name))
        figures = {name: one.details.figures for name, one in zip(names, sides, strict=True)}
        drawn = [memory_chart(f"memory-{key}", after.name, figures)]
        if shown := stalls_of(both.comparison):
            drawn.insert(0, stall_pair(f"stall-time-{key}", after.name, shown))
        account = why.account(both.comparison)
        launches_ = LaunchPair(both.before.launch, both.after.launch, BY_HAND)
        rest = pair.kernels(launches_, both, SIDES, source=True).blocks[len(account) :]
        blocks = [
            *account,
            *(each.block for each in drawn),
            *_diff(both, names),
            *rest,
        ]
        old, new = (one.details.launch.microseconds for one in sides)
        gains[name] = old / new if old and new else 0.0
        steps.append(_step(sides[1].details, name, blocks, times(new, old)))
        charts += drawn
    charts.insert(0, _roofline(after.name, kernels))
    head: list[Block] = [
        *(launches.about(each, side) for each, side in zip(reports, SIDES, strict=True)),
        *pair.comparable(warnings),
        *launches.unmatched(matching, (before.name, after.name)),
    ]
    table: list[Block] = [launches.pair_table(matching.groups), charts[0].block]
    title = f"{before.name} → {after.name}"
    document = _document(title, head, table, steps, len(matching.groups))
    return PageContent(
        "workbench diff",
        ", ".join(dict.fromkeys((*before.gpus, *after.gpus))),
        document,
        charts,
        {name: each.side for name, each in kernels.items()},
        changes,
        {name: each.details.figures for name, each in kernels.items()},
        max(gains, key=gains.__getitem__, default=""),
    )


def _name(profiled: LaunchProfile) -> str:
    return f"launch {profiled.details.launch.index}"


def _step(details: Details, name: str, blocks: Sequence[Block], badge: str) -> Section:
    launch = details.launch
    title = line(code(launches.kernel(launch, launches.TITLE_WIDTH)))
    kind = Marking.BASELINE
    return Section(f"launch-{launch.index}", title, tuple(blocks), kind, name, badge)


def _document(
    title: str, head: Sequence[Block], table: Sequence[Block], steps: Sequence[Section], total: int
) -> Document:
    left = [paragraph(f"The {MOST} with the most time are shown.")] if total > len(steps) else []
    sections = (
        Section("result", (), tuple(head)),
        Section("launches", words("Launches"), tuple(table)),
        Section("kernels", words("Kernels: limits, memory, stalls"), (*left, *steps)),
    )
    return Document(words(title), sections)


def _diff(both: PairRead, names: Sequence[str]) -> list[Block]:
    """Source beside source, or why there is none."""
    if not both.lines.has_costs or not both.lines.hunks:
        return pair.costliest(both.lines, SIDES)
    return [Fold(words("Source beside source"), (SourceChange(names[1], names[0]),))]


def _roofline(where: str, kernels: Mapping[str, LaunchProfile]) -> Drawing:
    def fill(canvas: Canvas) -> float:
        points = {name: each.point for name, each in kernels.items() if each.point}
        rates = next((each.rates for each in kernels.values() if each.rates), {})
        base = next((point.base for point in points.values()), DRAM)
        drawn = roofs(base, [*points.values()], rates)
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
