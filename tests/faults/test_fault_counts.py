"""A family is as large as the command line says."""

from __future__ import annotations

import pytest

from property_cases import MANY, examples


def test_many_is_many_more(request: pytest.FixtureRequest) -> None:
    many = request.config.getoption("--faults") == "many"
    assert examples(20) == (20 * MANY if many else 20)
    assert examples(20, many=300) == (300 if many else 20)
