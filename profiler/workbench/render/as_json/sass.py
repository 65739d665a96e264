"""SASS as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from workbench.derive.sass.blocks import Aligned, Block, BlockPair
from workbench.derive.sass.listing import Costed, Listing
from workbench.derive.sass.mix import Mixed, by_class, by_opcode

Data = dict[str, Any]


def instructions(found: Listing) -> list[Data]:
    """One object an instruction, in the order of launches and addresses."""
    return [instruction(one) for one in found.instructions]


def instruction(one: Costed) -> Data:
    file, line = one.place
    return {
        "launch": one.launch,
        "address": one.address,
        "sass": one.sass,
        "ptx": one.ptx or None,
        "file": file or None,
        "line": line or None,
        "executed": one.executed,
        "samples": one.samples,
        "share": one.share,
        "microseconds": one.microseconds,
        "stalls": dict(one.stalls),
    }


def difference(before: Listing, after: Listing, pairs: Iterable[BlockPair]) -> Data:
    return {
        "classes": _mixed(by_class(before.instructions, after.instructions)),
        "opcodes": _mixed(by_opcode(before.instructions, after.instructions)),
        "blocks": [_pair(pair) for pair in pairs],
    }


def _mixed(found: Iterable[Mixed]) -> list[Data]:
    return [{"name": one.name, "before": one.before, "after": one.after} for one in found]


def _pair(pair: BlockPair) -> Data:
    return {
        "before": _block(pair.before),
        "after": _block(pair.after),
        "same": pair.is_same,
        "rows": [_row(row) for row in pair.rows],
    }


def _block(block: Block | None) -> Data | None:
    if block is None:
        return None
    first, last = block.span
    return {"launch": block.launch, "first": first, "last": last, "cost": block.cost}


def _row(row: Aligned) -> Mapping[str, Any]:
    """``before`` and ``after`` are texts; null where a side has none like it."""
    return {
        "before": row.before.sass if row.before else None,
        "after": row.after.sass if row.after else None,
    }
