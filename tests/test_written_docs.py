"""Pages and tables that a script writes are those that it writes now."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from benchmarks import between, controls, lessons, models, reference, sizes
from benchmarks.pages import with_part


@pytest.mark.parametrize(
    "script",
    [
        reference,
        lessons,
        between,
        pytest.param(controls, marks=pytest.mark.slow),
        pytest.param(models, marks=pytest.mark.slow),
        pytest.param(sizes, marks=pytest.mark.slow),
    ],
    ids=lambda script: script.__name__,
)
def test_a_script_writes_what_stands_in_its_files(script: ModuleType) -> None:
    made: dict[Path, str] = script.written()
    assert made
    for path, text in made.items():
        assert path.read_text("utf-8") == text, f"`python -m {script.__name__}` writes it"


def test_a_part_of_a_page_is_written_again() -> None:
    page = "head\n<!-- a: b -->\nold\n<!-- /a -->\nfoot\n"
    assert with_part(page, "a: b", "new\n") == page.replace("old", "new")
