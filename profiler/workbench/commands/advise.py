"""``workbench advise``: what limits a variant now, and what kind of change to try next."""

from __future__ import annotations

from shlex import quote

from workbench.commands.options import AdviseOptions
from workbench.commands.printing import Output, show_json
from workbench.commands.show import current_capture
from workbench.commands.target import find_recorded
from workbench.commands.track_record import with_record
from workbench.errors import UsageError
from workbench.judge.ladder import judge
from workbench.judge.snapshot import snapshot
from workbench.ncu.report import is_report
from workbench.render.as_json import advised
from workbench.render.document import advice, variant
from workbench.render.document.blocks import Paragraph


def run(options: AdviseOptions) -> None:
    if is_report(options.name):
        raise UsageError(
            f"{options.name} is a report, and advice is for variants of a study",
            hint=f"`workbench show {quote(options.name)}` ends in what to try next",
        )
    target = find_recorded(
        options.project, options.study, options.shape, gpu=options.gpu, names=[options.name]
    )
    name = target.variants([options.name])[0]
    current_capture(target, name)
    evidence = snapshot(target.evidence(), target.study.ladder.chain([]), only=[name])
    judged = with_record(judge(evidence, target.workspace.config), target)
    row = judged.row(name)
    if options.json:
        return show_json(advised(judged, row))
    out = Output(options.wide, options.markdown)
    return out.show(Paragraph(variant.origin(judged)), advice.advised(row, judged))
