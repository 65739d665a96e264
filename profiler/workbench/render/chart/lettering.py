"""How much room text takes: estimated, so that no font and no renderer decides where things go."""

from __future__ import annotations

# Advances of DejaVu Sans in em; the sans-serifs that stand in for it are narrower.
NARROW, WIDE = frozenset("fijlrt.,:;|'()[] "), frozenset("mwMW%@")
BOLD = 1.1
LINE = 1.3  # line height in em
ELLIPSIS = "…"


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Width of a line in the unit of ``size``."""
    units = sum(round(100 * _advance(character)) for character in text)
    return size * units / 100 * (BOLD if bold else 1)


def _advance(character: str) -> float:
    if character in NARROW:
        return 0.37
    return 0.95 if character in WIDE else 0.7 if character.isupper() else 0.62


def fitted(text: str, room: float, size: float, *, bold: bool = False) -> str:
    """The text, or its two ends where there is no room for all: names differ at their ends."""
    kept = len(text)
    short = text
    while kept > 2 and text_width(short, size, bold=bold) > room:
        kept -= 1
        head = (kept + 1) // 2
        short = f"{text[:head]}{ELLIPSIS}{text[len(text) - (kept - head) :]}"
    return short


def wrapped(words: str, room: float, size: float) -> list[str]:
    """Lines of whole words that fit; a word that is too long stands alone."""
    lines: list[str] = []
    for word in words.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines
