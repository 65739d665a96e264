"""Text that cannot harm a terminal or a file, and text that fits. Every command loads this module,
so it imports no other of the engine.
"""

from __future__ import annotations

import unicodedata

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


def one_line(text: str) -> str:
    return " ".join(text.split())


def shorten(text: str, width: int) -> str:
    """One line of at most ``width`` characters, the last one an ellipsis where it was cut."""
    flat = one_line(text)
    return flat if len(flat) <= width else flat[: width - 1].rstrip() + "…"


def clip(text: str, width: int) -> str:
    """Cut to ``width`` terminal cells, the last one an ellipsis."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + "…" if width > 0 else ""
