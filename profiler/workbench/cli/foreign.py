"""``workbench show`` and ``workbench diff`` on anyone's reports: no workspace is needed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.cli.options import DiffOptions, ShowOptions
from workbench.cli.printing import Output, output, show_json, tell
from workbench.cli.source_listing import listed, show_listing
from workbench.derive.diff.costs import line_costs
from workbench.derive.diff.model import SourceDiff
from workbench.derive.diff.source_diff import imported, source_diff
from workbench.derive.figures import figures, occupancy_limiters, stall_shares
from workbench.derive.matching import (
    BY_HAND,
    LaunchGroup,
    LaunchPair,
    Matching,
    PairGroup,
    groups,
    match,
)
from workbench.errors import UsageError
from workbench.judge.advice.advise import advise
from workbench.judge.advice.subject import subject
from workbench.judge.bottlenecks import bottlenecks_of
from workbench.judge.comparability import warnings
from workbench.judge.comparison import Comparison
from workbench.judge.comparison import compare as compare_captures
from workbench.judge.findings import Finding
from workbench.ncu.capture import (
    Capture,
    find_metric,
    has_lines,
    has_rules,
    load_capture,
    load_sources,
)
from workbench.ncu.report import Launch, Report, pick_kernel, pick_launch, read_report
from workbench.render import as_json, source_lines
from workbench.render.as_json import plain_data
from workbench.render.document import advice, hunks, launches, pair, variant, why
from workbench.render.document.blocks import Block, Callout, Paragraph, Section, words
from workbench.render.document.findings import sentences

SIDES = ("before", "after")  # the names of files are too long to head a column
DETAILED = 3  # kernels shown in full where none was chosen


def chosen(report: Report, kernel: str | None, launch: int | None) -> tuple[Launch, ...]:
    if launch is not None:
        return pick_launch(report, launch)
    return pick_kernel(report, kernel) if kernel is not None else report.launches


def read(report: Report, launch: Launch) -> tuple[Capture, launches.Details]:
    capture = load_capture(report.path, (launch.index,))
    found = figures(capture.metrics)
    return capture, launches.Details(
        launch,
        found,
        stall_shares(capture.metrics),
        tuple(occupancy_limiters(capture.metrics)),
        bottlenecks_of(capture, found),
        has_rules(report.path, (launch.index,)),
        advise(subject(capture, found)),
    )


def show(path: Path, options: ShowOptions) -> None:
    report = read_report(path)
    picked = chosen(report, options.kernel, options.launch)
    if options.metric is not None:
        return show_metric(report, picked, options)
    found = groups(picked)
    if options.source:
        return show_source(report, found, options)
    if options.json:
        kernels = [
            as_json.launch(read(report, group.typical)[1], [x.index for x in group.launches])
            for group in found
        ]
        return show_json({**plain_data(report), "launches": picked, "kernels": kernels})
    every = options.kernel is not None or options.launch is not None
    shown = found if every else found[:DETAILED]
    told: list[Block] = [launches.about(report), launches.group_table(found)]
    told += launches.untimed(found)
    told += [launches.details(read(report, g.typical)[1], len(g.launches)) for g in shown]
    if len(found) > len(shown):
        told.append(left_out("shown", "--kernel NAME or --launch N chooses others"))
    return output(options).show(*told)


def left_out(what: str, way: str) -> Paragraph:
    return Paragraph(words(f"the {DETAILED} kernels with the most time are {what}; {way}"))


def show_metric(report: Report, picked: tuple[Launch, ...], options: ShowOptions) -> None:
    assert options.metric is not None
    rows = find_metric(report.path, tuple(x.index for x in picked), options.metric)
    rows = [{**row, "launch": picked[row["launch"]].index} for row in rows]
    title = Paragraph(words(f"{options.metric} ({report.name})"))
    tell(
        options,
        lambda: {**plain_data(report), "metrics": rows},
        lambda: [title, variant.metric_table(rows)],
    )


def one_kernel(found: list[LaunchGroup], report: Report) -> Launch:
    """The launch to show line by line. Raises UsageError where the choice is not clear."""
    if len(found) > 1:
        names = ", ".join(dict.fromkeys(group.typical.kernel for group in found[:8]))
        raise UsageError(
            f"{report.name} holds {len(found)} kernels or launch shapes",
            hint=f"choose one with --kernel NAME or --launch N: {names}",
        )
    return found[0].typical


def show_source(report: Report, kernels: list[LaunchGroup], options: ShowOptions) -> None:
    launch = one_kernel(kernels, report)
    capture, _ = read(report, launch)
    if not (options.sass or has_lines(capture)):
        raise UsageError(
            f"{launch.kernel} in {report.name} has no source lines",
            hint="compile with nvcc -lineinfo and profile with --set full --import-source yes",
        )
    texts = load_sources(report.path, (launch.index,))
    costs = line_costs(capture.lines, capture.metrics, capture.collected)
    bare = {file for file, _ in costs.lines if file} - texts.keys()
    files = {file: listed(costs, file, text) for file, text in texts.items()}
    for file in sorted(bare):
        last = max(line for name, line in costs.lines if name == file)
        files[file] = [line for line in listed(costs, file, "\n" * last) if line.ran]
    told = {"launch": launch.index, "kernel": launch.kernel, "without_text": sorted(bare)}
    without = "the report has no text of this file: profile with --import-source yes"
    show_listing(
        options,
        capture,
        launch.kernel,
        files,
        {**plain_data(report), **told},
        launches.about(report),
        notes=dict.fromkeys(bare, without),
    )


@dataclass(frozen=True)
class PairRead:
    """All that two launches tell of each other."""

    before: launches.Details
    after: launches.Details
    comparison: Comparison
    lines: SourceDiff


def read_pair(before: Report, after: Report, pair: LaunchPair) -> PairRead:
    one, was = read(before, pair.before)
    other, now = read(after, pair.after)
    found = compare_captures(one, other, SIDES, known=(was.figures, now.figures))
    return PairRead(was, now, found, lines_between(one, other, pair))


def lines_between(before: Capture, after: Capture, pair: LaunchPair) -> SourceDiff:
    """The imported sources of two launches, with what their lines cost."""
    sides = [
        imported(load_sources(capture.path, (launch.index,)), capture)
        for capture, launch in ((before, pair.before), (after, pair.after))
    ]
    was, came = pair.before.kernel, pair.after.kernel
    if was != came:
        # Kernels of one file: each side without the other's, so that the two are aligned.
        shared = set(sides[0].texts.items()) & set(sides[1].texts.items())
        if shared:
            sides = [replace(sides[0], skipped=came), replace(sides[1], skipped=was)]
    return source_diff(*sides)


def diff(one: Path, other: Path, options: DiffOptions) -> None:
    before, after = read_report(one), read_report(other)
    matching = pairs(before, after, options)
    told = warnings(before, after, matching)
    if options.json:
        show_json(diff_data(before, after, matching, told))
        return require_pairs(matching)
    out = output(options)
    reports = zip((before, after), SIDES, strict=True)
    head: list[Block] = [launches.about(report, side) for report, side in reports]
    if told:
        head.append(Callout("Not quite comparable", tuple(map(words, sentences(told)))))
    out.show(*head, *launches.unmatched(matching, (before.name, after.name)))
    require_pairs(matching)
    out.gap()
    out.show(launches.pair_table(matching.groups))
    every = options.kernel is not None or options.launch is not None
    shown = matching.groups if every else matching.groups[:DETAILED]
    for group in shown:
        out.gap()
        show_pair(group.typical, read_pair(before, after, group.typical), out, options.source)
    if len(matching.groups) > len(shown):
        out.gap()
        out.show(left_out("compared", "--kernel NAME or --launch A:B chooses others"))
    return None


def pairs(before: Report, after: Report, options: DiffOptions) -> Matching:
    """What is compared with what: by hand, or as the launches match. Raises UsageError."""
    if options.launch is None:
        return match(chosen(before, options.kernel, None), chosen(after, options.kernel, None))
    if options.kernel is not None:
        raise UsageError("--kernel and --launch exclude each other", hint="leave one of them out")
    numbers = re.fullmatch(r"(\d{1,9}):(\d{1,9})", options.launch, re.ASCII)
    if numbers is None:
        raise UsageError(
            f"--launch '{options.launch}' is no pair of launches",
            hint="one of A and one of B, such as 0:3; `workbench show FILE` counts them",
        )
    (one,), (other,) = pick_launch(before, int(numbers[1])), pick_launch(after, int(numbers[2]))
    return Matching((LaunchPair(one, other, BY_HAND),), (), ())


def require_pairs(matching: Matching) -> None:
    """Raises UsageError without any."""
    if not matching.pairs:
        raise UsageError(
            "no kernel of one report matches one of the other",
            hint="`workbench show FILE` lists them, and --launch A:B takes two by their numbers",
        )


def show_pair(launch: LaunchPair, read: PairRead, out: Output, source: bool) -> None:
    """Two launches: what moved, their figures, and on demand the sources."""
    kernels = dict.fromkeys((launch.before.kernel, launch.after.kernel))
    numbers = f"launch {launch.before.index} → {launch.after.index}"
    told = why.account(read.comparison)
    told.append(pair.figure_pairs(SIDES, read.before.figures, read.after.figures))
    told.append(pair.memory(SIDES, read.before.figures, read.after.figures))
    told.append(pair.limiters(SIDES, read.before.occupancy_limiters, read.after.occupancy_limiters))
    sides = zip(SIDES, (read.before, read.after), strict=True)
    told.append(pair.bottlenecks([(name, launches.bottlenecks(each)) for name, each in sides]))
    if not source:
        told += pair.costliest(read.lines, SIDES)
    told += advice.to_try(read.after.advice)
    out.show(Section("pair", words(f"{' → '.join(kernels)}: {numbers}"), tuple(told)))
    if source:
        out.gap()
        if absent := hunks.absences(read.lines, SIDES):
            out.show(Paragraph(words(absent)))
        else:
            out.lines(lambda width: source_lines.diff(read.lines, SIDES, width))


def diff_data(
    before: Report, after: Report, matching: Matching, told: list[Finding]
) -> dict[str, Any]:
    return {
        "before": before,
        "after": after,
        "warnings": told,
        "kernels": [
            pair_data(read_pair(before, after, group.typical), group) for group in matching.groups
        ],
        "only_before": matching.only_before,
        "only_after": matching.only_after,
    }


def pair_data(read: PairRead, group: PairGroup) -> dict[str, Any]:
    return {
        "launches": [[p.before.index, p.after.index] for p in group.pairs],
        "matched_by": group.typical.how,
        "before": group.typical.before,
        "after": group.typical.after,
        "comparison": read.comparison,
        "figures": as_json.figure_pairs(read.before.figures, read.after.figures),
        "bottlenecks_before": read.before.bottlenecks,
        "bottlenecks_after": read.after.bottlenecks,
        "advice": as_json.to_try(read.after.advice),
        "source": as_json.source_diff(read.lines),
    }
