"""The keys of `ablate --json`: how many names there are, and that docs/json.md explains them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from workbench.cli.main import main

TESTS = Path(__file__).parent
MOST = 120
# Objects whose keys are data: regimes, gates, stall reasons, factors, shapes, variants, or what a
# finding of some code is about.
BY_DATA = ("regimes", "gates", "stalls", "stall_microseconds", "factors", "newer", "values")


def names(value: Any, key: str = "") -> set[str]:
    """The keys of all objects that are names of fields."""
    if isinstance(value, list):
        return set().union(*(names(each) for each in value))
    if not isinstance(value, dict):
        return set()
    if key == "shape":  # the rest are the study's parameters
        return {"name"}
    inside = set().union(*(names(each, name) for name, each in value.items()))
    return inside if key in BY_DATA else inside | value.keys()


@pytest.fixture(scope="module")
def found() -> set[str]:
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("builtins.print", lambda *text, **_: printed.append(" ".join(map(str, text))))
        arguments = ["--study", "attention", "--json", "--project", str(TESTS / "fixture")]
        assert main(["ablate", *arguments]) == 0
    return names(json.loads(next(text for text in printed if text.startswith("{"))))


def test_key_names_are_few(found: set[str]) -> None:
    assert 80 < len(found) <= MOST


def test_the_docs_explain_every_key(found: set[str]) -> None:
    text = (TESTS.parent / "docs" / "json.md").read_text()
    explained = set(re.findall(r"`([a-z_]+)`", text.partition("## `workbench diff")[0]))
    assert found - explained == set()
