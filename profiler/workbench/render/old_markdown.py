"""Text into Markdown: what must not turn into structure does not."""

from __future__ import annotations

import re

# A code span (group 1), which Markdown leaves alone, or what could open an HTML tag.
_SPAN_OR_TAG = re.compile(r"((?<!`)(`+)(?!`).+?(?<!`)\2(?!`))|<(?=[A-Za-z/!?])", re.DOTALL)
_SPECIAL = re.compile(r"[\\`*\[\]~]|<(?=[A-Za-z/!?])|&(?=#?\w+;)|(?<!\w)_|_(?!\w)")
_BLOCK = re.compile(r"^(#{1,6}\s|[-+*>]|\d+[.)]\s|`{3}|~{3}|=+$)")


def one_line(text: str) -> str:
    return " ".join(text.split())


def authored(text: str) -> str:
    """An author's line: code spans, emphasis and links work; HTML and new blocks do not."""
    flat = one_line(text)
    safe = _SPAN_OR_TAG.sub(lambda match: match[1] or "\\<", flat)
    return _BLOCK.sub(lambda match: _shield(match[1]), safe)


def paragraphs(text: str) -> str:
    """Like ``authored``, keeping blank lines between paragraphs."""
    parts = re.split(r"\n\s*\n", text.strip())
    return "\n\n".join(authored(part) for part in parts if part.strip())


def _shield(opening: str) -> str:
    digits = re.match(r"\d+", opening)
    return f"{digits[0]}\\{opening[digits.end() :]}" if digits else "\\" + opening


def literal(text: str) -> str:
    """A tool's message: every character stands for itself."""
    safe = _SPECIAL.sub(lambda match: "\\" + match[0], one_line(text))
    return _BLOCK.sub(lambda match: _shield(match[1]), safe)


def code(text: str) -> str:
    """A code span whose fence is longer than any run of backticks in it."""
    flat = one_line(text)
    if not flat:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", flat)), default=0))
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{pad}{flat}{pad}{fence}"


def fenced(text: str, language: str = "") -> str:
    """A code block whose fence nothing in it can close."""
    runs = [len(run) for run in re.findall("`{3,}", text)]
    fence = "`" * max(3, 1 + max(runs, default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def shorten(text: str, width: int) -> str:
    flat = one_line(text)
    return flat if len(flat) <= width else flat[: width - 1].rstrip() + "…"
