"""README and docs are plain English, and code passes ruff and mypy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from answers import python

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    path.name: path for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")))
}
WRITTEN = [name for name in PAGES if name not in ("reference.md", "changelog.md")]
MEAN_WORDS, MOST_WORDS = 20, 35
README_WORDS, WRITTEN_WORDS, DOCS_WORDS, AGENTS_LINES = 900, 21_400, 24_400, 60
GENERATED = ("reference.md", "lessons.md", "strangers.md")  # for the most part
WORD = r"[\w%.,'’/=+×-]+"
BEGINS = r"(?<=[.!?:])\s+(?=[A-Z0-9(])"
PRIVATE = re.compile(
    r"\b(?:(?:is|are|be|as) told|tells? of|says? of|on record|what is given|as given|cards?"
    r"|by itself|behind itself|in company|leaves? out 1|twins?|witness\w*|testimon\w*|testif\w*"
    r"|seals?|sealed|mends?|mended|cheats?|cheating|crew|keepers?|errands?|landings?|spool"
    r"|foreign reports?|gives? up|(?:came|comes?) true|anatomy|standouts?|a choice|a correction"
    r"|few-ragged|possibly prior|with its evidence|as it comes|as (?:it is|they are)(?=[,.;:)]))\b",
    re.IGNORECASE,
)


def without_code(text: str) -> str:
    """Fenced and indented code goes; a span of code is one word."""
    text = re.sub(r"^```.*?^```|^    .*?$|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`]*`", "Code", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))


def paragraphs(text: str) -> Iterator[str]:
    """Of the prose: tables, headings and pictures go, and an item of a list is a paragraph."""
    held: list[str] = []
    for line in [*without_code(text).splitlines(), ""]:
        stripped = line.strip()
        skipped = stripped.startswith(("|", "#", "<", "!["))
        item = re.match(r"(?:[-*]|\d+\.) ", stripped)
        if held and (not stripped or skipped or item):
            yield " ".join(held)
            held = []
        if stripped and not skipped:
            held.append(stripped[item.end() :] if item else stripped)


def sentences(text: str) -> Iterator[tuple[str, int]]:
    """Each with its number of words."""
    for paragraph in paragraphs(text):
        for sentence in re.split(BEGINS, re.sub(r"[*_]", "", paragraph)):
            words = len(re.findall(WORD, sentence))
            if words > 1:
                yield sentence, words


def faults(text: str) -> list[str]:
    lengths = list(sentences(text))
    mean = sum(words for _, words in lengths) / len(lengths)
    found = [f"{mean:.1f} words a sentence"] if mean > MEAN_WORDS else []
    found += [f"{words} words: {one}" for one, words in lengths if words > MOST_WORDS]
    return found + [f"private: {one[0]}" for one in PRIVATE.finditer(without_code(text))]


def words(text: str) -> int:
    """Fenced code is read too; comments and marks of tables are not words."""
    shown = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    return sum(bool(re.search(r"\w", each)) for each in shown.split())


@pytest.mark.parametrize("name", WRITTEN)
def test_a_page_is_plain_english(name: str) -> None:
    found = faults(PAGES[name].read_text("utf-8"))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("You run it. It stops.", []),
        (f"It {'goes ' * MOST_WORDS}on.", ["words a sentence", "words: It goes"]),
        ("The seal of a card.", ["private: seal", "private: card"]),
        ("Cardinal numbers, and `card` as code.", []),
        ("```text\non record\n```\nIt runs.", []),
        ("| told | on record |\n\nIt runs.", ["private: on record"]),
    ],
)
def test_what_is_not_plain_is_found(text: str, found: list[str]) -> None:
    written = faults(text)
    assert len(written) == len(found)
    assert all(part in fault for part, fault in zip(found, written, strict=True))


def test_the_pages_are_short() -> None:
    texts = {name: path.read_text("utf-8") for name, path in PAGES.items()}
    assert len(texts.pop("README.md").split()) <= README_WORDS
    assert len(texts.pop("AGENTS.md").splitlines()) <= AGENTS_LINES
    counts = {name: words(text) for name, text in texts.items()}
    assert sum(counts.values()) <= DOCS_WORDS
    assert sum(count for name, count in counts.items() if name not in GENERATED) <= WRITTEN_WORDS


# ---- style
@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", ["mypy", "ruff check .", "ruff format --check ."])
def test_the_checkout_passes(command: str) -> None:
    done = python("-m", *command.split(), cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
