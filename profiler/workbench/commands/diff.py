"""``workbench diff``: two variants of a study, or two Nsight Compute reports of anyone."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from workbench.commands.options import DiffOptions
from workbench.commands.printing import Output, show_json
from workbench.commands.target import find_recorded
from workbench.commands.track_record import with_record
from workbench.errors import UsageError
from workbench.judge.ladder import judge
from workbench.judge.pairs import judge_pair, pair_sources
from workbench.judge.snapshot import snapshot
from workbench.ncu.report import is_report
from workbench.render import source_lines
from workbench.render.as_json import variant_pair
from workbench.render.document import hunks, pair, variant
from workbench.render.document.blocks import Paragraph, words


def run(options: DiffOptions) -> None:
    files = [name for name in (options.before, options.after) if is_report(name)]
    if len(files) == 2:
        from workbench.commands import foreign

        return foreign.diff(Path(options.before), Path(options.after), options)
    if files:
        raise UsageError(
            f"{files[0]} is a report, the other is not",
            hint=f"`workbench show {quote(files[0])}` shows it; `diff` takes two reports",
        )
    for option, given in (("--kernel", options.kernel), ("--launch", options.launch)):
        if given is not None:
            hint = "a variant's kernels are taken together"
            raise UsageError(f"{option} is for reports", hint=hint)
    return variants(options)


def variants(options: DiffOptions) -> None:
    names = [options.before, options.after]
    target = find_recorded(
        options.project, options.study, options.shape, gpu=options.gpu, names=names
    )
    one, other = target.variants(names)
    if one == other:
        raise UsageError(f"'{one}' is compared with itself", hint="name two variants")
    config = target.workspace.config
    steps = target.study.ladder.chain([])
    evidence = snapshot(target.evidence(), steps, sources=True, only=[one, other])
    judged = with_record(judge(evidence, config), target)
    found = judge_pair(evidence, config, judged.row(one), judged.row(other))
    changes = pair_sources(evidence, one, other)
    if options.json:
        return show_json(variant_pair(judged, found, changes))
    out = Output(options.wide, options.markdown)
    out.show(
        Paragraph(variant.origin(judged)),
        *pair.variants(found, changes, judged.record, source=options.source),
    )
    if options.source:
        out.gap()
        if absent := hunks.absences(changes, (one, other)):
            out.show(Paragraph(words(absent)))
            out.gap()
        out.lines(lambda width: source_lines.diff(changes, (one, other), width))
    return None
