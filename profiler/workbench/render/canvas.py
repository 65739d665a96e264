"""What all charts share: one palette with the foreground swapped, and byte-stable SVG."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONT_SIZE = 9.5
# Mean advance of DejaVu Sans in em, a little generous: other fonts that stand in are narrower.
ADVANCE = 0.62


@dataclass(frozen=True)
class Palette:
    """Colours that carry meaning are Okabe and Ito's, told apart by colour-blind readers too."""

    ink: str
    muted: str
    faint: str
    paper: str
    step: str
    reference: str
    rejected: str
    memory: str
    compute: str


LIGHT = Palette("#1f2328", "#59636e", "#d1d9e0", "#ffffff",
                "#0072b2", "#8a5a00", "#d55e00", "#56b4e9", "#e69f00")  # fmt: skip
DARK = Palette("#f0f6fc", "#9198a1", "#3d444d", "#0d1117",
               "#56b4e9", "#e69f00", "#ff8a4c", "#56b4e9", "#e69f00")  # fmt: skip

_STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": FONT_SIZE,
    "axes.linewidth": 0.8,
}


def palette(dark: bool) -> Palette:
    return DARK if dark else LIGHT


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """Estimated width in points; no renderer, so that it costs nothing."""
    return ADVANCE * size * len(text)


def svg(name: str, title: str, draw: Callable[[], Figure]) -> str:
    """Draw and save with the same bytes each time, whatever the user's matplotlibrc says."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        # Inside the context: the salt replaces random ids, and rcdefaults would reset it.
        matplotlib.rcParams.update({**_STYLE, "svg.hashsalt": name})
        out = io.StringIO()
        meta = {"Date": None, "Creator": None, "Title": title}
        draw().savefig(out, format="svg", transparent=True, metadata=meta)
    return out.getvalue()
