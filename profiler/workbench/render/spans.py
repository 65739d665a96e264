"""Inline Markdown as data, for a page whose template escapes every piece of it.

Understands what reports write: code spans, strong, emphasis, links and backslash escapes. All
else, HTML above all, is text.
"""

from __future__ import annotations

import re
from typing import TypedDict

from workbench.render.old_markdown import one_line


class Span(TypedDict):
    """A run of text in one style; ``href`` is empty where it is no link."""

    text: str
    code: bool
    strong: bool
    em: bool
    href: str


_TOKEN = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?<!`)(?P<fence>`+)(?!`)(?P<code>.+?)(?<!`)(?P=fence)(?!`)"
    r"|\[(?P<label>[^\]\[]+)\]\((?P<href>https?://[^\s()<>]+)\)"
    r"|(?P<strong>\*\*)"
    r"|(?P<em>(?<![*\w])\*(?=\S)|(?<=\S)\*(?![*\w]))",
    re.DOTALL,
)


def spans(text: str) -> list[Span]:
    """One paragraph. Strong or emphasis that is opened but never closed ends with it."""
    flat = one_line(text)
    found: list[Span] = []
    strong = em = False

    def say(words: str, *, code: bool = False, href: str = "") -> None:
        if not words:
            return
        span: Span = {"text": words, "code": code, "strong": strong, "em": em, "href": href}
        if found and {**found[-1], "text": ""} == {**span, "text": ""}:
            found[-1]["text"] += words
        else:
            found.append(span)

    at = 0
    for match in _TOKEN.finditer(flat):
        say(flat[at : match.start()])
        at = match.end()
        if match["escaped"]:
            say(match["escaped"])
        elif match["fence"]:
            inside = match["code"]
            padded = len(inside) > 2 and inside[0] == inside[-1] == " " and inside.strip()
            say(inside[1:-1] if padded else inside, code=True)
        elif match["href"]:
            say(match["label"], href=match["href"])
        elif match["strong"]:
            strong = not strong
        else:
            em = not em
    say(flat[at:])
    return found


def paragraphs(text: str) -> list[list[Span]]:
    """Paragraphs are parted by blank lines."""
    return [spans(part) for part in re.split(r"\n\s*\n", text.strip()) if part.strip()]
