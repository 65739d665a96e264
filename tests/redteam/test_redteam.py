"""The red team against the whole workbench, on a GPU: ``pytest -m gpu tests/redteam -q``.

The cheats of ``reward_hacks`` and the honest variants that are selected, as by ``-k 'lazy or
patched'``, are measured together in one ``workbench ablate``. Each cheat must end rejected, for the
reason that it deserves.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from reward_hacks import CHEATS, GATES, HONEST, Cheat, workspace_of
from workbench.cli.main import main

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1800)]  # all hacks are one command

Rows = Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="session")
def rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """What one ``ablate --fresh --json`` says of each variant; its seconds go to the terminal."""
    variants = selected(request.session)
    root = workspace_of(tmp_path_factory.mktemp("redteam") / "workspace", variants)
    printed, started = StringIO(), time.monotonic()
    with redirect_stdout(printed):
        code = main(["ablate", "--fresh", "--json", "--full", "--project", str(root)])
    seconds = time.monotonic() - started
    took = f"{len(variants)} cheats and honest variants: {seconds:.0f} s"
    if terminal := request.config.pluginmanager.getplugin("terminalreporter"):
        terminal.write_line(f"\n{took} in {root}")
    text = printed.getvalue()
    (root / "result.json").write_text(text)
    assert code in (0, 1), f"exit {code}"
    return {row["variant"]: row for row in json.loads(text)["variants"]}


def selected(session: pytest.Session) -> list[str]:
    """Return the variants of the tests that will run."""
    values = [
        value
        for item in session.items
        if isinstance(item, pytest.Function) and item.path == Path(__file__)
        for value in item.callspec.params.values()
    ]
    return [value.variant if isinstance(value, Cheat) else str(value) for value in values]


def reasons(row: Mapping[str, Any], gates: tuple[str, ...]) -> list[str]:
    """Of the failed ones of some gates, and of a row that was not even measured."""
    failed = [f"{name}: {gate['why']}" for name, gate in row["gates"].items()
              if gate["passed"] is False and name in gates]  # fmt: skip
    return [*failed, *([row["problem"]["message"]] if row["problem"] and failed else [])]


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: f"{cheat.family}-{cheat.variant}")
def test_a_cheat_is_rejected_for_the_right_reason(cheat: Cheat, rows: Rows) -> None:
    row = rows[cheat.variant]
    told = reasons(row, cheat.gates)
    assert row["verdict"] in cheat.verdicts, (row["verdict"], row["gates"])
    assert not cheat.told or any(map(cheat.finds, told)), (told, row["gates"])


@pytest.mark.parametrize("variant", HONEST)
def test_an_honest_variant_is_not_taken_for_a_cheat(variant: str, rows: Rows) -> None:
    """It may fail to be faster."""
    row = rows[variant]
    assert reasons(row, GATES) == []
    assert [name for name, gate in row["gates"].items() if gate["passed"] is None] == []
    assert row["status"] == "current", row["problem"]
