"""The few marks of Markdown that an author's text may have, as runs of text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from workbench.render.document.blocks import Paragraph, Span, Text
from workbench.render.numbers import one_line

_TOKEN = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?<!`)(?P<fence>`+)(?!`)(?P<code>.+?)(?<!`)(?P=fence)(?!`)"
    r"|\[(?P<label>[^\]\[]+)\]\((?P<href>https?://[^\s()<>]+)\)"
    r"|(?P<strong>\*\*)"
    r"|(?P<em>(?<![*\w])\*(?=\S)|(?<=\S)\*(?![*\w]))",
    re.DOTALL,
)
_SENTENCE = re.compile(r"[.!?](?=\s)")


def authored(text: str) -> Text:
    """One paragraph. Strong or emphasis that is opened but never closed ends with it."""
    return _merged(_spans(one_line(text)))


def paragraphs(text: str) -> tuple[Paragraph, ...]:
    """Parted by blank lines."""
    parts = re.split(r"\n\s*\n", text.strip())
    return tuple(Paragraph(authored(part)) for part in parts if part.strip())


def first_sentence(text: str) -> Text:
    """That of an author's first paragraph; a full stop inside of code ends none."""
    kept: list[Span] = []
    for span in authored(re.split(r"\n\s*\n", text.strip())[0]):
        end = None if span.code else _SENTENCE.search(span.text)
        if end:
            return (*kept, replace(span, text=span.text[: end.end()]))
        kept.append(span)
    return tuple(kept)


def _spans(flat: str) -> Iterator[Span]:
    strong = em = False
    at = 0
    for match in _TOKEN.finditer(flat):
        yield Span(flat[at : match.start()], strong=strong, em=em)
        at = match.end()
        if match["escaped"]:
            yield Span(match["escaped"], strong=strong, em=em)
        elif match["fence"]:
            yield Span(_unpadded(match["code"]), code=True, strong=strong, em=em)
        elif match["href"]:
            yield Span(match["label"], strong=strong, em=em, href=match["href"])
        elif match["strong"]:
            strong = not strong
        else:
            em = not em
    yield Span(flat[at:], strong=strong, em=em)


def _unpadded(inside: str) -> str:
    """A blank on either side keeps backticks apart from the fence, and is no part of the code."""
    padded = len(inside) > 2 and inside[0] == inside[-1] == " " and inside.strip()
    return inside[1:-1] if padded else inside


def _merged(spans: Iterator[Span]) -> Text:
    """Neighbours of one style as one, empty ones gone."""
    kept: list[Span] = []
    for span in spans:
        if not span.text:
            continue
        if kept and replace(kept[-1], text="") == replace(span, text=""):
            kept[-1] = replace(span, text=kept[-1].text + span.text)
        else:
            kept.append(span)
    return tuple(kept)
