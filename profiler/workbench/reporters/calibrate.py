"""``calibrate``: the measured ceilings of a GPU."""

from __future__ import annotations

from workbench.derive.roofline.point import MeasuredCeiling, MeasuredCeilings
from workbench.evidence.records import Ceiling
from workbench.render.document import limits
from workbench.render.document.blocks import Block, paragraph
from workbench.words import ABSENT


def blocks(result: MeasuredCeilings, _: object) -> list[Block]:
    title = f"measured ceilings: {result.gpu}, {result.date[:10]}"
    return [paragraph(title), limits.ceilings(result)]


def ceiling_words(name: str, measured: Ceiling | None) -> str:
    """A ceiling as soon as it is measured; None could not be."""
    value = limits.amount(measured.value, measured.unit) if measured else ABSENT
    return f"{limits.ceiling_name(name)}: {value}"


def wrong_ceiling(roof: MeasuredCeiling) -> str:
    name = limits.ceiling_name(roof.id)
    return f"the measured {name} ceiling is above what the hardware can do: an error in the data"
