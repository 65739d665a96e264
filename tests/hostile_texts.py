"""Texts as nobody would write them by accident, and what must be in no output."""

from __future__ import annotations

import unicodedata

from hypothesis import strategies as st

PIECES = (
    *("<script>alert(1)</script>", "</script>", "</style>", "</details>", "</title>"),
    *("<img src=https://evil.example/x.png onerror=alert(1)>", "<svg/onload=alert(1)>", "<!--"),
    *("-->", "]]>", "<?php", "![alt](https://evil.example/x.png)", "[x](javascript:alert(1))"),
    *("[x](https://evil.example/)", "[x]: https://evil.example/", "![", "]("),
    *("](https://evil.example/x.png)", "[x][x]", "!", "[", "]", "(", ")", "<", ">", "&", "&#60;"),
    *("&lt;img", "img src=x>", '"', "'", "`", "```", "~~~", "**", "*", "_", "|", "\\", "\\|", "$"),
    *("{{ 7 * 7 }}", "{% raw %}", "#", "- ", "> ", "1. ", "\n", "\n\n", "\r", "\t", "    ", " "),
    *("\x00", "\x07", "\x08", "\x1b[2J", "\x1b]0;title\x07", "\x1b]8;;https://evil.example\x1b\\"),
    *("\x7f", "\x85", "\x9b31m", "\u200b", "\u200f", "\u202e", "\u2028", "\u2066", "\ufeff"),
    *("\uffff", "\ud800", "a", "word", "µ", "字", "🙂"),
)
WORST = "".join(PIECES)
texts = st.lists(
    st.sampled_from(PIECES) | st.characters(exclude_categories=()), min_size=1, max_size=12
).map("".join)


def steering(text: str, allowed: str = "\n") -> set[str]:
    """Characters of a text that a terminal or an editor obeys instead of showing them."""
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return {c for c in text if c not in allowed and unicodedata.category(c) in kinds}
