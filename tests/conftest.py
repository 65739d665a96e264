"""Shared fixtures: a fixed terminal, and the gpu ring skipped with its reason."""

from __future__ import annotations

import pytest

import faulty
from workbench.run import machine


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--faults", choices=("few", "many"), default="few", help="cases a property")


def pytest_configure(config: pytest.Config) -> None:
    faulty.configure(many=config.getoption("--faults") == "many")


@pytest.fixture(autouse=True)
def fixed_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if machine.can_measure():
        return
    reason = machine.why_not_measuring().message
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=reason))
