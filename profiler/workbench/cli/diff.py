"""``workbench diff``: two variants of a study, or two Nsight Compute reports of anyone."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from workbench.app.judge import judged
from workbench.app.target import require_current, stale_of
from workbench.cli.options import DiffOptions
from workbench.cli.printing import output, show_json
from workbench.errors import UsageError
from workbench.judge.view import judge_pair, pair_sources
from workbench.ncu.report import is_report
from workbench.render import source_lines
from workbench.render.as_json import variant_pair
from workbench.render.document import hunks, pair, variant
from workbench.render.document.blocks import Paragraph, words


def run(options: DiffOptions) -> None:
    files = [name for name in (options.before, options.after) if is_report(name)]
    if len(files) == 2:
        from workbench.cli import foreign

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
    target = options.target(names)
    one, other = target.variants(names)
    if one == other:
        raise UsageError(f"'{one}' is compared with itself", hint="name two variants")
    ladder, evidence = judged(target, [one, other], sources=True)
    rows = ladder.row(one), ladder.row(other)
    found = judge_pair(evidence, target.workspace.config, *rows)
    changes = pair_sources(evidence, one, other)
    stale = stale_of(ladder, [one, other])
    if options.json:
        show_json(variant_pair(ladder, found, changes))
        return require_current(stale)
    out = output(options)
    out.show(
        Paragraph(variant.origin(ladder)),
        *pair.variants(found, changes, ladder.record, source=options.source),
    )
    if options.source:
        out.gap()
        if absent := hunks.absences(changes, (one, other)):
            out.show(Paragraph(words(absent)))
            out.gap()
        out.lines(lambda width: source_lines.diff(changes, (one, other), width))
    require_current(stale)
