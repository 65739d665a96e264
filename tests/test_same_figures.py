"""The JSON of the verbs on the recorded evidence holds every figure that it held before.

``recorded/figures.json.zst`` is command to output, printed when figures last changed on purpose.
New keys may come; none goes or changes without a line in docs/changelog.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import zstandard

from workbench.cli import main

ROOT = Path(__file__).parents[1]
COMMANDS = (
    "ablate --all-shapes --json",
    "diff fix4 fix5 --json",
    "diff fix11 fix12 --json",
    "show fix5 --json",
    "show fix15 --json",
    "show sdpa --json",
)

GONE = ("adopted",)


@cache
def recorded() -> dict[str, Any]:
    packed = (ROOT / "tests" / "recorded" / "figures.json.zst").read_bytes()
    found: dict[str, Any] = json.loads(zstandard.ZstdDecompressor().decompress(packed))
    return found


def names(listed: Any) -> list[str]:
    """Of the variants in a list of such, each but once; of anything else none."""
    rows = listed if isinstance(listed, list) else []
    found = [row["variant"] for row in rows if isinstance(row, dict) and "variant" in row]
    return found if len(set(found)) == len(found) else []


def differences(before: Any, now: Any, where: str = "") -> Iterator[str]:
    """Places where a value of before is missing or another; lists must be of one length, but for
    those of variants, where others may come.
    """
    if isinstance(before, dict) and isinstance(now, dict):
        for key, value in before.items():
            if key in now:
                yield from differences(value, now[key], f"{where}.{key}")
            elif key not in GONE:
                yield f"{where}.{key} is gone"
    elif names(before) and set(names(before)) <= set(names(now)):
        by_name = dict(zip(names(now), now, strict=True))
        for one in before:
            yield from differences(one, by_name[one["variant"]], f"{where}[{one['variant']}]")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, (one, other) in enumerate(zip(before, now, strict=True)):
            yield from differences(one, other, f"{where}[{index}]")
    elif before != now:
        yield f"{where} was {before!r:.80}, is {now!r:.80}"


def test_differences_are_seen() -> None:
    before = {"a": [1, {"b": 2.5}], "c": None}
    assert not list(differences(before, {"a": [1, {"b": 2.5, "new": 1}], "c": None}))
    assert list(differences(before, {"a": [1, {"b": 2.6}], "c": None})) == [
        ".a[1].b was 2.5, is 2.6"
    ]
    assert list(differences(before, {"a": [1]})) == [
        ".a was [1, {'b': 2.5}], is [1]",
        ".c is gone",
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_json_of_a_verb_holds_the_same_figures(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(command.split()) == 0
    now = json.loads(capsys.readouterr().out)
    found = differences(recorded()[command], now)
    assert list(found) == []
