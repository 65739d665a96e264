"""Source on a terminal: a diff with what each line cost, or one source with its stalls.

Lines come as pieces of (text, style); signs and numbers carry the meaning, styles only repeat it.
Terminals and pipes get the same lines; only a terminal's width cuts them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from workbench.derive.figures import stall_label
from workbench.derive.source_diff import (
    Cost,
    DiffRow,
    FileDiff,
    Hunk,
    InstructionCost,
    SourceDiff,
    base,
    signed,
    with_context,
)
from workbench.render.document import hunks
from workbench.render.document.blocks import plain
from workbench.render.document.limits import stall_words
from workbench.render.numbers import clip, count, printable

Pieces = list[tuple[str, str]]
HOT = 0.05
WARM = 0.01
LEAST = 0.0005  # a share that rounds to 0.0 % is left blank
REASON = 16
HEAD = [(f"    {'share':>5} {'mostly':<18} {'executed':>8}  {'at':<6}  instruction", "bold")]
STYLES = {"-": "red", "+": "green", " ": ""}
HEADING = "before each line: its stall samples as a share of all samples, in {} and in {}"


def gutter(cost: Cost | None) -> tuple[str, str]:
    """A line's share of all samples in 7 cells, and its style."""
    share = cost.share if cost else None
    if share is None or share < LEAST:
        return " " * 7, ""
    return f"{100 * share:5.1f} %", "bold" if share >= HOT else ""


def hunk_lines(
    file: FileDiff, hunk: Hunk, width: int | None, paths: Mapping[str, str]
) -> Iterator[Pieces]:
    """The heading, the costs before and after, and the diff with its gutters."""
    yield [(clip(printable(f"hunk {hunk.number}: {hunks.where(hunk, paths)}"), width), "bold")]
    if hunk.comments_only:
        yield [("  comments or blanks only", "dim")]
    elif hunk.host:
        yield [(clip("  host code: it costs no GPU time itself", width), "dim")]
    else:
        yield from ([(clip(f"  {text}", width), "")] for text in hunks.costs(hunk))
    yield from diff_lines(with_context(file, hunk), width, bare=hunk.host)


def diff_lines(rows: list[DiffRow], width: int | None, *, bare: bool = False) -> Iterator[Pieces]:
    """``bare`` leaves the gutters out. Narrow terminals lose the reason, then the numbers."""
    reasons = not bare and (width is None or width >= 100)
    costs_of = {
        id(line): (row.before, row.after)
        for row in rows
        for line in (row.before, row.after)
        if line
    }
    for sign, line in signed(rows):
        before, after = costs_of[id(line)]
        pieces: Pieces = []
        if not bare:
            pieces += [gutter(before.cost if before and sign != "+" else None), (" ", "")]
            pieces += [gutter(after.cost if after and sign != "-" else None), (" ", "")]
        if reasons:
            hot = (line.cost.share or 0.0) >= LEAST
            reason = stall_label(line.cost.top_stall)[:REASON] if hot else ""
            pieces.append((f"{reason:<{REASON}} ", "dim"))
        if width is None or width >= 80:
            pieces.append((f"{line.line:>4} ", "dim"))
        used = sum(len(text) for text, _ in pieces) + 2
        text = clip(printable(line.text), None if width is None else width - used)
        yield [*pieces, (f"{sign} {text}".rstrip(), STYLES[sign])]


def diff(
    changes: SourceDiff,
    names: tuple[str, str],
    width: int | None,
    paths: Mapping[str, str] = hunks.NO_PATHS,
) -> Iterator[Pieces]:
    """All hunks, the costliest first, then the unchanged lines whose stall time changed most."""
    if changes.has_costs and changes.hunks:
        yield [(clip(printable(HEADING.format(*names)), width), "dim")]
    known = [(file, hunk) for file in changes.files for hunk in file.hunks]
    for file, hunk in sorted(known, key=lambda pair: -hunks.weight(pair[1])):
        yield [("", "")]
        yield from hunk_lines(file, hunk, width, paths)
    if not changes.hunks:
        yield [("the sources are the same", "")]
    if shifts := hunks.shifts(changes):
        yield [("", "")]
        yield [(clip("unchanged lines whose stall time changed most:", width), "bold")]
    yield from ([(clip(f"  {printable(plain(shift))}", width), "")] for shift in shifts)
    if changes.has_costs:
        sums = (
            f"stall time, {name}: {hunks.pair(hunks.stall_time(before), hunks.stall_time(after))}"
            for name, before, after in hunks.sums(changes)
        )
        yield [("", "")]
        yield from ([(clip(printable(text), width), "")] for text in sums)


@dataclass(frozen=True)
class SourceLine:
    """A line of a source with its stall samples; None where they were not collected."""

    line: int
    samples: int | None
    share: float | None
    microseconds: float | None
    top_stall: str
    instructions: int | None
    text: str

    @property
    def ran(self) -> bool:
        return bool(self.samples or self.instructions)


Listing = Mapping[str, Sequence[SourceLine]]


def hottest_first(files: Listing) -> Listing:
    """Sort files by stall samples: headers that a kernel merely includes come last."""
    return dict(sorted(files.items(), key=lambda item: -sum(x.samples or 0 for x in item[1])))


def sources(
    files: Listing,
    notes: Mapping[str, str],
    sass: Mapping[tuple[str, int], Sequence[InstructionCost]],
    width: int | None,
) -> Iterator[Pieces]:
    """Every source with the share of all samples and the top stall reason before each line; hot
    ones are marked. ``notes`` stand under the headings of files, ``sass`` under its lines.
    """
    of = "by line and by instruction" if sass else "by line"
    heading = f"stall samples {of}, as a share of all samples"
    for file, lines in files.items():
        if any(line.ran for line in lines):
            total = sum(line.samples or 0 for line in lines)
            yield [(f"{printable(file)}: {heading} ({total} here)", "bold")]
            yield from ([(note, "yellow")] for note in [notes.get(file, "")] if note)
            yield [("", "")]
            yield from [HEAD] * bool(sass)
            for line in lines:
                yield source_line(line, width)
                yield from (instruction(one, width) for one in sass.get((file, line.line), ()))
        else:
            yield [(f"{printable(file)}: no instruction was executed there", "")]
        yield [("", "")]
    shown = {(file, line.line) for file, lines in files.items() for line in lines}
    if rest := [one for place, found in sass.items() if place not in shown for one in found]:
        yield [("instructions of no line that is shown:", "bold")]
        yield from (instruction(one, width) for one in rest)


def hottest(
    files: Listing,
    most: int,
    sass: Mapping[tuple[str, int], Sequence[InstructionCost]],
    width: int | None,
) -> Iterator[Pieces]:
    """The hottest lines of all files with their places, each with its instructions in ``sass``;
    where no line is known, the hottest instructions.
    """
    sampled = [(file, line) for file, lines in files.items() for line in lines if line.samples]
    ranked = sorted(sampled, key=lambda item: -(item[1].samples or 0))[:most]
    if sass and not ranked:
        every = [one for found in sass.values() for one in found]
        every = sorted(every, key=lambda x: (-(x.share or 0.0), x.launch, x.address))[:most]
        yield [(f"no line is known; the {len(every)} hottest instructions:", "bold")]
        yield HEAD
        yield from (instruction(one, width) for one in every)
        return
    yield [(f"the {len(ranked)} hottest lines: stall samples as a share of all samples", "bold")]
    yield [("", "")]
    yield from [HEAD] * bool(sass)
    names = [f"{base(f) if f.startswith('/') else f}:{line.line}" for f, line in ranked]
    wide = max(20, *map(len, names)) if names else 20
    for name, (file, line) in zip(names, ranked, strict=True):
        text = clip(printable(line.text.strip()), None if width is None else width - 31 - wide)
        yield [*marks(line), (f" {name:<{wide}} ", "dim"), (text, "bold" if sass else "")]
        yield from (instruction(one, width) for one in sass.get((file, line.line), ()))


def marks(line: SourceLine) -> Pieces:
    """``>>`` for a twentieth of all samples and more, ``>`` for a hundredth."""
    share = line.share or 0.0
    mark = ">>" if share >= HOT else " >" if share >= WARM else "  "
    style = "bold red" if share >= HOT else "yellow" if share >= WARM else ""
    text = f"{share:6.1%}" if line.samples else " " * 6
    stall = stall_label(line.top_stall)[:18]
    return [(f"{mark} {text} {stall:<18}", style)]


def source_line(line: SourceLine, width: int | None) -> Pieces:
    text = clip(printable(line.text), None if width is None else width - 35).rstrip()
    style = "bold" if (line.share or 0.0) >= HOT else ""
    pieces = [*marks(line), (f" {line.line:>4}  ", "dim"), (text, style)]
    return pieces if line.text.strip() else [(pieces[0][0] + pieces[1][0].rstrip(), "dim")]


def instruction(cost: InstructionCost, width: int | None) -> Pieces:
    """Share of all samples, the reason, executions, address, SASS."""
    share = cost.share or 0.0
    text = f"{share:6.1%}" if share >= LEAST else " " * 6
    reason = stall_words(cost.top_stall)[:18] if share >= LEAST else ""
    executed = "" if cost.executed is None else count(cost.executed)
    head = f"   {text} {reason:<18} {executed:>8}  {cost.address:#06x}  "
    pieces: Pieces = [(head, "dim")]
    room = None if width is None else width - len(head)
    return [*pieces, (clip(printable(cost.sass), room), "bold" if share >= HOT else "")]
