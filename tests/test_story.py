"""The numbers of docs/story.md are those on record, and lead to where they stand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from benchmarks import facts, lessons, story

from workbench.study.workspace import find_workspace

pytestmark = pytest.mark.slow
PAGE = story.PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def known() -> facts.Evidence:
    return facts.evidence()


def test_its_numbers_hold(known: facts.Evidence) -> None:
    assert list(story.faults(PAGE, known)) == []
    assert len(story.cited(PAGE)) > 100


def test_its_definitions_are_those_of_the_evidence(known: facts.Evidence) -> None:
    written = PAGE.split(story.MARK)[1].strip()
    again = story.definitions(PAGE, known).strip()
    assert written == again, "`python -m benchmarks.story` writes them"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[5][fix11(stagger=1) sessions]", []),
        ("[1.09x][fix5 ratio]", []),
        ("[1.08x][fix5 ratio]", ["it is fix5 ratio at b2h8s512d64, chained: 1.0900"]),
        ("[1.087x][fix5 ratio]", ["it is"]),
        ("[1,541 µs][fix27 time at b2h16s8192d128]", []),
        ("[8.49x to 8.51x][fix4 ratio]", ["it is"]),  # one number a link
        ("[1.40x][fix5 ratio cold]", []),
        ("[1.40x][fix5 ratio back-to-back]", ["it is"]),
        ("[7 µs][fix99 time]", ["nothing that is known"]),
        ("[7 µs][fix4 time at b1]", ["no shape b1"]),
        ("[7 µs][fix5 time at b2h8s512d64-causal]", ["was not timed"]),
        ("[1.1x][sdpa ratio]", ["has no parent"]),
        ("[5 %][fix4 predicted issue_active low]", ["predicts no issue_active"]),
        ("[7][fix4 figure beauty]", ["was not collected"]),
        ("It took 5.14 µs, 12 % or 1.5x", ["'5.14 µs'", "'12 %'", "'1.5x'"]),
        ("64 keys, 128 KB, `5.14 µs` and 2,8,512,64", []),
        ("[29 of 540](trust.md)", []),
        ("[29 of 541](trust.md)", ["541 of"]),
    ],
)
def test_what_does_not_hold_is_found(text: str, says: Sequence[str], known: facts.Evidence) -> None:
    found = list(story.faults(text, known))
    assert len(found) == len(says)
    for fault, said in zip(found, says, strict=True):
        assert said in fault


def anchors(path: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_its_links_and_pictures_lead_somewhere() -> None:
    links = re.findall(r"^\[[^\]]+\]: (\S+)#(\S+) \"", PAGE, re.MULTILINE)
    links += re.findall(r"\]\(([\w./]+)#([\w-]+)\)", PAGE)
    assert len(links) > 100
    for path, anchor in set(links):
        assert anchor in anchors(story.PAGE.parent / path), f"{path}#{anchor}"
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', PAGE)
    assert len(pictures) == 6
    assert all((story.PAGE.parent / each).is_file() for each in pictures)


def test_it_is_read_in_a_quarter_of_an_hour() -> None:
    told = re.sub(r"(?m)^\|.*$", "", PAGE.split(story.MARK)[0])
    told = re.sub(r"(?s)<picture>.*?</picture>", "", told)
    assert len(re.sub(r"\]\[[^\]]*\]|\]\([^)]*\)", "]", told).split()) <= 2500


def test_the_reference_that_it_names_is_the_fastest_everywhere(known: facts.Evidence) -> None:
    across = known.judged.across
    assert across is not None
    fastest = Counter(each.fastest for each in across.shapes)
    assert tuple(name for name, _ in fastest.most_common()) == facts.FASTEST
    assert min(fastest.values()) == 1  # "but once"
    assert across.variant == facts.LAST


def test_the_lessons_are_those_of_the_evidence() -> None:
    written = lessons.PAGE.read_text(encoding="utf-8")
    again = lessons.page(find_workspace(lessons.ROOT))
    assert written == again, "`python -m benchmarks.lessons` writes it"
