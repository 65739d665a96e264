"""The red team against the whole workbench, on a GPU: ``pytest -m gpu tests/redteam -q``.

Every cheat of ``reward_hacks`` is measured together with the honest variants in one ``workbench
ablate``, and each must end rejected, for the reason that it deserves.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest

from reward_hacks import CHEATS, GATES, HONEST, WORKSPACE, Cheat, ladder
from workbench.cli.main import main

pytestmark = pytest.mark.gpu

Rows = Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Rows:
    """What one ``ablate --fresh --json`` says of each variant; its seconds go to the terminal."""
    root = tmp_path_factory.mktemp("redteam") / "workspace"
    shutil.copytree(WORKSPACE, root, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "ablations" / "softmax").mkdir(parents=True, exist_ok=True)
    (root / "ablations" / "softmax" / "ablation.toml").write_text(ladder())
    printed, started = StringIO(), time.monotonic()
    with redirect_stdout(printed):
        code = main(["ablate", "--fresh", "--json", "--full", "--project", str(root)])
    seconds = time.monotonic() - started
    took = f"{len(CHEATS)} cheats and {len(HONEST)} honest variants: {seconds:.0f} s"
    if terminal := pytestconfig.pluginmanager.getplugin("terminalreporter"):
        terminal.write_line(f"\n{took} in {root}")
    text = printed.getvalue()
    (root / "result.json").write_text(text)
    assert code in (0, 1), f"exit {code}"
    return {row["variant"]: row for row in json.loads(text)["variants"]}


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
