"""What each version did beside what a call needs, as a table."""

from __future__ import annotations

from collections.abc import Callable

from workbench.judge.effort import Effort
from workbench.judge.rows import Ablation, Row
from workbench.render.document.blocks import Cell, Table, Text, words
from workbench.render.document.fields import Field, field, figure_cell, table
from workbench.render.document.phrases import kind
from workbench.render.numbers import percent
from workbench.words import ABSENT

NOTE = (
    "Useful are the operations that a call needs, done those that the capture counted, padding of "
    "tiles among them; both over the chained time. Bytes are over the least: every input and "
    "output once. Less than 1 came from DRAM where the rest still was in L2. Load balance is what "
    "the average SM was active of the busiest one's time."
)
Amount = Callable[[Effort], float | None]


def _of(make: Amount) -> Callable[[Row], Cell]:
    return lambda row: figure_cell(make(row.effort) if row.effort else None)


def _rate(make: Amount) -> Callable[[Row], Cell]:
    def cell(row: Row) -> Cell:
        flops = make(row.effort) if row.effort else None
        if flops is None or row.time is None:
            return figure_cell(None)
        return figure_cell(flops / row.time.value / 1e6)  # FLOP a µs

    return cell


def _balance(row: Row) -> str:
    known = row.effort.balance if row.effort else None
    return ABSENT if known is None else percent(known)


VERSION: Field[Row] = field("version", "version", lambda row: row.variant)
OPERATIONS: list[Field[Row]] = [
    field("useful", "useful TFLOP/s", _rate(lambda e: e.needed), right=True),
    field("done", "done TFLOP/s", _rate(lambda e: e.done), right=True),
    field("operations", "done ÷ useful", _of(lambda e: e.operations), right=True),
]
TRAFFIC: list[Field[Row]] = [
    field("dram", "DRAM bytes ÷ least", _of(lambda e: e.dram), right=True),
    field("l2", "L2 bytes ÷ least", _of(lambda e: e.l2), right=True),
    field("balance", "load balance", _balance, right=True),
]


def efforts(ablation: Ablation) -> Table:
    """Of all versions; without operations where a call needs none."""
    needs = any(row.effort and row.effort.needed for row in ablation.everything)
    fields = [VERSION, *(OPERATIONS if needs else []), *TRAFFIC]
    return table("effort", fields, ablation.everything, key=lambda r: r.variant, kind=kind)


def note() -> Text:
    """What the columns are."""
    return words(NOTE)
