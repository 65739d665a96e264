"""What the lines of a diff cost, as tables and sentences for Markdown and the terminal."""

from __future__ import annotations

from collections.abc import Callable

from workbench.derive.diff.costs import NUMBERS, Cost
from workbench.derive.diff.model import Hunk, Line, Shift, SourceDiff, base
from workbench.derive.figures import stall_label
from workbench.render.old_markdown import code, literal, shorten
from workbench.render.tables import markdown_table, number, percent
from workbench.words import ABSENT, NONE

SHIFTS = 5
WORTH_TELLING = 0.01  # of the longer duration: smaller moves of unchanged lines are left out
NOTABLE = 0.1  # share by which a counter of an unchanged line must have changed to be told
ERRORS = 3
TEXT_WIDTH = 72
ARROW = "→"
COUNTERS = (
    ("warp instructions", "instructions"),
    ("excess global sectors", "excess_global_sectors"),
    ("excess shared wavefronts", "excess_shared_wavefronts"),
)


def span(hunk: Hunk, side: int) -> str:
    """``fix1.cu:28-39`` of one side; "" where the hunk has no line there."""
    found = hunk.span(side)
    if found is None:
        return ""
    first, last = found
    return f"{base(hunk.files[side])}:{first}" + (f"-{last}" if last > first else "")


def where(hunk: Hunk) -> str:
    """Both sides' lines and the function, in plain text."""
    places = f" {ARROW} ".join(filter(None, (span(hunk, 0), span(hunk, 1))))
    if not span(hunk, 0):
        places = f"new {places}"
    elif not span(hunk, 1):
        places = f"{places}, removed"
    return f"{places}, {hunk.function}()" if hunk.function else places


def pair(before: str, after: str) -> str:
    return f"{before} {ARROW} {after}"


def stall_time(cost: Cost) -> str:
    """``18.6 µs (8.6 %)``; the share alone where the duration was not collected."""
    if cost.share is None:
        return ABSENT
    share = percent(cost.share)
    return f"{number(cost.microseconds)} µs ({share})" if cost.microseconds is not None else share


def _both(hunk: Hunk, text: Callable[[Cost], str]) -> str:
    sides = (hunk.before, hunk.after)
    return pair(*(text(c) if hunk.span(i) else NONE for i, c in enumerate(sides)))


def counter(cost: Cost, name: str) -> str:
    value: float | None = getattr(cost, name)
    return number(value / 1e6) + " M" if value is not None and value >= 1e5 else number(value)


def hottest(hunk: Hunk) -> tuple[int, Line] | None:
    """The side (0 before, 1 after) and line of the hunk with the most stall time."""
    counted = [row for row in hunk.rows if row.counts]
    sides = [(0, row.before) for row in counted] + [(1, row.after) for row in counted]
    lines = [(side, line) for side, line in sides if line and line.cost.share]
    return max(lines, key=lambda item: (_weight(item[1].cost), item[0]), default=None)


def _weight(cost: Cost) -> float:
    return cost.microseconds if cost.microseconds is not None else cost.share or 0.0


def hot_place(hunk: Hunk) -> str:
    """``fix1.cu:33, long scoreboard, 9.5 µs``; a dash where no line of the hunk stalled."""
    found = hottest(hunk)
    if found is None:
        return NONE
    side, line = found
    place = f"{base(hunk.files[side])}:{line.number}"
    return f"{place}, {stall_label(line.cost.top_stall)}, {stall_time(line.cost)}"


def shown(found: SourceDiff) -> list[Hunk]:
    """Hunks whose lines did anything on the GPU, before or after."""
    return [
        hunk
        for hunk in found.hunks
        if not hunk.cosmetic
        and not hunk.host
        and any(getattr(cost, name) for cost in (hunk.before, hunk.after) for name in NUMBERS)
    ]


def sums(found: SourceDiff) -> list[tuple[str, Cost, Cost]]:
    """The lines outside of the hunks, code outside of the sources by file, and the sum of all."""
    rows = [("lines outside the hunks", *found.unchanged)]
    rows += [
        (base(name) or "code without a known line", *costs)
        for name, costs in found.elsewhere.items()
    ]
    return [*rows, ("all lines", *found.totals)]


def hunk_rows(found: SourceDiff) -> tuple[list[str], list[list[str]]]:
    """Header and rows: every hunk that did anything on the GPU, the lines outside of them, and the
    sum of all, in plain text. A counter that stayed at zero in both variants has no column.
    """
    counted = [c for c in COUNTERS if any(getattr(total, c[1]) != 0 for total in found.totals)]
    header = ["hunk", "where", "stall time", *(label for label, _ in counted), "hottest line"]
    rows = [
        [
            str(hunk.number),
            where(hunk),
            _both(hunk, stall_time),
            *(_both(hunk, lambda c, n=name: counter(c, n)) for _, name in counted),  # type: ignore[misc]
            hot_place(hunk),
        ]
        for hunk in shown(found)
    ]
    rows += [
        [
            "",
            label,
            pair(stall_time(before), stall_time(after)),
            *(pair(counter(before, name), counter(after, name)) for _, name in counted),
            "",
        ]
        for label, before, after in sums(found)
    ]
    return header, rows


def hunk_table(found: SourceDiff) -> str:
    header, rows = hunk_rows(found)
    align = "rlr" + "r" * (len(header) - 4) + "l"
    return markdown_table(header, [[literal(cell) for cell in row] for row in rows], align)


def costs(hunk: Hunk) -> list[str]:
    """The stall time of a hunk before and after, and every counter that was not zero."""
    sides = [(hunk.before, hunk.span(0)), (hunk.after, hunk.span(1))]
    said = [f"stall time {_both(hunk, stall_time)}"]
    for label, name in COUNTERS:
        if any(getattr(cost, name) for cost, _ in sides):
            said.append(f"{label} {_both(hunk, lambda c, n=name: counter(c, n))}")  # type: ignore[misc]
    return said


def told_shifts(found: SourceDiff, most: int = SHIFTS) -> list[Shift]:
    """Unchanged lines whose stall time changed by a hundredth of the duration or more, and by more
    than three standard errors of their samples.
    """
    durations = [d for d in found.durations if d is not None]
    if len(durations) < 2:
        return []
    least = WORTH_TELLING * max(durations)
    return [
        shift
        for shift in found.shifts
        if abs(shift.change) >= least and abs(shift.change) > ERRORS * shift.noise
    ][:most]


def shift_place(shift: Shift) -> str:
    old = f"{base(shift.files[0])}:{shift.before.number}"
    return f"{old} {ARROW} {base(shift.files[1])}:{shift.after.number}"


def shift_costs(shift: Shift) -> str:
    parts = [
        stall_time(cost) + (f", {stall_label(cost.top_stall)}" if cost.top_stall else "")
        for cost in (shift.before.cost, shift.after.cost)
    ]
    told = [pair(*parts)]
    for label, name in COUNTERS:
        was, came = (getattr(line.cost, name) for line in (shift.before, shift.after))
        if was is not None and came is not None and abs(came - was) > NOTABLE * max(was, came):
            values = (counter(line.cost, name) for line in (shift.before, shift.after))
            told.append(f"{label} {pair(*values)}")
    return "; ".join(told)


def shift_lines(found: SourceDiff) -> list[str]:
    """Markdown: each unchanged line that gained or lost stall time."""
    return [
        f"{literal(shift_place(shift))}, {code(shorten(shift.after.text, TEXT_WIDTH))}: "
        f"{literal(shift_costs(shift))}"
        for shift in told_shifts(found)
    ]


def moved_lines(found: SourceDiff) -> list[str]:
    """Plain text: each block of code that only stands elsewhere now."""
    said = []
    for block in found.relocated:
        places = [
            f"{base(file)}:{lines[0]}-{lines[1]}"
            for file, lines in zip(
                block.files, (block.before_lines, block.after_lines), strict=True
            )
        ]
        costs = pair(stall_time(block.before), stall_time(block.after))
        said.append(f"{pair(*places)}: {costs}" if found.has_costs else pair(*places))
    return said


def absences(found: SourceDiff, names: tuple[str, str]) -> str:
    """Why one side or both have no costs by line, as one sentence; "" where both have."""
    said = [f"{name}: {why}" for name, why in zip(names, found.why, strict=True) if why]
    return f"Costs by line are {ABSENT} ({'; '.join(said)})." if said else ""
