"""Colours by name, each in a light and a dark shade; told apart by colour-blind readers.

The series are Okabe and Ito's, which read on white and on black alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class Shades:
    light: str
    dark: str


def _both(colour: str) -> Shades:
    return Shades(colour, colour)


PALETTE: Mapping[str, Shades] = MappingProxyType(
    {
        "ink": Shades("#1f2328", "#f0f6fc"),
        "muted": Shades("#59636e", "#9198a1"),
        "faint": Shades("#d1d9e0", "#3d444d"),
        "paper": Shades("#ffffff", "#0d1117"),
        "step": Shades("#0068b0", "#58a6ff"),
        "reference": Shades("#8a5a00", "#e3a008"),
        "rejected": Shades("#c24e00", "#ff8a4c"),
        "chained": Shades("#c24e00", "#ff8a4c"),
        "cold": Shades("#0068b0", "#58a6ff"),
        "black": _both("#000000"),
        "white": _both("#ffffff"),
        "blue": _both("#0072b2"),
        "orange": _both("#e69f00"),
        "green": _both("#009e73"),
        "pink": _both("#cc79a7"),
        "vermilion": _both("#d55e00"),
        "sky": _both("#56b4e9"),
        "yellow": _both("#f0e442"),
        "grey": _both("#8b8b8b"),
    }
)


def contrast(one: str, other: str) -> float:
    """Ratio of the relative luminances of two ``#rrggbb`` colours, 1 to 21 (WCAG 2)."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def ink_on(fill: str) -> str:
    """The name of the colour of text on a fill: of black and white the one that reads better."""
    shades = PALETTE[fill]
    if shades.light != shades.dark:
        return "ink"
    return max(("black", "white"), key=lambda name: contrast(PALETTE[name].light, shades.light))
