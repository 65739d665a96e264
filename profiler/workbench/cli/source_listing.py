"""Sources and SASS line by line with what they cost, of a variant or of any report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from workbench.cli.options import ShowOptions
from workbench.cli.printing import Output, show_json
from workbench.derive.diff.alignment import physical_lines
from workbench.derive.diff.costs import LineCosts, Listing, listing
from workbench.errors import UsageError
from workbench.ncu.capture import Capture
from workbench.render import source_lines
from workbench.render.document.blocks import Block
from workbench.render.source_lines import SourceLine


def listed(costs: LineCosts, file: str, text: str) -> list[SourceLine]:
    """Every line of a source with what it cost."""
    told = []
    for number, content in enumerate(physical_lines(text), start=1):
        cost = costs.of(file, number)
        told.append(
            SourceLine(
                line=number,
                samples=_whole(cost.samples),
                share=cost.share,
                microseconds=cost.microseconds,
                top_stall=cost.top_stall,
                top_stalls=cost.top_stalls,
                instructions=_whole(cost.instructions),
                text=content,
            )
        )
    return told


def _whole(count: float | None) -> int | None:
    return None if count is None else int(count)


def instructions_of(capture: Capture, name: str) -> Listing:
    """Raises UsageError where the report has no disassembly of the launches."""
    found = listing(capture.code, capture.metrics)
    if not found.instructions:
        raise UsageError(
            f"the capture of {name} has no disassembly",
            hint="profile with `--set full`: the section SourceCounters has it",
        )
    return found


def show_listing(
    options: ShowOptions,
    capture: Capture,
    name: str,
    files: Mapping[str, Sequence[SourceLine]],
    told: Mapping[str, Any],
    *head: Block,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Every file with its stalls, or the hottest lines of all, with the instructions of kernel
    ``name`` if those are asked for; ``told`` stands before the files in JSON, ``head`` before them
    elsewhere, and ``notes`` under a file's heading.
    """
    files = source_lines.hottest_first(files)
    found = instructions_of(capture, name) if options.sass else None
    if options.json:
        sass_of = {"sass": found.instructions} if found else {}
        return show_json({**told, "files": files, **sass_of})
    out = Output(options.wide, options.markdown)
    if head:
        out.show(*head)
        out.gap()
    code = found.by_line if found else {}
    if options.top is None:
        return out.lines(partial(source_lines.sources, files, notes or {}, code))
    return out.lines(partial(source_lines.hottest, files, options.top, code))
