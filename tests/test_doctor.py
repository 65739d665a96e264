"""What doctor reports of ncu's lock, which breaks a measurement."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from workbench.app.doctor import lock_row, works


@pytest.mark.parametrize(("mode", "is_foreign"), [(0o1777, True), (0o777, False)])
def test_the_lock_of_another_user_stops_ncu(
    mode: int, is_foreign: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(mode)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert lock_row().result == "ok", "there is none"
    (tmp_path / "nsight-compute-lock").touch()
    assert lock_row().result == "ok", "it is this user's own"
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    row = lock_row()
    assert (row.result == "fail") == is_foreign
    assert works([row])["measure"] != is_foreign
    if is_foreign:
        assert str(tmp_path / "nsight-compute-lock") in row.found
        assert "TMPDIR" in row.fix
