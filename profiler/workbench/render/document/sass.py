"""The instructions of two variants as tables: how many of each kind ran, how long they waited."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.derive.sass.listing import Listing
from workbench.derive.sass.mix import Amount, Mixed, by_class, by_opcode
from workbench.render.document.blocks import Block, Cell, Paragraph, Table, words
from workbench.render.document.fields import Field, field, figure_cell, table
from workbench.render.numbers import count, number, times
from workbench.words import ABSENT

OPCODES = 8  # that are shown
Names = tuple[str, str]


def mix(names: Names, before: Listing, after: Listing, *, every: bool = False) -> list[Block]:
    """By class, and the opcodes whose executions changed most."""
    opcodes = [one for one in by_opcode(before.instructions, after.instructions) if one.change]
    told: list[Block] = [
        Paragraph(words("Warp instructions by the pipe or memory that they are for:")),
        mixed("instruction_mix", names, by_class(before.instructions, after.instructions)),
    ]
    if opcodes:
        title = "Opcodes whose executions changed" + ("" if every else " most") + ":"
        shown = opcodes if every else opcodes[:OPCODES]
        told += [Paragraph(words(title)), mixed("opcodes", names, shown)]
    return told


def mixed(name: str, names: Names, found: Sequence[Mixed]) -> Table:
    """A row a class or opcode."""
    first = "opcode" if name == "opcodes" else "kind"
    fields: list[Field[Mixed]] = [
        field("name", first, lambda one: one.name),
        field("before", f"{names[0]}, executed", lambda m: _executed(m.before), right=True),
        field("after", f"{names[1]}, executed", lambda m: _executed(m.after), right=True),
        field("factor", "factor", lambda m: times(m.before.executed, m.after.executed), right=True),
        field("time_before", f"{names[0]}, stalled (µs)", lambda m: _time(m.before), right=True),
        field("time_after", f"{names[1]}, stalled (µs)", lambda m: _time(m.after), right=True),
    ]
    return table(name, fields, found, key=lambda one: one.name)


def _executed(side: Amount) -> Cell:
    text = ABSENT if side.executed is None else count(side.executed)
    return figure_cell(side.executed, text)


def _time(side: Amount) -> Cell:
    return figure_cell(side.microseconds, number(side.microseconds))
