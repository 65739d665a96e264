"""Blocks as Markdown. All escaping is here: what must not turn into structure does not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from itertools import count, groupby

from workbench.render import doc
from workbench.render.text import harmless, one_line, printable

TOP = 2  # level of a document's sections; its title is above them

_SPECIAL = re.compile(r"[\\`*~]|<(?=[A-Za-z/!?]|$)|&(?=#?\w+;|#?$)|!(?=\[)|(?<!\w)_|_(?!\w)")
_IMAGE = re.compile(r"!$")  # before a link it would make it a picture from elsewhere
_BRACKET = re.compile(r"[\[\]]")
_LINKING = re.compile(r"\][(\[:]|\[[!^ xX]")  # what makes brackets more than brackets
_BLOCK = re.compile(r"^(#{1,6}\s|[-+*>]|\d+[.)]\s|`{3}|~{3}|=+$)")
_PADDED = re.compile(r"(\s*)(.*?)(\s*)", re.DOTALL)


def literal(words: str, *, brackets: bool = True) -> str:
    """Words in which every character stands for itself; ``brackets`` need that only in some."""
    flat = harmless(re.sub(r"\s+", " ", words))
    safe = _SPECIAL.sub(lambda match: "\\" + match[0], flat)
    return _BRACKET.sub(lambda match: "\\" + match[0], safe) if brackets else safe


def code(words: str) -> str:
    """A code span whose fence is longer than any run of backticks in it."""
    flat = harmless(one_line(words))
    if not flat:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", flat)), default=0))
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{pad}{flat}{pad}{fence}"


def fenced(text: str, language: str = "") -> str:
    """A code block whose fence nothing in it can close."""
    runs = [len(run) for run in re.findall("`{3,}", text)]
    fence = "`" * max(3, 1 + max(runs, default=0))
    return f"{fence}{language}\n{harmless(text).rstrip()}\n{fence}"


def spans(text: doc.Text) -> str:
    brackets = bool(_LINKING.search(doc.plain(text)))
    written = ""
    for (strong, em, href), group in groupby(text, key=lambda s: (s.strong, s.em, s.href)):
        inside = "".join(
            code(s.text) if s.code else literal(s.text, brackets=brackets) for s in group
        )
        piece = _marked(inside, strong, em, href)
        if piece.lstrip("*").startswith("["):
            written = _IMAGE.sub(r"\!", written)
        written += piece
    return written


def loose(words: str) -> str:
    """Text only: brackets are escaped where they could be more than brackets."""
    return literal(words, brackets=bool(_LINKING.search(words)))


def _marked(inside: str, strong: bool, em: bool, href: str) -> str:
    """Marks stand against the words: blanks at either end go outside of them."""
    padded = _PADDED.fullmatch(inside)
    if padded is None or not padded[2]:
        return inside
    marks = "**" * strong + "*" * em
    marked = f"{marks}{padded[2]}{marks}"
    return f"{padded[1]}{f'[{marked}]({harmless(href)})' if href else marked}{padded[3]}"


def paragraph(text: doc.Text) -> str:
    """On a line of its own: its beginning opens no heading, list, quote or fence."""
    shown = spans(text).strip()
    if not text or text[0] != doc.Span(text[0].text):
        return shown
    return _BLOCK.sub(lambda match: _shield(match[1]), shown)


def _shield(opening: str) -> str:
    digits = re.match(r"\d+", opening)
    return f"{digits[0]}\\{opening[digits.end() :]}" if digits else "\\" + opening


def cell(content: doc.Cell) -> str:
    # Readers part cells at a bar before they see code; behind a backslash they disagree whether.
    text = tuple(replace(s, code=False) if "\\|" in s.text else s for s in content.text)
    return f"{spans(text)} {loose(content.note)}".strip()


def table(shown: doc.Table) -> str:
    """A GFM table. Cells are not padded: that would be a third of a report."""
    header = [loose(doc.label(column)) for column in shown.columns]
    rows = [[cell(row.cells[column.key]) for column in shown.columns] for row in shown.rows]
    lines = [[one_line(text).replace("|", "\\|") for text in row] for row in (header, *rows)]
    rules = ["--:" if column.is_number else "---" for column in shown.columns]
    return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], rules, *lines[1:]])


def _attribute(text: str) -> str:
    """Escape text for the HTML that is written here: no blank line may end its block."""
    return escape(harmless(one_line(text)))


def picture(chart: doc.Chart) -> str:
    """Light and dark, by what the reader's system prefers, each also as a phone shows it."""
    name = _attribute(chart.name)
    sources = "\n".join(
        f'  <source media="{size}(prefers-color-scheme: {shade})" srcset="{name}{end}-{shade}.svg">'
        for size, end in (("(max-width: 600px) and ", "-phone"), ("", ""))
        for shade in ("dark", "light")
    )
    image = f'  <img alt="{_attribute(chart.alt)}" src="{name}-light.svg">'
    drawn = f"<picture>\n{sources}\n{image}\n</picture>"
    return f"{drawn}\n\n{paragraph(doc.line(chart.caption))}" if chart.caption else drawn


def section(block: doc.Section, level: int = TOP) -> str:
    inside = blocks(block.blocks, level + 1)
    return f"{'#' * level} {spans(block.title)}\n\n{inside}" if block.title else inside


def block(content: doc.Block, level: int) -> str:
    match content:
        case doc.Paragraph():
            return paragraph(content.text)
        case doc.Bullets():
            marks = (f"{n}." if content.ordered else "-" for n in count(1))
            items = zip(marks, content.items, strict=False)
            return "\n".join(f"{mark} {paragraph(item)}" for mark, item in items)
        case doc.Callout():
            return "\n".join(["> [!WARNING]", *(f"> - {paragraph(i)}" for i in content.items)])
        case doc.CodeBlock():
            return fenced(content.text, content.language)
        case doc.Chart():
            return picture(content)
        case doc.SourceChange():
            return ""  # on the page
        case doc.LinesBlock():
            lines = ("".join(piece.text for piece in line) for line in content.lines)
            return "\n".join(printable(line).rstrip() for line in lines)
        case doc.Table():
            return table(content)
        case doc.Fold():
            summary = f"<summary>{_attribute(doc.plain(content.summary))}</summary>"
            inside = blocks(content.blocks, level)
            return f"<details>\n{summary}\n\n{inside}\n\n</details>"
        case doc.Section():
            return section(content, level)


def document(content: doc.Section) -> str:
    return f"{section(content, TOP - 1)}\n"


def blocks(contents: Sequence[doc.Block], level: int = TOP) -> str:
    return "\n\n".join(text for each in contents if (text := block(each, level)))
