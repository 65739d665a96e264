"""``workbench show``: one variant, or anyone's Nsight Compute report."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from workbench.app.judge import judged
from workbench.app.target import Target, require_current, stale_of
from workbench.cli.options import ShowOptions
from workbench.cli.printing import tell
from workbench.cli.source_listing import listed, show_listing
from workbench.derive.diff.costs import line_costs
from workbench.errors import BadCapture, UsageError
from workbench.evidence.layout import is_there
from workbench.judge.comparability import file_warnings
from workbench.ncu.capture import (
    Capture,
    find_metric,
    kept_metric,
    load_sources,
    require_lines,
)
from workbench.ncu.captures import Captures
from workbench.ncu.reader import Wanted
from workbench.ncu.report import is_report
from workbench.render import as_json
from workbench.render.document import variant
from workbench.render.document.blocks import Callout, Paragraph, words
from workbench.render.document.findings import sentences, why_no_lines
from workbench.study.front_ends import front_ends_of
from workbench.study.sources import source_files, source_texts
from workbench.words import Status

PROFILE_AGAIN = "restore the file, or profile the variant again"


def current_capture(target: Target, variant: str) -> tuple[Path | None, Wanted, Capture]:
    """A variant's capture, and where its report is: None where its tables alone were kept."""
    evidence = target.evidence()
    entry = evidence.capture_index(variant)
    index = entry.current
    if index is None:
        if entry.state == Status.DAMAGED:
            raise BadCapture(
                f"{variant} has a damaged capture at {target.shape}: {entry.why}",
                hint=PROFILE_AGAIN,
            )
        why = "has no capture" if entry.state == Status.MISSING else "has only a stale capture"
        raise UsageError(
            f"{variant} {why} at {target.shape} on {target.folder.gpu}",
            hint=f"`workbench profile {quote(variant)}` where there is a GPU",
        )
    capture = Captures(evidence).of(variant)
    assert capture is not None
    return capture.path if is_there(capture.path) else None, index.range, capture


def show_metric(target: Target, name: str, options: ShowOptions) -> None:
    assert options.metric is not None
    report, wanted, capture = current_capture(target, name)
    if report is not None:
        rows = find_metric(report, wanted, options.metric)
    else:
        rows = kept_metric(capture, options.metric)
    title = Paragraph(words(f"{options.metric} of {name} ({capture.path.name})"))
    tell(
        options,
        lambda: {"variant": name, "capture": capture.path.name, "metrics": rows},
        lambda: [title, variant.metric_table(rows)],
    )


def show_source(target: Target, name: str, options: ShowOptions) -> None:
    report, wanted, capture = current_capture(target, name)
    sources = source_files(target.study, target.study.variants[name])
    if not options.sass:
        require_lines(capture, why_no_lines(front_ends_of(sources)))
    if report is not None:
        texts = load_sources(report, wanted)
    else:  # the capture is current: its sources are the workspace's
        charged = set(capture.lines["file"])
        own = source_texts(target.study, target.study.variants[name])
        texts = {file: text for file, text in own.items() if file in charged}
    costs = line_costs(capture.lines, capture.metrics, capture.collected)
    files = {file: listed(costs, file, text) for file, text in texts.items()}
    show_listing(options, capture, name, files, {"variant": name})


def run(options: ShowOptions) -> None:
    if options.top is not None and not options.source:
        raise UsageError("--top is for the lines of --source")
    if options.sass and not options.source:
        raise UsageError("--sass is for the lines of --source", hint="add --source")
    if options.csv and options.source:
        raise UsageError("--csv prints a table, and --source is none", hint="leave one out")
    if is_report(options.name):
        from workbench.cli import foreign

        return foreign.show(Path(options.name), options)
    for option, given in (("--kernel", options.kernel), ("--launch", options.launch)):
        if given is not None:
            hint = "a variant's kernels are taken together"
            raise UsageError(f"{option} is for reports, and {options.name} is none", hint=hint)
    target = options.target([options.name])
    name = target.variants([options.name])[0]
    if options.metric is not None:
        return show_metric(target, name, options)
    if options.source:
        return show_source(target, name, options)
    found, evidence = judged(target, [name])
    row = found.row(name)
    damaged = tuple(map(words, sentences(file_warnings(evidence, [name]))))
    tell(
        options,
        lambda: {"study": found.study, "gpu": found.gpu, **as_json.full_row(found, row)},
        lambda: [
            Paragraph(variant.origin(found)),
            *([Callout("Read this first", damaged)] if damaged else []),
            variant.variant(row, found),
            variant.evidence_states(row),
        ],
    )
    require_current(stale_of(found, [name]))
