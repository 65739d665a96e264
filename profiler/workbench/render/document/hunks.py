"""What the lines of a diff or a source cost, as sentences and as lines for a terminal or a pipe.

Signs and numbers carry the meaning, styles only repeat it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from workbench.derive.code_diff import sizes_and_summary
from workbench.derive.figures import stall_label
from workbench.derive.source_diff import (
    NUMBERS,
    Cost,
    DiffRow,
    FileDiff,
    Hunk,
    InstructionCost,
    Shift,
    SourceDiff,
    SourceRow,
    add,
    base,
    is_host,
    signed,
    why_no_costs,
    with_context,
)
from workbench.render import doc
from workbench.render.doc import Line, Piece, count, number, percent
from workbench.render.document.variant import stall_words
from workbench.render.text import clip, harmless, shorten
from workbench.words import ABSENT, NONE

NO_PATHS: Mapping[str, str] = MappingProxyType({})
ARROW = "→"
MOST_LINES, MOST_STALLED, MOST_HUNKS, MOST_UNCHANGED = 12, 8, 3, 3
WORTH_SAYING = 0.005  # of all samples of a variant
CODE_WIDTH = 84  # of a line of code


def excerpt(changes: SourceDiff, names: tuple[str, str]) -> Iterator[doc.Block]:
    """For a report: the diff with the share of each line, and the time of what it does not show.
    Where no changed line has stalls, as of a change of parameters, the unchanged ones with most of
    them follow.
    """
    shown = important(changes)
    texts = [] if shown else [f"-{names[0]}", f"+{names[1]}"]
    for hunk, marked in shown:
        cost = "" if hunk.host else f": stall time {sides(hunk, stall_time)}"
        texts.append(f"@@ {where(hunk)}{cost} @@")
        texts += [_sampled(sign, each, hunk.files, _share(each)) for sign, each in marked]
    if not any(_share(each) >= WORTH_SAYING for _, marked in shown for _, each in marked):
        ranked = sorted(changes.shifts, key=lambda s: -max(_share(s.before), _share(s.after)))
        for shift in ranked[:MOST_UNCHANGED]:
            both = _share(shift.before), _share(shift.after)
            texts.append(f"@@ unchanged {shift_place(shift)} @@")
            texts.append(_sampled(" ", shift.after, shift.files, *both))
    yield doc.CodeBlock(harmless("\n".join(texts)), "diff")
    if not changes.has_costs:
        yield doc.paragraph(absences(changes, names))
        return
    if changes.kinds and all(changes.kinds):
        yield doc.paragraph(
            doc.strong("Machine code."), " ", sizes_and_summary(*changes.kinds), "."
        )
    excerpt = {hunk.number for hunk, _ in shown}
    edits = [hunk for hunk in active(changes) if hunk.number in excerpt]
    rest = [hunk for hunk in active(changes) if hunk.number not in excerpt]
    outside = [changes.unchanged, *changes.elsewhere.values()]
    parts = [
        f"unattributed (lines that did not change): {_both(*map(add, zip(*outside, strict=True)))}"
    ]
    for what, group in (("other edits", rest), ("these edits", edits)):
        if group:
            parts.insert(0, f"{what}: {_both(*(_side(group, n) for n in (0, 1)))}")
    yield doc.paragraph("Stall time and instructions of ", "; ".join(parts), ".")


Marked = tuple[str, SourceRow]  # the sign of a line in a diff
WORD = re.compile(r"[A-Za-z_]\w{3,}")


def important(changes: SourceDiff) -> list[tuple[Hunk, list[Marked]]]:
    """Changed lines of the costliest hunks, in their order: those with the most stall time, and the
    added ones with most words that the parent does not have, since what is fast has no stalls.
    """
    costly = costliest(changes) or [h for h in changes.hunks if not h.comments_only]
    every = [
        (number, place, marked)
        for number, hunk in enumerate(costly[:MOST_HUNKS])
        for place, marked in enumerate(signed(list(hunk.rows)))
        if marked[0] != " " and marked[1].code
    ]
    rows = (row.before.code for file in changes.files for row in file.rows if row.before)
    old = {word for text in rows for word in WORD.findall(text)}

    def new(item: tuple[int, int, Marked]) -> int:
        sign, each = item[2]
        return -len(set(WORD.findall(each.code)) - old) if sign == "+" else 0

    ranked = sorted(every, key=lambda item: -_share(item[2][1]))
    shown = [item for item in ranked[:MOST_STALLED] if _share(item[2][1]) >= WORTH_SAYING]
    rest = sorted((item for item in every if item not in shown), key=new)
    shown = sorted([*shown, *rest[: MOST_LINES - len(shown)]], key=lambda item: item[:2])
    return [
        (hunk, [marked for n, _, marked in shown if n == number])
        for number, hunk in enumerate(costly[:MOST_HUNKS])
        if any(n == number for n, _, _ in shown)
    ]


def _share(line: SourceRow) -> float:
    return line.cost.share or 0.0


def _sampled(sign: str, each: SourceRow, files: tuple[str, str], *shares: float) -> str:
    """A line of a diff with its share of all samples as a comment."""
    text = clip(each.text.rstrip().expandtabs(4), CODE_WIDTH)
    if max(shares) < WORTH_SAYING:
        return f"{sign}{text}"
    stalls = f"{f' {ARROW} '.join(map(percent, shares))} {stall_words(each.cost.top_stall)}"
    return f"{sign}{text:<{CODE_WIDTH}} {'#' if is_host(files[1] or files[0]) else '//'} {stalls}"


def _both(before: Cost | None, after: Cost | None) -> str:
    sides = (before, after)
    stall = pair(*(stalled(c) if c else NONE for c in sides))
    return f"{stall}, {pair(*(count(c.instructions) if c else NONE for c in sides))}"


def _side(edits: Sequence[Hunk], side: int) -> Cost | None:
    """The cost of some edits on one side; None where they have no line there."""
    costs = [(edit.before, edit.after)[side] for edit in edits if edit.span(side)]
    return add(costs) if costs else None


COSTLIEST = 3
WORTH_TELLING = 0.01  # of the longer duration: smaller moves of unchanged lines are left out


def costliest_lines(changes: SourceDiff) -> tuple[doc.Text, ...]:
    """The dearest hunks in a line each, but for those that hardly cost anything."""
    total = max(_weight(cost) for cost in changes.totals)
    return tuple(
        doc.line(f"hunk {hunk.number}, ", doc.code(where(hunk)), f": {sides(hunk, stalled)}")
        for hunk in costliest(changes)[:COSTLIEST]
        if weight(hunk) >= WORTH_TELLING * total
    )


def costliest(changes: SourceDiff) -> list[Hunk]:
    """Hunks that did anything on the GPU, the dearest first."""
    return sorted(active(changes), key=lambda hunk: (-weight(hunk), hunk.number))


def active(changes: SourceDiff) -> list[Hunk]:
    """Hunks whose lines did anything on the GPU, before or after."""
    return [
        hunk
        for hunk in changes.hunks
        if not hunk.comments_only
        and not hunk.host
        and any(getattr(cost, name) for cost in (hunk.before, hunk.after) for name in NUMBERS)
    ]


def weight(hunk: Hunk) -> float:
    """Return what a hunk costs on its dearer side: µs, or a share where there is no duration."""
    return max(_weight(hunk.before), _weight(hunk.after))


def _weight(cost: Cost) -> float:
    return cost.microseconds if cost.microseconds is not None else cost.share or 0.0


WITH_REASONS, WITH_NUMBERS = 100, 80  # narrower terminals lose the reason, then the line number
BLANK: Line = [Piece("")]
STYLES = {"-": "red", "+": "green", " ": ""}
HEADING = "before each line: its stall samples as a share of all samples, in {} and in {}"
HOT = 0.05
WARM = 0.01
LEAST = 0.0005  # a share that rounds to 0.0 % is left blank
REASON = 16


def diff(
    changes: SourceDiff, names: tuple[str, str], paths: Mapping[str, str] = NO_PATHS
) -> Iterator[Line]:
    """All hunks, the costliest first, then the unchanged lines whose stall time changed most."""
    if changes.has_costs and changes.hunks:
        yield [Piece(HEADING.format(*names), "dim")]
    pairs = [(file, hunk) for file in changes.files for hunk in file.hunks]
    for file, hunk in sorted(pairs, key=lambda pair: -weight(pair[1])):
        yield BLANK
        yield from hunk_lines(file, hunk, paths)
    if not changes.hunks:
        yield [Piece("the sources are the same")]
    if moved := shifts(changes):
        yield BLANK
        yield [Piece("unchanged lines whose stall time changed most:", "bold")]
    yield from ([Piece(f"  {doc.plain(shift)}")] for shift in moved)
    if changes.has_costs:
        yield BLANK
        rows = [("lines outside the hunks", *changes.unchanged)]
        rows += [
            (base(name) or "code without a known line", *costs)
            for name, costs in changes.elsewhere.items()
        ]
        for name, before, after in (*rows, ("all lines", *changes.totals)):
            yield [Piece(f"stall time, {name}: {pair(stall_time(before), stall_time(after))}")]


def hunk_lines(file: FileDiff, hunk: Hunk, paths: Mapping[str, str]) -> Iterator[Line]:
    """The heading, the costs before and after, and the diff with its gutters."""
    yield [Piece(f"hunk {hunk.number}: {where(hunk, paths)}", "bold")]
    if hunk.comments_only:
        yield [Piece("  comments or blanks only", "dim")]
    elif hunk.host:
        yield [Piece("  host code: it costs no GPU time itself", "dim")]
    else:
        yield from ([Piece(f"  {text}")] for text in costs(hunk))
    yield from diff_lines(with_context(file, hunk), bare=hunk.host)


def diff_lines(rows: list[DiffRow], *, bare: bool = False) -> Iterator[Line]:
    """``bare`` leaves the gutters out."""
    costs_of = {
        id(source): (row.before, row.after)
        for row in rows
        for source in (row.before, row.after)
        if source
    }
    for sign, source in signed(rows):
        before, after = costs_of[id(source)]
        pieces: list[Piece] = []
        if not bare:
            hot = (source.cost.share or 0.0) >= LEAST
            reason = stall_label(source.cost.top_stall)[:REASON] if hot else ""
            pieces += [gutter(before.cost if before and sign != "+" else None), Piece(" ")]
            pieces += [gutter(after.cost if after and sign != "-" else None), Piece(" ")]
            pieces += [Piece(f"{reason:<{REASON}} ", "dim", WITH_REASONS)]
        number = Piece(f"{source.line:>4} ", "dim", WITH_NUMBERS)
        yield [*pieces, number, Piece(f"{sign} {source.text}", STYLES[sign])]


def gutter(cost: Cost | InstructionCost | None) -> Piece:
    """A line's or instruction's share of all samples in 7 cells."""
    share = cost.share if cost else None
    if share is None or share < LEAST:
        return Piece(" " * 7)
    return Piece(f"{100 * share:5.1f} %", "bold" if share >= HOT else "")


COUNTERS = (
    ("warp instructions", "instructions"),
    ("excess global sectors", "excess_global_sectors"),
    ("excess shared wavefronts", "excess_shared_wavefronts"),
)


def costs(hunk: Hunk) -> list[str]:
    """The stall time of a hunk before and after, and every counter that was not zero."""
    parts = [f"stall time {sides(hunk, stall_time)}"]
    ran = [cost for side, cost in enumerate((hunk.before, hunk.after)) if hunk.span(side)]
    for label, name in COUNTERS:
        if any(getattr(cost, name) for cost in ran):
            parts.append(f"{label} {sides(hunk, counter(name))}")
    return parts


def sides(hunk: Hunk, text: Callable[[Cost], str]) -> str:
    costs = (hunk.before, hunk.after)
    return pair(*(text(c) if hunk.span(i) else NONE for i, c in enumerate(costs)))


def counter(name: str) -> Callable[[Cost], str]:
    return lambda cost: count(getattr(cost, name))


def stall_time(cost: Cost) -> str:
    """``18.6 µs (8.6 %)``; the share alone where the duration was not collected."""
    if cost.share is None:
        return ABSENT
    share = percent(cost.share)
    return f"{number(cost.microseconds)} µs ({share})" if cost.microseconds is not None else share


def stalled(cost: Cost) -> str:
    """``18.6 µs``, or the share where there is no duration."""
    return percent(cost.share) if cost.microseconds is None else f"{number(cost.microseconds)} µs"


def where(hunk: Hunk, paths: Mapping[str, str] = NO_PATHS) -> str:
    """Both sides' lines and the function; ``paths`` are files of the new side for an editor."""
    old, new = span(hunk, 0), span(hunk, 1, paths)
    places = pair(old, new) if old and new else f"{old}, removed" if old else f"new {new}"
    return f"{places}, {hunk.function}()" if hunk.function else places


def span(hunk: Hunk, side: int, paths: Mapping[str, str] = NO_PATHS) -> str:
    """``fix1.cu:28-39`` of one side; "" where the hunk has no line there."""
    lines = hunk.span(side)
    if lines is None:
        return ""
    first, last = lines
    file = hunk.files[side]
    return f"{paths.get(file) or base(file)}:{first}" + (f"-{last}" if last > first else "")


def pair(before: str, after: str) -> str:
    return f"{before} {ARROW} {after}"


SHIFTS = 5
ERRORS = 3
TEXT_WIDTH = 72


def shifts(changes: SourceDiff) -> tuple[doc.Text, ...]:
    """Each unchanged line that gained or lost stall time."""
    return tuple(
        doc.line(
            f"{shift_place(shift)}, ",
            doc.code(shorten(shift.after.text, TEXT_WIDTH)),
            f": {pair(_line_cost(shift.before), _line_cost(shift.after))}",
        )
        for shift in shown_shifts(changes)
    )


def shown_shifts(changes: SourceDiff) -> list[Shift]:
    """Unchanged lines whose stall time changed by a hundredth of the duration or more, and by more
    than three standard errors of their samples.
    """
    durations = [d for d in changes.durations if d is not None]
    if len(durations) < 2:
        return []
    least = WORTH_TELLING * max(durations)
    return [
        shift
        for shift in changes.shifts
        if abs(shift.change_microseconds) >= least
        and abs(shift.change_microseconds) > ERRORS * shift.noise
    ][:SHIFTS]


def shift_place(shift: Shift) -> str:
    old = f"{base(shift.files[0])}:{shift.before.line}"
    return pair(old, f"{base(shift.files[1])}:{shift.after.line}")


def _line_cost(text: SourceRow) -> str:
    stall = stall_label(text.cost.top_stall)
    return stall_time(text.cost) + (f", {stall}" if stall else "")


def absences(changes: SourceDiff, sides: tuple[str, str]) -> str:
    """Why one side or both have no costs by line, as one sentence; "" where both have."""
    parts = [
        f"{name}: {why_no_costs(why)}" for name, why in zip(sides, changes.why, strict=True) if why
    ]
    return f"Costs by line are {ABSENT} ({'; '.join(parts)})." if parts else ""


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
Code = Mapping[tuple[str, int], Sequence[InstructionCost]]  # by file and line
HEAD = [Piece(f"    {'share':>5} {'mostly':<18} {'executed':>8}  {'at':<6}  instruction", "bold")]


def hottest_first(files: Listing) -> Listing:
    """Sort files by stall samples: headers that a kernel merely includes come last."""
    return dict(sorted(files.items(), key=lambda item: -sum(x.samples or 0 for x in item[1])))


def sources(files: Listing, notes: Mapping[str, str], sass: Code) -> Iterator[Line]:
    """Every source with the share of all samples and the top stall reason before each line; hot
    ones are marked. ``notes`` stand under the headings of files, ``sass`` under its lines.
    """
    of = "by line and by instruction" if sass else "by line"
    heading = f"stall samples {of}, as a share of all samples"
    for file, lines in files.items():
        if any(line.ran for line in lines):
            total = sum(line.samples or 0 for line in lines)
            yield [Piece(f"{file}: {heading} ({total} here)", "bold")]
            if file in notes:
                yield [Piece(notes[file], "yellow")]
            yield BLANK
            yield from [HEAD] * bool(sass)
            for line in lines:
                style = "bold" if (line.share or 0.0) >= HOT else ""
                yield [marks(line), Piece(f" {line.line:>4}  ", "dim"), Piece(line.text, style)]
                yield from map(instruction, sass.get((file, line.line), ()))
        else:
            yield [Piece(f"{file}: no instruction was executed there")]
        yield BLANK
    shown = {(file, line.line) for file, lines in files.items() for line in lines}
    if rest := [one for place, found in sass.items() if place not in shown for one in found]:
        yield [Piece("instructions of no line that is shown:", "bold")]
        yield from map(instruction, rest)


def hottest(files: Listing, most: int, sass: Code) -> Iterator[Line]:
    """The hottest lines of all files with their places, each with its instructions in ``sass``;
    where no line is known, the hottest instructions.
    """
    sampled = [(file, line) for file, lines in files.items() for line in lines if line.samples]
    ranked = sorted(sampled, key=lambda item: -(item[1].samples or 0))[:most]
    if sass and not ranked:
        every = [one for found in sass.values() for one in found]
        every = sorted(every, key=lambda x: (-(x.share or 0.0), x.launch, x.address))[:most]
        yield [Piece(f"no line is known; the {len(every)} hottest instructions:", "bold")]
        yield HEAD
        yield from map(instruction, every)
        return
    heading = f"the {len(ranked)} hottest lines: stall samples as a share of all samples"
    yield [Piece(heading, "bold")]
    yield BLANK
    yield from [HEAD] * bool(sass)
    names = [f"{base(f) if f.startswith('/') else f}:{source.line}" for f, source in ranked]
    wide = max([20, *map(len, names)])
    for name, (file, source) in zip(names, ranked, strict=True):
        text = Piece(source.text.strip(), "bold" if sass else "")
        yield [marks(source), Piece(f" {name:<{wide}} ", "dim"), text]
        yield from map(instruction, sass.get((file, source.line), ()))


def marks(line: SourceLine) -> Piece:
    """``>>`` for a twentieth of all samples and more, ``>`` for a hundredth."""
    share = line.share or 0.0
    mark = ">>" if share >= HOT else " >" if share >= WARM else "  "
    style = "bold red" if share >= HOT else "yellow" if share >= WARM else ""
    text = f"{share:6.1%}" if line.samples else " " * 6
    return Piece(f"{mark} {text} {stall_label(line.top_stall)[:18]:<18}", style)


def instruction(cost: InstructionCost) -> Line:
    """Share of all samples, the reason, executions, address, SASS."""
    share = cost.share or 0.0
    text = f"{share:6.1%}" if share >= LEAST else " " * 6
    reason = stall_words(cost.top_stall)[:18] if share >= LEAST else ""
    executed = "" if cost.executed is None else count(cost.executed)
    head = f"   {text} {reason:<18} {executed:>8}  {cost.address:#06x}  "
    return [Piece(head, "dim"), Piece(cost.sass, "bold" if share >= HOT else "")]
