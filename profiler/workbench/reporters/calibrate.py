"""``calibrate``: the measured ceilings of a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from workbench.derive.rooflines import MeasuredCeiling, MeasuredCeilings
from workbench.evidence.records import Ceiling
from workbench.judge.advice_rules import LEVEL_NAMES
from workbench.render.document.blocks import (
    Block,
    Content,
    Field,
    Table,
    field,
    numeric,
    paragraph,
    table,
)
from workbench.render.numbers import number, percent
from workbench.words import ABSENT, NONE

TERA = 1e12
CEILING_NAMES = {**LEVEL_NAMES, "half": "packed FP16", "fp32": "FP32", "fp64": "FP64"}
WRONG_CEILING = " (above theory: an error in the data)"


# One ceiling of a calibration, by its id; None where it is missing, and then why.
_Ceiling: TypeAlias = tuple[str, MeasuredCeiling | None, str]


def ceiling_name(ceiling: str) -> str:
    label = CEILING_NAMES.get(ceiling)
    return label or f"dense {ceiling.removeprefix('tensor ').upper()} tensor"


def amount(value: float | None, unit: str) -> str:
    """FLOP/s or byte/s as TFLOP/s or TB/s."""
    if value is None:
        return ABSENT
    return f"{number(value / TERA)} {'TB/s' if unit == 'byte/s' else 'TFLOP/s'}"


def clock(ceiling: Ceiling) -> str:
    return ABSENT if ceiling.sm_clock_mhz is None else f"{ceiling.sm_clock_mhz:.0f}"


def _reached(roof: MeasuredCeiling | None) -> str:
    return amount(roof.measured.value, roof.measured.unit) if roof else ABSENT


def _of_roof(make: Callable[[MeasuredCeiling], Content]) -> Callable[[_Ceiling], Content]:
    return lambda ceiling: make(ceiling[1]) if ceiling[1] else NONE


CEILINGS: list[Field[_Ceiling]] = [
    field("ceiling", "ceiling", lambda c: ceiling_name(c[0])),
    numeric("measured", "measured", lambda c: _reached(c[1])),
    numeric(
        "theoretical",
        "theoretical at that clock",
        _of_roof(lambda roof: amount(roof.theoretical, roof.measured.unit)),
    ),
    numeric(
        "share",
        "share",
        _of_roof(
            lambda roof: percent(roof.share_of_theoretical) + WRONG_CEILING * roof.above_theory
        ),
    ),
    numeric("clock", "SM clock (MHz)", _of_roof(lambda roof: clock(roof.measured))),
    field("ran", "what was run", lambda c: c[1].measured.ran if c[1] else c[2], rank=1),
]


def ceilings(measured: MeasuredCeilings) -> Table:
    """Return what was not collected last, with the reason."""
    items: list[_Ceiling] = [(name, roof, "") for name, roof in measured.ceilings.items()]
    items += [(name, None, why) for name, why in measured.not_collected.items()]
    return table("ceilings", CEILINGS, items, key=lambda c: c[0])


def blocks(result: MeasuredCeilings, _: object) -> list[Block]:
    title = f"measured ceilings: {result.gpu}, {result.date[:10]}"
    return [paragraph(title), ceilings(result)]


def ceiling_words(name: str, measured: Ceiling | None) -> str:
    """A ceiling as soon as it is measured; None could not be."""
    value = amount(measured.value, measured.unit) if measured else ABSENT
    return f"{ceiling_name(name)}: {value}"


def wrong_ceiling(roof: MeasuredCeiling) -> str:
    name = ceiling_name(roof.id)
    return f"the measured {name} ceiling is above what the hardware can do: an error in the data"
