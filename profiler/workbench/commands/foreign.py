"""``workbench show`` and ``workbench diff`` on anyone's reports: no workspace is needed."""

from __future__ import annotations

import json as json_module
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.commands.show import hottest_first, line_rows, print_lines
from workbench.derive.diff.build import imported, source_diff
from workbench.derive.diff.costs import line_costs
from workbench.derive.diff.model import SourceDiff
from workbench.derive.figures import figures, occupancy_limiters, stall_shares
from workbench.derive.matching import Group, LaunchPair, Matching, groups, match
from workbench.errors import UsageError
from workbench.judge.bottlenecks import bottlenecks
from workbench.judge.comparability import warnings
from workbench.judge.comparison import Comparison
from workbench.judge.comparison import compare as compare_captures
from workbench.ncu.capture import (
    Capture,
    find_metric,
    has_rules,
    load_capture,
    load_sources,
)
from workbench.ncu.report import Launch, Report, pick_kernel, pick_launch, read_report
from workbench.render import compare, diff_json, diff_terminal, jsonable, why
from workbench.render import launches as render
from workbench.render.hunks import absences
from workbench.render.plain import printable
from workbench.render.tables import markdown_table
from workbench.words import ABSENT, SCHEMA_VERSION

DETAILED = 3  # kernels shown in full where none was chosen


def chosen(report: Report, kernel: str | None, launch: int | None) -> tuple[Launch, ...]:
    if launch is not None:
        return pick_launch(report, launch)
    return pick_kernel(report, kernel) if kernel is not None else report.launches


def read(report: Report, launch: Launch) -> tuple[Capture, render.Details]:
    capture = load_capture(report.path, (launch.index,))
    found = figures(capture.metrics)
    return capture, render.Details(
        launch,
        found,
        stall_shares(capture.metrics),
        tuple(occupancy_limiters(capture.metrics)),
        tuple(bottlenecks(capture.rules, capture.lines, found)),
        has_rules(report.path, (launch.index,)),
    )


def details_json(found: render.Details) -> dict[str, Any]:
    return {
        "launch": found.launch.index,
        "kernel": found.launch.kernel,
        "figures": {
            k: {"value": f.value, "unit": f.unit, "metric": f.metric}
            for k, f in found.figures.items()
        },
        "stalls": found.stalls,
        "occupancy_limiter": list(found.limiters),
        "bottlenecks": [jsonable.bottleneck(b) for b in found.bottlenecks],
        "rules_collected": found.has_rules,
    }


def show(
    path: Path, kernel: str | None, launch: int | None, metric: str | None, source: bool, json: bool
) -> None:
    report = read_report(path)
    launches = chosen(report, kernel, launch)
    if metric is not None:
        return show_metric(report, launches, metric, json)
    found = groups(launches)
    if source:
        return show_source(report, found, json)
    if json:
        print(
            json_module.dumps(
                {
                    "schema_version": SCHEMA_VERSION,
                    **render.report_json(report),
                    "launches": [render.launch_json(x) for x in launches],
                    "kernels": [
                        {
                            "launches": [x.index for x in group.launches],
                            **details_json(read(report, group.typical)[1]),
                        }
                        for group in found
                    ],
                },
                indent=1,
            )
        )
        return
    print(render.about(report) + "\n")
    print(render.group_table(found))
    every = kernel is not None or launch is not None
    for group in found if every else found[:DETAILED]:
        print("\n" + render.details(read(report, group.typical)[1]))
        if len(group.launches) > 1:
            print(f"\none of {len(group.launches)} launches: the one of median duration")
    if not every and len(found) > DETAILED:
        print(
            f"\nthe {DETAILED} kernels with the most time are shown; --kernel NAME or --launch N "
            "chooses others"
        )


def show_metric(report: Report, launches: tuple[Launch, ...], name: str, json: bool) -> None:
    rows = find_metric(report.path, tuple(x.index for x in launches), name)
    rows = [{**row, "launch": launches[row["launch"]].index} for row in rows]
    if json:
        print(
            json_module.dumps(
                {"schema_version": SCHEMA_VERSION, **render.report_json(report), "metrics": rows},
                indent=1,
            )
        )
        return
    table = [
        [
            str(r["launch"]),
            printable(r["kernel"]),
            ABSENT if r["value"] is None else printable(str(r["value"])),
            r["unit"],
        ]
        for r in rows
    ]
    print(f"{name} ({report.name})\n")
    print(markdown_table(["launch", "kernel", "value", "unit"], table, "rlrl"))


def one_kernel(found: list[Group], report: Report) -> Launch:
    """The launch to show line by line. Raises UsageError where the choice is not clear."""
    if len(found) > 1:
        names = ", ".join(dict.fromkeys(group.typical.kernel for group in found[:8]))
        raise UsageError(
            f"{report.name} holds {len(found)} kernels or launch shapes",
            hint=f"choose one with --kernel NAME or --launch N: {names}",
        )
    return found[0].typical


def show_source(report: Report, found: list[Group], json: bool) -> None:
    launch = one_kernel(found, report)
    capture, _ = read(report, launch)
    if not (capture.lines["line"] > 0).any():
        raise UsageError(
            f"{launch.kernel} in {report.name} has no source lines",
            hint="compile with nvcc -lineinfo and profile with --set full --import-source yes",
        )
    texts = load_sources(report.path, (launch.index,))
    costs = line_costs(capture.lines, capture.metrics, capture.collected)
    bare = {file for file, _ in costs.lines if file} - texts.keys()
    files = {file: line_rows(costs, file, text) for file, text in texts.items()}
    for file in sorted(bare):
        last = max(line for name, line in costs.lines if name == file)
        rows = line_rows(costs, file, "\n" * last)
        files[file] = [row for row in rows if row["samples"] or row["instructions"]]
    files = hottest_first(files)
    if json:
        print(
            json_module.dumps(
                {
                    "schema_version": SCHEMA_VERSION,
                    **render.report_json(report),
                    "launch": launch.index,
                    "kernel": launch.kernel,
                    "without_text": sorted(bare),
                    "files": files,
                },
                indent=1,
            )
        )
        return
    print(render.about(report))
    for file, rows in files.items():
        print()
        without = "the report has no text of this file: profile with --import-source yes"
        print_lines(file, rows, without if file in bare else "")


@dataclass(frozen=True)
class PairRead:
    """All that two launches tell of each other; ``names`` are safe to print."""

    names: tuple[str, str]
    before: render.Details
    after: render.Details
    comparison: Comparison
    lines: SourceDiff


def read_pair(before: Report, after: Report, pair: LaunchPair) -> PairRead:
    names = printable(before.name), printable(after.name)
    if names[0] == names[1]:
        names = ("before", "after")
    one, was = read(before, pair.before)
    other, came = read(after, pair.after)
    found = compare_captures(one, other, names, known=(was.figures, came.figures))
    return PairRead(names, was, came, found, lines_between(one, other, pair))


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


def diff(one: Path, other: Path, kernel: str | None, json: bool) -> None:
    before, after = read_report(one), read_report(other)
    matching = match(chosen(before, kernel, None), chosen(after, kernel, None))
    said = warnings(before, after, matching)
    if json:
        print(json_module.dumps(diff_data(before, after, matching, said), indent=1))
        return
    for report in (before, after):
        print(render.about(report))
    for warning in said:
        print(f"warning: {printable(warning)}")
    for text in render.unmatched(matching, (before.name, after.name)):
        print(text)
    if not matching.pairs:
        raise UsageError(
            "no kernel of one report matches one of the other",
            hint="they are matched by name and launch shape; `workbench show FILE` lists them",
        )
    print("\n" + render.pair_table(matching.groups))
    every = kernel is not None
    for group in matching.groups if every else matching.groups[:DETAILED]:
        show_pair(group.typical, read_pair(before, after, group.typical))
    if not every and len(matching.groups) > DETAILED:
        print(
            f"\nthe {DETAILED} kernels with the most time are compared; --kernel NAME chooses "
            "others"
        )


def show_pair(pair: LaunchPair, found: PairRead) -> None:
    names, was, came = found.names, found.before, found.after
    kernels = dict.fromkeys(printable(x.kernel) for x in (pair.before, pair.after))
    print(f"\n## {' → '.join(kernels)}: launch {pair.before.index} → {pair.after.index}\n")
    for text in why.account(found.comparison):
        print(text + "\n")
    print(compare.figure_table(names, was.figures, came.figures) + "\n")
    print(compare.limiters(names, was.limiters, came.limiters) + "\n")
    for name, details in zip(names, (was, came), strict=True):
        print(f"Top bottlenecks in {name}:\n\n{render.bottleneck_lines(details)}\n")
    text = absences(found.lines, names)
    if text:
        print(text)
        return
    width = diff_terminal.terminal_width()
    diff_terminal.write(diff_terminal.source_lines(found.lines, names, width))


def diff_data(before: Report, after: Report, matching: Matching, said: list[str]) -> dict[str, Any]:
    pairs = []
    for group in matching.groups:
        pair = group.typical
        found = read_pair(before, after, pair)
        was, came = found.before, found.after
        pairs.append(
            {
                "launches": [[p.before.index, p.after.index] for p in group.pairs],
                "matched_by": pair.how,
                "before": render.launch_json(pair.before),
                "after": render.launch_json(pair.after),
                "comparison": jsonable.comparison(found.comparison),
                "figures": diff_json.figure_pairs(was.figures, came.figures),
                "bottlenecks_before": [jsonable.bottleneck(b) for b in was.bottlenecks],
                "bottlenecks_after": [jsonable.bottleneck(b) for b in came.bottlenecks],
                "source": diff_json.source_diff(found.lines),
            }
        )
    return {
        "schema_version": SCHEMA_VERSION,
        "before": render.report_json(before),
        "after": render.report_json(after),
        "warnings": said,
        "kernels": pairs,
        "only_before": [render.launch_json(x) for x in matching.only_before],
        "only_after": [render.launch_json(x) for x in matching.only_after],
    }
