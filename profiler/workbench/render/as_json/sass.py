"""SASS as data."""

from __future__ import annotations

from typing import Any

from workbench.derive.sass import Costed, Listing

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
