"""The keys of JSON: how many `ablate` has, and that the docs explain them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks import reference

from workbench.cli.main import main

TESTS = Path(__file__).parent
DOCS = (TESTS.parent / "docs" / "json.md").read_text()
RECORDS = "".join(reference.records())
MOST = 120
# Objects whose keys are data: regimes, gates, stall reasons, shapes, or what a finding is about.
BY_DATA = ("regimes", "gates", "stalls", "newer", "values", "files")


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


def keys_of(*verb: str) -> set[str]:
    with pytest.MonkeyPatch.context() as patch:
        printed: list[str] = []
        patch.setattr("builtins.print", lambda *text, **_: printed.append(" ".join(map(str, text))))
        arguments = ["--study", "attention", "--json", "--project", str(TESTS / "fixture")]
        assert main([*verb, *arguments]) == 0
    return names(json.loads(next(text for text in printed if text.startswith("{"))))


@pytest.fixture(scope="module")
def found() -> set[str]:
    return keys_of("ablate")


def test_key_names_are_few(found: set[str]) -> None:
    assert 80 < len(found) <= MOST


def unexplained(keys: set[str]) -> set[str]:
    return keys - set(re.findall(r"`([a-z_0-9]+)`", DOCS + RECORDS))


def test_the_docs_explain_every_key(found: set[str]) -> None:
    assert unexplained(found) == set()


@pytest.mark.parametrize("verb", ["show fix9 --source --sass", "advise fix9"])
def test_the_docs_explain_every_key_of_a_variant(verb: str) -> None:
    assert unexplained(keys_of(*verb.split())) == set()


def test_the_links_to_records_lead_to_them() -> None:
    assert set(re.findall(r"reference\.md#(\w+)\)", DOCS)) <= {
        name.lower() for name in re.findall(r"^### `(\w+)`$", RECORDS, re.MULTILINE)
    }
