"""One process of a user measures on a GPU at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from answers import Patch
from remotes import card
from workbench.run.gpu import Gpu, locked


def test_a_card_is_held_by_one_at_a_time(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("WORKBENCH_FOLDER", str(tmp_path / "own"))
    both: Sequence[Gpu] = [card(0), card(1)]
    with locked(both) as one, locked(both) as other:
        assert one is not None
        assert other is not None
        assert {one, other} == set(both)
        patience = iter([True, False])
        with locked(both, lambda: next(patience)) as third:
            assert third is None
    with locked(both) as again:
        assert again is not None
        assert again == both[0]
