"""Measured ceilings beside the theoretical ones: as a table, and as JSON."""

from __future__ import annotations

import math
from typing import Any

from workbench.derive.roofline.measured import MeasuredCeiling, MeasuredCeilings
from workbench.evidence.ceilings import CeilingRecord
from workbench.render.tables import markdown_table, number, percent
from workbench.words import ABSENT, NONE, SCHEMA_VERSION

NAMES = {
    "dram": "DRAM",
    "l2": "L2",
    "l1": "L1",
    "fp32": "FP32",
    "fp64": "FP64",
    "half": "packed FP16",
}
HEADER = (
    "ceiling",
    "measured",
    "theoretical at that clock",
    "share",
    "SM clock (MHz)",
    "what was run",
)
ALIGN = "lrrrrl"
WRONG = " (above theory: an error in the data)"


def name(ceiling: str) -> str:
    return NAMES.get(ceiling) or f"dense {ceiling.removeprefix('tensor ').upper()} tensor"


def amount(value: float | None, unit: str) -> str:
    """FLOP/s or byte/s as TFLOP/s or TB/s."""
    if value is None:
        return ABSENT
    return f"{number(value / 1e12)} {'TB/s' if unit == 'byte/s' else 'TFLOP/s'}"


def clock(found: CeilingRecord) -> str:
    return ABSENT if found.sm_clock_mhz is None else f"{found.sm_clock_mhz:.0f}"


def rows(found: MeasuredCeilings) -> list[list[str]]:
    """Plain text under ``HEADER``; what was not collected last, with the reason."""
    cells = [
        [
            name(key),
            amount(roof.measured.value, roof.measured.unit),
            amount(roof.theoretical, roof.measured.unit),
            percent(roof.share) + WRONG * roof.above_theory,
            clock(roof.measured),
            roof.measured.ran,
        ]
        for key, roof in found.by_id.items()
    ]
    return cells + [[name(key), ABSENT, NONE, NONE, NONE, why] for key, why in found.absent.items()]


def table(found: MeasuredCeilings) -> str:
    return markdown_table(list(HEADER), rows(found), ALIGN)


def beside(found: MeasuredCeilings | None, ceiling: str) -> str:
    """What is said after a theoretical ceiling; nothing where none was measured."""
    roof = found.by_id.get(ceiling) if found else None
    if roof is None:
        return ""
    value = amount(roof.measured.value, roof.measured.unit)
    return f"; measured {value} at an SM clock of {clock(roof.measured)} MHz"


def jsonable(found: MeasuredCeilings) -> dict[str, Any]:
    """As ``calibrate --json`` prints it; FLOP/s and bytes/s, clocks in MHz."""
    return {
        "schema_version": SCHEMA_VERSION,
        "gpu": found.gpu,
        "date": found.date,
        "ceilings": {key: _one(roof) for key, roof in found.by_id.items()},
        "not_collected": dict(found.absent),
    }


def _one(roof: MeasuredCeiling) -> dict[str, Any]:
    share = roof.share
    return {
        **{key: value for key, value in vars(roof.measured).items() if key != "id"},
        "theoretical": roof.theoretical,
        "share_of_theoretical": share if math.isfinite(share) else None,
        "above_theory": roof.above_theory,
    }
