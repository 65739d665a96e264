"""What the lines of a diff cost, as tables and sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from workbench.derive.figures import stall_label
from workbench.derive.source_diff import (
    NUMBERS,
    Cost,
    Hunk,
    Shift,
    SourceDiff,
    SourceRow,
    base,
    why_no_costs,
)
from workbench.render.document.blocks import Text, code, line
from workbench.render.numbers import count, number, percent, shorten
from workbench.words import ABSENT, NONE

NO_PATHS: Mapping[str, str] = MappingProxyType({})
COSTLIEST = 3
SHIFTS = 5
WORTH_TELLING = 0.01  # of the longer duration: smaller moves of unchanged lines are left out
ERRORS = 3
TEXT_WIDTH = 72
ARROW = "→"
COUNTERS = (
    ("warp instructions", "instructions"),
    ("excess global sectors", "excess_global_sectors"),
    ("excess shared wavefronts", "excess_shared_wavefronts"),
)


def span(hunk: Hunk, side: int, paths: Mapping[str, str] = NO_PATHS) -> str:
    """``fix1.cu:28-39`` of one side; "" where the hunk has no line there."""
    lines = hunk.span(side)
    if lines is None:
        return ""
    first, last = lines
    file = hunk.files[side]
    return f"{paths.get(file) or base(file)}:{first}" + (f"-{last}" if last > first else "")


def where(hunk: Hunk, paths: Mapping[str, str] = NO_PATHS) -> str:
    """Both sides' lines and the function; ``paths`` are files of the new side for an editor."""
    old, new = span(hunk, 0), span(hunk, 1, paths)
    places = pair(old, new) if old and new else f"{old}, removed" if old else f"new {new}"
    return f"{places}, {hunk.function}()" if hunk.function else places


def pair(before: str, after: str) -> str:
    return f"{before} {ARROW} {after}"


def stall_time(cost: Cost) -> str:
    """``18.6 µs (8.6 %)``; the share alone where the duration was not collected."""
    if cost.share is None:
        return ABSENT
    share = percent(cost.share)
    return f"{number(cost.microseconds)} µs ({share})" if cost.microseconds is not None else share


def sides(hunk: Hunk, text: Callable[[Cost], str]) -> str:
    costs = (hunk.before, hunk.after)
    return pair(*(text(c) if hunk.span(i) else NONE for i, c in enumerate(costs)))


def counter(name: str) -> Callable[[Cost], str]:
    return lambda cost: count(getattr(cost, name))


def weight(hunk: Hunk) -> float:
    """Return what a hunk costs on its dearer side: µs, or a share where there is no duration."""
    return max(_weight(hunk.before), _weight(hunk.after))


def _weight(cost: Cost) -> float:
    return cost.microseconds if cost.microseconds is not None else cost.share or 0.0


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


def sums(changes: SourceDiff) -> list[tuple[str, Cost, Cost]]:
    """The lines outside of the hunks, code outside of the sources by file, and the sum of all."""
    rows = [("lines outside the hunks", *changes.unchanged)]
    rows += [
        (base(name) or "code without a known line", *costs)
        for name, costs in changes.elsewhere.items()
    ]
    return [*rows, ("all lines", *changes.totals)]


def costs(hunk: Hunk) -> list[str]:
    """The stall time of a hunk before and after, and every counter that was not zero."""
    parts = [f"stall time {sides(hunk, stall_time)}"]
    ran = [cost for side, cost in enumerate((hunk.before, hunk.after)) if hunk.span(side)]
    for label, name in COUNTERS:
        if any(getattr(cost, name) for cost in ran):
            parts.append(f"{label} {sides(hunk, counter(name))}")
    return parts


def costliest_lines(changes: SourceDiff) -> tuple[Text, ...]:
    """The dearest hunks in a line each, but for those that hardly cost anything."""
    total = max(_weight(cost) for cost in changes.totals)
    return tuple(
        line(f"hunk {hunk.number}, ", code(where(hunk)), f": {sides(hunk, stalled)}")
        for hunk in costliest(changes)[:COSTLIEST]
        if weight(hunk) >= WORTH_TELLING * total
    )


def stalled(cost: Cost) -> str:
    """``18.6 µs``, or the share where there is no duration."""
    return percent(cost.share) if cost.microseconds is None else f"{number(cost.microseconds)} µs"


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


def shifts(changes: SourceDiff) -> tuple[Text, ...]:
    """Each unchanged line that gained or lost stall time."""
    return tuple(
        line(
            f"{shift_place(shift)}, ",
            code(shorten(shift.after.text, TEXT_WIDTH)),
            f": {pair(_line_cost(shift.before), _line_cost(shift.after))}",
        )
        for shift in shown_shifts(changes)
    )


def absences(changes: SourceDiff, sides: tuple[str, str]) -> str:
    """Why one side or both have no costs by line, as one sentence; "" where both have."""
    parts = [
        f"{name}: {why_no_costs(why)}" for name, why in zip(sides, changes.why, strict=True) if why
    ]
    return f"Costs by line are {ABSENT} ({'; '.join(parts)})." if parts else ""
