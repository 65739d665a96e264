"""``workbench diff``: two variants of a study, or two Nsight Compute reports of anyone."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from workbench.app.judge import judged
from workbench.app.show import SIDES, pairs, read_pair, require_pairs
from workbench.app.target import require_current, stale_of
from workbench.cli.options import DiffOptions
from workbench.cli.printing import Output, output, show_brief, show_json, tell
from workbench.derive.diff.line_diff import SourceDiff
from workbench.derive.matching import Matching
from workbench.errors import UsageError
from workbench.judge.comparability import warnings
from workbench.judge.findings import Finding, sentences
from workbench.judge.ladder import judge_pair, pair_sources
from workbench.ncu.report_file import Report, is_report, read_report
from workbench.render import brief, pair_answers, source_lines
from workbench.render.document import hunks, launches, pair, variant
from workbench.render.document.blocks import paragraph
from workbench.render.document.launches import DETAILED, left_out


def run(options: DiffOptions) -> None:
    files = [name for name in (options.before, options.after) if is_report(name)]
    if len(files) == 2:
        return reports(read_report(Path(options.before)), read_report(Path(options.after)), options)
    if files:
        raise UsageError(
            f"{files[0]} is a report, the other is not",
            hint=f"`workbench show {quote(files[0])}` shows it; `diff` takes two reports",
        )
    if options.kernel is not None or options.launch is not None:
        hint = "a variant's kernels are taken together"
        raise UsageError("--kernel and --launch are for reports", hint=hint)
    return variants(options)


def variants(options: DiffOptions) -> None:
    names = [options.before, options.after]
    target = options.target(names)
    one, other = target.variants(names)
    if one == other:
        raise UsageError(f"'{one}' is compared with itself", hint="name two variants")
    ladder, evidence = judged(target, [one, other], sources=True)
    rows = ladder.row(one), ladder.row(other)
    found = judge_pair(evidence, target.workspace.config, *rows)
    changes = pair_sources(evidence, one, other)
    tell(
        options,
        lambda: pair_answers.variant_pair(ladder, found, changes),
        lambda: [
            variant.origin(ladder),
            *pair.variants(found, changes, ladder.record, source=options.source),
        ],
        lambda: brief.pair(ladder, found),
    )
    if options.source and not (options.brief or options.json):
        show_source(output(options), changes, (one, other))
    require_current(stale_of(ladder, [one, other]))


def show_source(out: Output, changes: SourceDiff, names: tuple[str, str]) -> None:
    """Every hunk with its costs, or why there are none."""
    out.gap()
    if absent := hunks.absences(changes, names):
        out.show(paragraph(absent))
        out.gap()
    out.lines(lambda width: source_lines.diff(changes, names, width))


def reports(before: Report, after: Report, options: DiffOptions) -> None:
    matching = pairs(before, after, options.kernel, options.launch)
    text = warnings(before, after, matching)
    if options.brief:
        show_brief(brief_reports(before, after, matching, text))
        return require_pairs(matching)
    if options.json:
        show_json(
            pair_answers.ReportPair(
                before=before,
                after=after,
                warnings=text,
                kernels=[
                    pair_answers.kernel_pair(read_pair(before, after, group.typical), group)
                    for group in matching.groups
                ],
                only_before=matching.only_before,
                only_after=matching.only_after,
            )
        )
        return require_pairs(matching)
    out = output(options)
    reports = zip((before, after), SIDES, strict=True)
    out.show(
        *(launches.about(report, side) for report, side in reports),
        *pair.comparable(text),
        *launches.unmatched(matching, (before.name, after.name)),
    )
    require_pairs(matching)
    out.gap()
    out.show(launches.pair_table(matching.groups))
    every = options.kernel is not None or options.launch is not None
    shown = matching.groups if every else matching.groups[:DETAILED]
    for group in shown:
        out.gap()
        read = read_pair(before, after, group.typical)
        source = options.source and read.lines.has_costs
        out.show(pair.kernels(group.typical, read, SIDES, source=source))
        if source:
            show_source(out, read.lines, SIDES)
    if len(matching.groups) > len(shown):
        out.gap()
        out.show(left_out("compared", "--kernel NAME or --launch A:B chooses others"))
    return None


def brief_reports(
    before: Report, after: Report, matching: Matching, parts: list[Finding]
) -> dict[str, object]:
    read = [read_pair(before, after, group.typical) for group in matching.groups[:DETAILED]]
    return {
        "before": before.name,
        "after": after.name,
        "kernels": [brief.kernel_pair(each.comparison, each.after.advice) for each in read],
        "warnings": [*sentences(parts)],
    }
