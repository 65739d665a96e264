"""The numbers of docs/story.md against the evidence on record. Run it as ``python -m
benchmarks.story`` to see which do not hold, and to write the definitions of its links again.

A number of the story is the text of a Markdown link whose label says what it is, such as
``[1.086x][fix5 ratio]`` or ``[27 %][fix12 samples wait at b4h16s2048d64]``; ``benchmarks/facts.py``
has the labels. The definitions at the end of the page lead to where the step is told of, and show
the value in full. Numbers that a page of the docs has are links to it, and have to stand there.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator

from benchmarks.facts import ROOT, Evidence, Unknown, evidence

PAGE = ROOT / "docs" / "story.md"
MARK = "<!-- the evidence: python -m benchmarks.story -->\n"
CITED = re.compile(r"\[([^\[\]]+)\]\[([^\[\]]+)\]")
LINKED = re.compile(r"\[([^\[\]]*\d[^\[\]]*)\]\(([\w./]+\.(?:md|toml))(?:#[\w-]*)?\)")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
# What was measured has a unit, a decimal point, or is a factor; what was chosen is a whole number.
MEASURED = re.compile(
    r"\d[\d,.]*x(?!\w)|\d[\d,.]* ?(?:µs|%|GHz|MHz|TFLOP/s|GB/s|TB/s|million|times)|\d[\d,]*\.\d+"
)


def holds(text: str, value: float) -> bool:
    """Whether the number in a text is the value, rounded to the digits that it has."""
    found = NUMBER.findall(text)
    if len(found) != 1:
        return False
    shown = found[0].replace(",", "")
    decimals = len(shown.partition(".")[2])
    half = 0.5 * 0.1**decimals
    return math.isclose(float(shown), abs(value), rel_tol=1e-9, abs_tol=half * (1 + 1e-9))


def prose(page: str) -> str:
    """Without the definitions at the end."""
    return page.split(MARK)[0]


def cited(page: str) -> list[tuple[str, str]]:
    """Texts with their labels, as they stand."""
    return [(text, " ".join(label.split())) for text, label in CITED.findall(prose(page))]


def faults(page: str, known: Evidence) -> Iterator[str]:
    """What is wrong with the numbers of a page; nothing if all of them hold."""
    for text, label in cited(page):
        try:
            fact = known.fact(label)
        except Unknown as error:
            yield f"[{text}][{label}]: {error}"
            continue
        if not holds(text, fact.value):
            yield f"[{text}][{label}]: it is {fact.told}"
    for text, path in LINKED.findall(prose(page)):
        other = set(NUMBER.findall((PAGE.parent / path).read_text(encoding="utf-8")))
        yield from (
            f"{n} of '{text}' is not in {path}" for n in NUMBER.findall(text) if n not in other
        )
    yield from (f"'{number}' is no link" for number in unlinked(page))


def unlinked(page: str) -> list[str]:
    """What looks measured and has no evidence."""
    bare = re.sub(r"```.*?```|<[^>]*>", "", prose(page), flags=re.DOTALL)
    for pattern in (CITED, LINKED, re.compile(r"`[^`]*`")):
        bare = pattern.sub("", bare)
    return MEASURED.findall(bare)


def definitions(page: str, known: Evidence) -> str:
    """Of every label of a page, in alphabetical order."""
    lines = []
    for label in sorted({label for _, label in cited(page)}):
        fact = known.fact(label)
        lines.append(f'[{label}]: {fact.link} "{fact.told}"')
    return "\n".join(lines) + "\n"


def main() -> int:
    known, page = evidence(), PAGE.read_text(encoding="utf-8")
    found = list(faults(page, known))
    for fault in found:
        print(fault, file=sys.stderr)
    if found:
        return 1
    PAGE.write_text(prose(page) + MARK + "\n" + definitions(page, known), encoding="utf-8")
    print(f"{len(cited(page))} numbers hold")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
