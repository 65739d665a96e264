"""Why a step is faster or slower: the words and tables of a comparison."""

from __future__ import annotations

from workbench.derive.factors import SpeedupFactors
from workbench.derive.figures import StallTime, added
from workbench.derive.largest_changes import FigureChange
from workbench.judge.comparison import Comparison
from workbench.render.document.blocks import (
    Block,
    Field,
    Table,
    field,
    figure_cell,
    numeric,
    paragraph,
    quantity_cell,
    table,
)
from workbench.render.document.limits import stall_words
from workbench.render.numbers import factor, number, signed, times, with_unit, within

UNCHANGED = 0.005  # a factor nearer to one than this is called the same
# Of a factor: its name above one, and below one.
WORDS = {
    "instructions": ("fewer instructions", "more instructions"),
    "issue_rate": ("higher issue rate", "lower issue rate"),
    "balance": ("more SMs", "fewer SMs"),
    "busiest": ("shorter start and end", "longer start and end"),
    "active": ("more time active", "less time active"),
    "clock": ("higher clock", "lower clock"),
}
STALLS_SHOWN = 6
SURPRISE_SHOWN = 99
UNITS_TOLD = ("%", "kB")  # others are in the label: "blocks 64 to 256 block" helps nobody


def equation(parts: SpeedupFactors) -> str:
    """Write the factors without what stayed as it was: ``4.65x = 1.22x (fewer instructions) × 3.87x
    (...)``.
    """
    changed = [part for part in parts.factors if abs(part.gain - 1) >= UNCHANGED]
    lines = [f"{factor(part.gain)} ({WORDS[part.id][part.gain < 1]})" for part in changed]
    why = f" = {' × '.join(lines)}" if lines else ", no factor of it beyond 0.5 %"
    return f"{factor(parts.ratio)}{why}"


def durations(parts: SpeedupFactors) -> str:
    return f"{number(parts.microseconds_before)} to {number(parts.microseconds_after)} µs under ncu"


def shown_times(times: tuple[StallTime, ...]) -> list[StallTime]:
    """The reasons that changed most, and the rest as one, so that the columns add up."""
    top, rest = list(times[:STALLS_SHOWN]), times[STALLS_SHOWN:]
    if rest:
        top.append(StallTime("other", added(t.before for t in rest), added(t.after for t in rest)))
    return top


def stall_table(pair: Comparison) -> Table | None:
    """Return what the warps did, the duration last; None without samples on both sides."""
    times = pair.stall_microseconds
    if not times:
        return None
    whole = StallTime("", added(t.before for t in times), added(t.after for t in times))
    fields: list[Field[StallTime]] = [
        field("reason", "warp state", lambda t: _reason(t, whole)),
        numeric("before", pair.before, lambda t: figure_cell(t.before), unit="µs"),
        numeric("after", pair.after, lambda t: figure_cell(t.after), unit="µs"),
        numeric("change", "change", lambda t: figure_cell(t.change, signed(t.change)), unit="µs"),
    ]
    return table("stall-times", fields, [*shown_times(times), whole], key=lambda t: t.reason)


def _reason(time: StallTime, whole: StallTime) -> str:
    return "all (the duration)" if time is whole else stall_words(time.reason)


LARGEST_CHANGES: list[Field[FigureChange]] = [
    field("figure", "figure", lambda m: _named(m)),
    numeric("before", "before", lambda m: quantity_cell(m.before, m.unit)),
    numeric("after", "after", lambda m: quantity_cell(m.after, m.unit)),
    numeric("factor", "factor", lambda m: times(m.before, m.after, m.unit)),
    numeric("surprise", "beyond noise (σ)", lambda m: figure_cell(m.surprise, surprise(m))),
    field("part", "part in the time", lambda m: f"{100 * m.part:.0f} % ({m.speaks_of})"),
]


def _named(move: FigureChange) -> str:
    alike = f", and likewise: {', '.join(move.alike)}" if move.alike else ""
    return with_unit(move.label, move.unit) + alike


def surprise(move: FigureChange) -> str:
    return f"> {SURPRISE_SHOWN}" if move.surprise > SURPRISE_SHOWN else number(move.surprise, 2)


def largest_changes(pair: Comparison) -> list[Block]:
    """Return what moved, changed launch parameters, and what only followed the duration."""
    top = pair.largest_changes.figures
    blocks: list[Block] = [table("largest-changes", LARGEST_CHANGES, top, key=lambda m: m.figure)]
    if not top:
        blocks = [paragraph("No figure moved beyond the noise of a capture.")]
    if pair.largest_changes.launch:
        blocks.append(paragraph(f"Launch: {launch(pair)}."))
    if paced := ", ".join(pair.largest_changes.following_duration):
        text = f"Only following the duration, with the amount unchanged: {paced}."
        blocks.append(paragraph(text))
    return blocks


def launch(pair: Comparison) -> str:
    """The launch parameters that changed, in a line."""
    return ", ".join(
        f"{within(m.label)} {_exact(m.before)} to {_exact(m.after)}"
        f"{f' {m.unit}' if m.unit in UNITS_TOLD else ''}"
        for m in pair.largest_changes.launch
    )


def _exact(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else number(value)


def account(pair: Comparison) -> list[Block]:
    """All of a comparison, for a terminal."""
    blocks: list[Block] = []
    if pair.decomposition:
        factors = pair.decomposition
        blocks.append(
            paragraph(f"Against {pair.before}: {equation(factors)}, {durations(factors)}")
        )
    if times := stall_table(pair):
        blocks.append(times)
    return [*blocks, *largest_changes(pair)]
