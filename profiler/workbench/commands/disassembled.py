"""``--sass`` of ``show`` and ``diff``, of variants and of anyone's reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.commands.options import ShowOptions
from workbench.commands.printing import Output
from workbench.derive.sass import blocks
from workbench.derive.sass.listing import Listing, listing
from workbench.errors import UsageError
from workbench.ncu.capture import Capture
from workbench.render import sass_lines
from workbench.render.as_json import sass as sass_json
from workbench.render.document import sass
from workbench.render.document.blocks import Paragraph, Section, code, line, words
from workbench.render.source_lines import SourceLine


def listed(capture: Capture, name: str) -> Listing:
    """Raises UsageError where the report has no disassembly of the launches."""
    found = listing(capture.code, capture.metrics)
    if not found.instructions:
        raise UsageError(
            f"the capture of {name} has no disassembly",
            hint="profile with `--set full`: the section SourceCounters has it",
        )
    return found


def print_listing(
    files: Mapping[str, Sequence[SourceLine]], found: Listing, options: ShowOptions
) -> None:
    """Every source with its instructions, or the hottest lines of all."""
    out = Output(options.wide, options.markdown)
    if options.top is not None:
        most = options.top
        return out.lines(lambda width: sass_lines.hottest(files, found.by_line, most, width))
    return out.lines(lambda width: sass_lines.source(files, found.by_line, width))


def difference(before: Listing, after: Listing) -> dict[str, Any]:
    """As JSON has it."""
    pairs = blocks.pairs(before.instructions, after.instructions)
    return sass_json.difference(before, after, pairs)


def print_diff(names: tuple[str, str], before: Listing, after: Listing, out: Output) -> None:
    """The mix of instructions, then the hot blocks side by side."""
    told = sass.mix(names, before, after, every=out.wide)
    title = line(code(names[0]), " → ", code(names[1]), ", SASS")
    pairs = blocks.pairs(before.instructions, after.instructions)
    heading = (
        "The blocks in which warps waited longest. Before each instruction: its stall samples as "
        f"a share of all samples, in {names[0]} and in {names[1]}. Names of registers count as "
        "no difference."
    )
    out.show(Section("sass", title, (*told, Paragraph(words(heading)))))
    out.gap()
    out.lines(lambda width: sass_lines.diff(pairs, width, every=out.wide))
