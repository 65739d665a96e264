"""What doctor says of ncu's lock and of slices of a card, each of which breaks a measurement."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.cli import main
from workbench.commands.doctor import lock_row, works
from workbench.places import opening, workers
from workspaces import GOOD, make


@pytest.mark.parametrize(("mode", "is_foreign"), [(0o1777, True), (0o777, False)])
def test_the_lock_of_another_user_stops_ncu(
    mode: int, is_foreign: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(mode)
    assert lock_row(tmp_path).result == "ok", "there is none"
    (tmp_path / "nsight-compute-lock").touch()
    assert lock_row(tmp_path).result == "ok", "it is this user's own"
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    row = lock_row(tmp_path)
    assert (row.result == "fail") == is_foreign
    assert works([row])["measure"] != is_foreign
    if is_foreign:
        assert str(tmp_path / "nsight-compute-lock") in row.found
        assert "TMPDIR" in row.fix


class Forgetful:
    """A client whose scheduler names no worker, as when one comes between two questions."""

    def run(self, function: Callable[..., Any]) -> dict[str, Any]:
        names = {"tls://192.0.2.2:2": "gpu-1", "tls://192.0.2.2:1": 0}
        return {at: function(dask_worker=SimpleNamespace(name=name)) for at, name in names.items()}

    def scheduler_info(self, *_: int) -> dict[str, Any]:
        return {"workers": {}}


def test_a_worker_says_its_name_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(opening, "client_of", lambda *_: nullcontext(Forgetful()))
    monkeypatch.setattr(workers, "wait_for_workers", lambda *_: None)
    config = '[places.here]\nkind = "local"\n'
    root = make(tmp_path, {"baseline": GOOD}, config=config)
    main(["doctor", "--on", "here", "--json", "--project", str(root)])
    told = json.loads(capsys.readouterr().out)["workers"]
    assert [one["worker"].partition(" ")[0] for one in told] == ["0", "gpu-1"]
