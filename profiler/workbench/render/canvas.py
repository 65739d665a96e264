"""What all charts share: one palette with the foreground swapped, and byte-stable SVG."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FONT_SIZE = 9.5
# Advances of DejaVu Sans in em; other fonts that stand in are narrower.
NARROW, WIDE = frozenset("fijlrt.,:;|'()[] "), frozenset("mwMW%@")
POINTS = 72  # to the inch


@dataclass(frozen=True)
class Palette:
    """The colours that a dark page swaps; every other colour works on both."""

    ink: str
    muted: str
    faint: str
    paper: str
    step: str
    reference: str
    rejected: str


# No colour stands twice in LIGHT or among the charts' own, so that swapping text is exact.
LIGHT = Palette("#1f2328", "#59636e", "#d1d9e0", "#fffffe", "#0068b0", "#8a5a00", "#c24e00")
DARK = Palette("#f0f6fc", "#9198a1", "#3d444d", "#0d1117", "#58a6ff", "#e3a008", "#ff8a4c")

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": FONT_SIZE,
    "axes.linewidth": 0.8,
}


@dataclass(frozen=True)
class Entry:
    """One entry of a chart's key: how its sign is drawn (as for ``Axes.plot``), and its word."""

    word: str
    sign: Mapping[str, Any]


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """Estimated width in points, the longest line's; no renderer, so that it costs nothing."""
    lines = text.split("\n")
    return size * max(sum(_advance(character) for character in line) for line in lines)


def _advance(character: str) -> float:
    if character in NARROW:
        return 0.37
    return 0.95 if character in WIDE else 0.7 if character.isupper() else 0.62


def key(figure: Figure, entries: Sequence[Entry], left: float, top: float) -> float:
    """Draw the key in reading order from a corner, in points; returns where its last line ends."""
    from matplotlib.lines import Line2D

    wide, high = (POINTS * inches for inches in figure.get_size_inches())
    x, y = left, top
    for entry in entries:
        needs = 14 + text_width(entry.word)
        if x > left and x + needs > wide - 8:
            x, y = left, y - 1.7 * FONT_SIZE
        at = ([(x + 4) / wide], [y / high])
        figure.add_artist(Line2D(*at, linestyle="", **entry.sign))
        figure.text((x + 13) / wide, y / high, entry.word, color=LIGHT.ink, va="center_baseline")
        x += needs + 14
    return y - FONT_SIZE


def note_absent(figure: Figure, absent: Sequence[str], left: float, bottom: float) -> None:
    """Say at the foot, in fractions of the page, what was not collected."""
    if absent:
        text = textwrap.shorten("not collected: " + ", ".join(absent), 130, placeholder=" ...")
        figure.text(left, bottom, text, color=LIGHT.muted, fontsize=FONT_SIZE - 1.5)


def svg(name: str, title: str, draw: Callable[[], Figure]) -> str:
    """Draw and save with the same bytes each time, whatever the user's matplotlibrc says."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        # Inside the context: the salt replaces random ids, and rcdefaults would reset it.
        style: Any = {**_STYLE, "svg.hashsalt": name}
        matplotlib.rcParams.update(style)
        out = io.StringIO()
        meta = {"Date": None, "Creator": None, "Title": title}
        draw().savefig(out, format="svg", transparent=True, metadata=meta)
    return out.getvalue()


def swap(light: str) -> str:
    """The same chart for a dark page: the colours of one palette put in place of the other's."""
    new = dict(zip(astuple(LIGHT), astuple(DARK), strict=True))
    return re.sub("|".join(new), lambda match: new[match[0]], light)
