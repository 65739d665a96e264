"""Sources and SASS line by line with what they cost, of a variant or of any report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from workbench.commands.options import ShowOptions
from workbench.commands.printing import Output
from workbench.derive import sass
from workbench.derive.diff.alignment import physical_lines
from workbench.derive.diff.costs import LineCosts
from workbench.errors import UsageError
from workbench.ncu.capture import Capture
from workbench.render import source_lines
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


def instructions_of(capture: Capture, name: str) -> sass.Listing:
    """Raises UsageError where the report has no disassembly of the launches."""
    found = sass.listing(capture.code, capture.metrics)
    if not found.instructions:
        raise UsageError(
            f"the capture of {name} has no disassembly",
            hint="profile with `--set full`: the section SourceCounters has it",
        )
    return found


def print_sass(
    files: Mapping[str, Sequence[SourceLine]], found: sass.Listing, options: ShowOptions
) -> None:
    """Every source with its instructions, or the hottest lines of all."""
    out = Output(options.wide, options.markdown)
    if options.top is not None:
        most = options.top
        return out.lines(lambda width: source_lines.sass_hottest(files, found.by_line, most, width))
    return out.lines(lambda width: source_lines.sass_source(files, found.by_line, width))


def print_listing(
    files: Mapping[str, Sequence[SourceLine]],
    options: ShowOptions,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Every file with its stalls, or the hottest lines of all; ``notes`` stand under a file."""
    out = Output(options.wide, options.markdown)
    if options.top is not None:
        most = options.top
        return out.lines(lambda width: source_lines.hottest(files, most, width))
    for file, lines in files.items():
        note = (notes or {}).get(file, "")
        out.lines(partial(source_lines.source, file, lines, note))
        out.gap()
    return None
