"""The numbers of docs/story.md are those of the recorded evidence."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from benchmarks import story

pytestmark = pytest.mark.slow
PAGE = story.PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def known() -> story.Evidence:
    return story.evidence()


def test_its_numbers_hold(known: story.Evidence) -> None:
    assert list(story.faults(PAGE, known)) == []
    assert len(story.NAMED.findall(PAGE)) > 100


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("5<!--fix11[stagger=1] sessions-->", []),
        ("1.09x<!--fix5 ratio-->", []),
        ("1.08x<!--fix5 ratio-->", ["it is 1.09"]),
        ("1.087x<!--fix5\nratio-->", ["it is 1.09"]),
        ("1,541 µs<!--fix27 time at b2h16s8192d128-->", []),
        ("1.40x<!--fix5 ratio cold-->", []),
        ("1.40x<!--fix5 ratio back-to-back-->", ["it is 1."]),
        ("7 µs<!--fix99 time-->", ["not recorded"]),
        ("7 µs<!--fix4 time at b1-->", ["not recorded"]),
        ("7 µs<!--fix5 time at b2h8s512d64-causal-->", ["not recorded"]),
        ("1.1x<!--sdpa ratio-->", ["not recorded"]),
        ("5 %<!--fix4 predicted issue_active low-->", ["not recorded"]),
        ("7<!--fix4 figure beauty-->", ["not recorded"]),
        ("It took 5.14 µs, 12 % or 1.5x", ["'5.14 µs'", "'12 %'", "'1.5x'"]),
        ("64 keys, 128 KB, `5.14 µs` and 2,8,512,64", []),
        ("[29 of 540](trust.md)", []),
        ("[29 of 541](trust.md)", ["541 of"]),
    ],
)
def test_what_does_not_hold_is_found(text: str, says: Sequence[str], known: story.Evidence) -> None:
    found = list(story.faults(text, known))
    assert len(found) == len(says)
    for fault, said in zip(found, says, strict=True):
        assert said in fault


def test_its_pictures_are_there() -> None:
    pictures = re.findall(r'(?:src|srcset)="([^"]+)"', PAGE)
    assert len(pictures) == 9
    assert all((story.PAGE.parent / each).is_file() for each in pictures)
