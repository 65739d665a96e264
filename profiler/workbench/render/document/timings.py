"""Times by regime, and what the sessions say of themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workbench.derive.speedup import Ratio, Time
from workbench.judge.regimes import InRegime
from workbench.judge.rows import Row
from workbench.judge.sessions import TimingFacts
from workbench.render.document.blocks import Cell, Field, Table, field, figure_cell, table, words
from workbench.render.document.phrases import parent_of, with_cycles
from workbench.render.numbers import at_level, ends, number
from workbench.words import ABSENT, NONE, Regime


def time_cell(time: Time | None) -> Cell:
    """The time in microseconds; its data are all that is known of it."""
    cell = figure_cell(time.value if time else None)
    if time is None:
        return cell
    text = (*cell.text, *words(" unchecked")) if time.unchecked else cell.text
    return Cell(text, cell.sort, data={k: v for k, v in vars(time).items() if k != "unchecked"})


def time_in(row: Row, regime: Regime) -> Cell:
    return time_cell(at.microseconds if (at := row.regimes.get(regime)) else None)


def spread(time: Time | None) -> str:
    """The 95 % interval of a time."""
    return ends(time) if time else NONE


def clock(time: Time | None) -> str:
    known = time.sm_clock_mhz if time else None
    return number(known / 1e3) if known is not None else ABSENT


def how_often(time: Time | None) -> str:
    """``5 × 4``: sessions and instances in each."""
    if time is None:
        return NONE
    return f"{time.sessions} × {time.instances / time.sessions:g}"


@dataclass(frozen=True)
class _Timed:
    regime: Regime
    known: InRegime


def _ratio(
    key: str, other: str, of: Callable[[InRegime], Ratio | None], rank: int
) -> Field[_Timed]:
    return field(key, f"vs {other}", lambda t: with_cycles(of(t.known)), right=True, rank=rank)


def regimes(row: Row, reference: str = "") -> Table:
    """One variant: a row a regime, with the ratios there; a column of ratios only where it has a
    parent, or a reference.
    """
    parent = parent_of(row)
    fields: list[Field[_Timed]] = [
        field("regime", "regime", lambda t: t.regime),
        field("time", "time", lambda t: time_cell(t.known.microseconds), unit="µs", right=True),
        field("range", "95 % interval", lambda t: spread(t.known.microseconds), right=True, rank=3),
        _ratio("parent", parent, lambda known: known.speedup_over_parent, 1),
        _ratio("reference", reference, lambda known: known.speedup_over_reference, 2),
        field("fastest", "vs the fastest reference", lambda t: _fastest(t.known), rank=1),
        field(
            "clock",
            "SM clock",
            lambda t: clock(t.known.microseconds),
            unit="GHz",
            right=True,
            rank=4,
        ),
        field(
            "sessions",
            "sessions × instances",
            lambda t: how_often(t.known.microseconds),
            right=True,
            rank=5,
        ),
    ]
    absent = {
        "parent": not (parent and row.verdict),
        "reference": reference in ("", row.variant),
        "fastest": row.is_reference or not reference,
    }
    rows = [_Timed(regime, row.regimes.get(regime) or InRegime()) for regime in Regime]
    shown = [f for f in fields if not absent.get(f.column.key)]
    return table("timings", shown, rows, key=lambda t: t.regime)


def _fastest(known: InRegime) -> str:
    if known.speedup_over_fastest is None:
        return ABSENT
    return f"{with_cycles(known.speedup_over_fastest)} of {known.fastest}"


def _fine(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return ABSENT
    return f"{number(ratio.low, 4)} to {number(ratio.high, 4)}{at_level(ratio)}"


def twin_words(facts: TimingFacts) -> str:
    """``twins, chained: baseline 1.003 (0.994 to 1.011), ...``; empty without any."""
    shown = [
        f"{twin.variant} {number(twin.ratio.ratio, 4)} ({_fine(twin.ratio)})"
        for twin in facts.twins
        if twin.regime == Regime.CHAINED
    ]
    return f"twins, {Regime.CHAINED}: {', '.join(shown)}" if shown else ""
