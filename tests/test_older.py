"""Timings of schema 1 are read as what they were: one process, nothing between neighbours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import UsageError
from workbench.evidence import store
from workbench.evidence.records import Timing
from workbench.words import Regime

ROWS = [("a", "warm", 20.0), ("a", "cold", 30.0), ("b", "warm", 10.0), ("b", "cold", 16.0)]


def old(**changes: Any) -> dict[str, Any]:
    """Two rounds of two variants; the second round stands first."""
    rows = [(name, mode, r, t + r) for r in (1, 0) for name, mode, t in ROWS]
    count = len(rows)
    samples = {
        "variant": [name for name, *_ in rows],
        "mode": [mode for _, mode, *_ in rows],
        "round": [r for *_, r, _ in rows],
        "order": [0] * count,
        "microseconds": [t for *_, t in rows],
        "calls": [25] * count,
        "how": ["graph"] * count,
        "sm_clock_mhz": [1980.0] * count,
        "temperature_c": [41] * (count - 1) + [None],
        "throttled": [True, False] * (count // 2),
    }
    return {
        "schema_version": 1,
        "study": "made",
        "shape": "s",
        "fingerprints": {"a": "x", "b": "y"},
        "samples": {**samples, **changes},
        "provenance": {"date": "2026-01-02T03:04:05Z"},
    }


def written(folder: Path, data: dict[str, Any]) -> Path:
    path = folder / "timings.json"
    path.write_text(json.dumps(data))
    return path


def test_an_older_file_is_one_session_of_one_instance_without_a_chained_time(
    tmp_path: Path,
) -> None:
    found = store.read(written(tmp_path, old()), Timing)
    (session,) = found.sessions
    assert (session.number, session.instances, session.alone) == (1, 1, False)
    assert (session.throttled, session.temperature_c) == (0.5, 41)
    assert {(s.variant, s.regime): s.microseconds for s in session.series} == {
        ("a", Regime.BACK_TO_BACK): (20.0, 21.0),
        ("a", Regime.COLD): (30.0, 31.0),
        ("b", Regime.BACK_TO_BACK): (10.0, 11.0),
        ("b", Regime.COLD): (16.0, 17.0),
    }
    assert not any(s.around or s.mhz or s.twin for s in session.series)
    assert (found.chained, found.nodes, found.stride) == (set(), {}, 1)


def test_what_is_written_again_is_of_todays_schema(tmp_path: Path) -> None:
    found = store.read(written(tmp_path, old()), Timing)
    again = tmp_path / "again.json"
    store.write(again, found)
    assert json.loads(again.read_text())["schema_version"] == 2
    assert store.read(again, Timing) == found


def test_what_is_wrong_in_an_older_file_is_named_as_it_stands_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'samples\.microseconds\[7\]' must be a whole number"):
        store.read(written(tmp_path, old(microseconds=[1.0] * 7 + [None])), Timing)
    with pytest.raises(UsageError, match="'samples' has columns of different lengths"):
        store.read(written(tmp_path, old(round=[])), Timing)
