"""``workbench diff``: two variants of a study, or two Nsight Compute reports of anyone."""

from __future__ import annotations

import json as json_module
from pathlib import Path

from workbench.commands.target import find_target
from workbench.derive.diff.build import profiled, source_diff
from workbench.derive.diff.model import Profiled, SourceDiff
from workbench.errors import UsageError
from workbench.evidence.recorded import Evidence
from workbench.judge.ladder import VariantPair, judge, judge_pair
from workbench.ncu.capture import Capture, load_sources
from workbench.ncu.captures import captures_of
from workbench.ncu.report import is_report
from workbench.render import compare, diff_terminal, jsonable, terminal, why
from workbench.render.diff_json import figure_pairs
from workbench.render.diff_json import source_diff as json_of
from workbench.render.hunks import absences
from workbench.render.tables import interval, markdown_table, number
from workbench.study.sources import source_texts
from workbench.words import ABSENT, SCHEMA_VERSION, Status


def side(evidence: Evidence, variant: str) -> Profiled:
    """A variant's sources as they stand, and its line costs where its capture is current."""
    entry = evidence.capture_index(variant)
    index, capture = entry.usable, captures_of(evidence).of(variant)
    if entry.state == Status.ADOPTED and index is not None and capture is not None:
        return imported(capture, load_sources(evidence.report_path(index), index.wanted))
    texts = source_texts(evidence.study, evidence.study.variants[variant])
    missing = entry.state == Status.MISSING
    why = "it has no capture" if missing else f"its capture is {entry.state}"
    return profiled(texts, capture, why)


def imported(capture: Capture, texts: dict[str, str]) -> Profiled:
    """One side of a capture made elsewhere, from the sources in the report itself."""
    found = profiled(texts, capture)
    if found.costs is not None and not texts:
        return profiled({}, None, "the report has no text of its sources")
    return found


def lines_between(evidence: Evidence, before: str, after: str) -> SourceDiff:
    """The diff of two variants of a study with what its lines cost; see ``derive.hunks``."""
    return source_diff(side(evidence, before), side(evidence, after))


def times(pair: VariantPair) -> str:
    rows = (pair.before, pair.after)
    table = [
        [f"Time, {mode} (µs)", *(number(t.median) if t else ABSENT for t in found)]
        for mode, found in (
            ("warm", [row.warm for row in rows]),
            ("cold", [row.cold for row in rows]),
        )
    ]
    return markdown_table(["time", *(row.variant for row in rows)], table, "lrr")


def headline(pair: VariantPair) -> str:
    """All that comes before the sources, as valid Markdown."""
    rows, names = (pair.before, pair.after), (pair.before.variant, pair.after.variant)
    parts = [f"{names[1]} over {names[0]}, warm: {interval(pair.speedup)}", times(pair)]
    for row in rows:
        if row.problem or row.status != Status.CURRENT:
            parts.append(f"{row.variant} is {row.status}: {row.problem or 'see workbench list'}")
    parts += why.account(pair.comparison) if pair.comparison else []
    parts.append(compare.figure_table(names, rows[0].figures, rows[1].figures))
    parts.append(compare.limiters(names, rows[0].limiters, rows[1].limiters))
    for row in rows:
        lines = [f"{i}. {terminal.bottleneck_line(b)}" for i, b in enumerate(row.bottlenecks, 1)]
        parts.append(f"Top bottlenecks of {row.variant}:\n\n" + ("\n".join(lines) or ABSENT))
    return "\n\n".join(parts)


def run(
    project: Path | None,
    study: str | None,
    shape: str | None,
    one: str,
    other: str,
    kernel: str | None,
    json: bool,
) -> None:
    files = [name for name in (one, other) if is_report(name)]
    if files:
        if len(files) == 1:
            raise UsageError(
                f"{files[0]} is a report, the other is not",
                hint=f"`workbench adopt {files[0]} --as NAME` takes it into the study",
            )
        from workbench.commands import foreign

        return foreign.diff(Path(one), Path(other), kernel, json)
    if kernel is not None:
        raise UsageError("--kernel is for reports", hint="a variant's kernels are taken together")
    target = find_target(project, study, shape)
    target.variants([one, other])
    if one == other:
        raise UsageError(f"'{one}' is compared with itself", hint="name two variants")
    evidence, config = target.evidence(), target.workspace.config
    found = judge(evidence, config, target.study.ladder.chain([]))
    pair = judge_pair(evidence, config, found.row(one), found.row(other))
    names = (one, other)
    lines = lines_between(evidence, one, other)
    if json:
        print(
            json_module.dumps(
                {
                    "schema_version": SCHEMA_VERSION,
                    "study": found.study,
                    "shape": {"name": found.shape, **found.parameters},
                    "gpu": found.gpu,
                    "before": one,
                    "after": other,
                    "warnings": list(pair.warnings),
                    "speedup": jsonable.ratio(pair.speedup),
                    "comparison": jsonable.comparison(pair.comparison),
                    "versions": [jsonable.full_row(row) for row in (pair.before, pair.after)],
                    "figures": figure_pairs(pair.before.figures, pair.after.figures),
                    **json_of(lines),
                },
                indent=1,
            )
        )
        return
    print(terminal.first_line(found))
    for warning in pair.warnings:
        print(f"warning: {warning}")
    print(f"\n## {one} → {other}\n")
    print(headline(pair) + "\n")
    said = absences(lines, names)
    if said:
        print(said + "\n")
    width = diff_terminal.terminal_width()
    diff_terminal.write(diff_terminal.source_lines(lines, names, width))
