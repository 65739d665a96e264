"""How numbers read: to three digits, in sane units, and never as nothing where there is some."""

from __future__ import annotations

import math
import unicodedata
from typing import TYPE_CHECKING

from workbench.derive.speedup import LEVEL
from workbench.words import ABSENT, NONE

if TYPE_CHECKING:
    from workbench.derive.speedup import Ratio, Time

LEADING = ("a", "an", "and", "at", "by", "for", "from", "in", "of", "on", "one", "per", "the", "to")
NEAR_ONE = 1.1  # up to which a ratio is reported to a thousandth, as it is below one
COUNTS = "M"  # the unit of what is counted in millions; shown plain or with k, M, G
WHOLE = ("block", "register", "thread", "inst", "sample")
FLOORS = {"%": 0.05, "% of peak": 0.05, "GB/s": 0.5, "MB": 0.1}  # what is less is noise
SCALES = ((1e9, " G"), (1e6, " M"), (1e4, " k"))


def number(x: float | None, digits: int = 3) -> str:
    """To ``digits`` significant digits, whole above them, without an exponent where one can do."""
    if x is None or not math.isfinite(x):
        return ABSENT
    if x == 0:
        return "0"
    if not 1e-4 <= abs(x) < 1e9:
        return f"{x:.{digits - 1}e}"
    rounded = float(f"{x:.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{x:,.0f}" if abs(x) >= 1e4 else f"{x:.{decimals}f}"


def count(x: float | None) -> str:
    """``56``, ``560 k``, ``2.03 M``: whole below ten thousand, where it is whole."""
    if x is None or not math.isfinite(x):
        return ABSENT
    for size, name in SCALES:
        if abs(x) >= size:
            return number(x / (1e3 if size == 1e4 else size)) + name
    return f"{x:,.0f}" if x == round(x) else number(x)


def quantity(x: float | None, unit: str) -> str:
    """A figure in its unit, which the text repeats only where it scales it; see ``unit_shown``."""
    if x is not None and 0 < x < FLOORS.get(unit, 0.0):
        return f"<{number(FLOORS[unit], 1)}"
    if unit == COUNTS and x is not None:
        return count(round(x * 1e6, 6))
    return count(x) if unit in WHOLE else number(x)


def unit_shown(unit: str) -> str:
    """Return what stands beside a figure: nothing for counts, which carry their own k, M, G."""
    return "" if unit == COUNTS else unit


def with_unit(label: str, unit: str) -> str:
    unit = unit_shown(unit)
    return f"{label} ({unit})" if unit else label


def within(label: str) -> str:
    """A label inside a sentence: without its capital, unless that is of an acronym as in ``L2``."""
    return label[:1].lower() + label[1:] if label[1:2].islower() else label


def percent(share: float | None) -> str:
    """A share as percent; what is not nothing is not shown as nothing."""
    if share is None or not math.isfinite(share):
        return ABSENT
    value = 100 * share
    if 0 < abs(value) < 0.1:
        return f"{number(value, 2)} %"
    return f"{value:.1f} %" if abs(value) < 10 else f"{value:.0f} %"


def speed(x: float) -> str:
    """Bytes per second, from TB/s."""
    return f"{number(x)} TB/s" if x >= 1 else f"{number(1e3 * x)} GB/s"


def factor(x: float) -> str:
    """``2.91x``; two decimals near one, where they decide."""
    return f"{number(x, 3)}x" if x < 100 else f"{x:,.0f}x"


def fine(x: float) -> str:
    """Format a factor that has an interval: near one the third decimal decides."""
    return f"{number(x, 4)}x" if 1 < x < NEAR_ONE else factor(x)


def times(before: float | None, after: float | None, unit: str = "") -> str:
    """How many times ``before`` goes into ``after``; a dash for zero and for noise."""
    is_large = before and after and min(before, after) >= FLOORS.get(unit, 0.0)
    return factor(after / before) if before and after and is_large else NONE


def ratio(value: Ratio | None) -> str:
    return fine(value.ratio) if value else ABSENT


def ends(value: Ratio | Time) -> str:
    """``[2.88, 2.95]``: the 95 % interval; ``[2.88, 2.95] at 99 %`` where it is of that level."""
    if value.low is None or value.high is None:
        return "[one session]" if value.sessions == 1 else f"[{ABSENT}]"
    both = (fine(end).removesuffix("x") for end in (value.low, value.high))
    return f"[{', '.join(both)}]{at_level(value)}"


def at_level(value: Ratio | Time) -> str:
    """`` at 99 %``, of an interval that was looked at before; else nothing."""
    return "" if value.level == LEVEL else f" at {value.level} %"


def interval(value: Ratio | None) -> str:
    """``2.91x [2.88, 2.95]``: the ratio and its interval, see ``ends``."""
    return f"{fine(value.ratio)} {ends(value)}" if value else ABSENT


def signed(change: float) -> str:
    if not change:
        return "0"
    return f"{'+' if change > 0 else '−'}{number(abs(change))}"


def microseconds(value: float | None) -> str:
    return ABSENT if value is None else f"{number(value)} µs"


TAB = "    "
LINES = str.maketrans("", "", "\n\t")


def printable(text: str) -> str:
    """One line with escape sequences, other control characters and direction marks spelt out."""
    text = text.replace("\t", TAB)
    return text if text.isprintable() else "".join(map(_shown, text))


def printable_lines(text: str) -> str:
    """Make each line printable, as ``printable``."""
    return "\n".join(map(printable, text.split("\n")))


def harmless(text: str) -> str:
    """Lines for a file: as ``printable_lines``, and tabs stay."""
    if text.translate(LINES).isprintable():  # nearly always, and much faster
        return text
    return "".join(c if c in "\n\t" else _shown(c) for c in text)


def _shown(character: str) -> str:
    if unicodedata.category(character) in ("Cc", "Cf", "Cn", "Cs", "Zl", "Zp"):
        return f"\\u{ord(character):04x}" if ord(character) > 0xFF else f"\\x{ord(character):02x}"
    return character


def clip(text: str, width: int) -> str:
    """Cut to ``width`` terminal cells, the last one an ellipsis."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + "…" if width > 0 else ""


def whole_words(text: str, width: int) -> str:
    """Return as many words as fit, without one at the end that needs a next; a long one is cut."""
    if len(text) <= width:
        return text
    kept = text[: width + 1].rpartition(" ")[0].split()
    while len(kept) > 1 and kept[-1] in LEADING:
        kept.pop()
    return " ".join(kept) or clip(text, width)


def one_line(text: str) -> str:
    return " ".join(text.split())


def shorten(text: str, width: int) -> str:
    """One line of at most ``width`` characters, the last one an ellipsis where it was cut."""
    flat = one_line(text)
    return flat if len(flat) <= width else flat[: width - 1].rstrip() + "…"
