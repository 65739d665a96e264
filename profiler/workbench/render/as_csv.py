"""The table of an output as CSV: keys of the JSON as columns, numbers unrounded."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

from workbench.render.as_frame import parts
from workbench.render.as_json import plain_data
from workbench.render.document.blocks import Block, Cell, Column, Fold, Section, Table, plain
from workbench.render.numbers import printable

FIGURES = "figures"  # the table of a variant that counts: those of its times and stalls are shorter
FORMULA = ("=", "+", "-", "@")  # what a spreadsheet takes for one


def as_csv(blocks: Iterable[Block]) -> str:
    """The figures, else the first table, with all others of its name: they share their columns,
    and the first one names the section where there are several. Without a table the header too is
    missing.
    """
    found = list(_tables(blocks, ""))
    names = [table.name for _, table in found]
    wanted = FIGURES if FIGURES in names else next(iter(names), "")
    shown = [(of, table) for of, table in found if table.name == wanted]
    several = len({of for of, _ in shown}) > 1
    rows: list[dict[str, str]] = []
    keys: dict[str, dict[str, None]] = {"": {"section": None} if several else {}}  # by column
    for of, table in shown:
        for row in table.rows:
            rows.append({"section": safe(of)} if several else {})
            for column in table.columns:
                told = dict(_parts(column, row.cells.get(column.key)))
                keys.setdefault(column.key, {}).update(dict.fromkeys(told))
                rows[-1] |= told
    text = io.StringIO()
    columns = list(dict.fromkeys(key for each in keys.values() for key in each))
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def _tables(blocks: Iterable[Block], of: str) -> Iterator[tuple[str, Table]]:
    for block in blocks:
        if isinstance(block, Table):
            yield of, block
        elif isinstance(block, Section | Fold):
            yield from _tables(block.blocks, block.key if isinstance(block, Section) else of)


def _parts(column: Column, cell: Cell | None) -> Iterator[tuple[str, str]]:
    """What JSON has of a cell, an object in a column a number; else its words."""
    key = column.json or column.key
    data = None if cell is None else cell.data
    if data is None:
        yield key, safe("" if cell is None or column.json else plain(cell.text))
        return
    for name, value in parts(key, plain_data(data)).items():
        yield name, safe("" if value is None else value)


def safe(value: Any) -> str:
    """Text that no spreadsheet runs: what begins like a formula and is no number is quoted."""
    text = printable(str(value).lower() if isinstance(value, bool) else str(value))
    return f"'{text}" if text.startswith(FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
