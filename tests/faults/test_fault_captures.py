"""Captures of anyone: whatever the bytes are, they are read or refused, within bounds."""

from __future__ import annotations

import json
import math
import os
import random
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from property_cases import examples
from workbench.cli.main import main
from workbench.derive.matching import groups
from workbench.errors import BadCapture
from workbench.ncu import reader
from workbench.ncu.report_file import Launch, read_report
from workbench.run.recording import kept_report
from workbench.study.files import ZSTD_MAGIC, decompressed_pieces
from workspaces import recorded_report

SMALL = recorded_report("b4h16s2048d128-causal", "fix10")
PLAIN = zstandard.ZstdDecompressor().decompress(SMALL.read_bytes())
CHECKED = kept_report(PLAIN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("captures")


@settings(max_examples=examples(40, many=1200))
@given(st.integers(0, len(CHECKED) - 1), st.integers(1, 255), st.booleans())
def test_a_checksum_finds_every_changed_byte(folder: Path, at: int, change: int, cut: bool) -> None:
    path = folder / "changed.ncu-repz"
    data = bytearray(CHECKED)
    data[at] ^= change
    path.write_bytes(data[:at] if cut else data)
    assert unless_refused(path) in (None, PLAIN)


def unless_refused(path: Path) -> bytes | None:
    """The content; some bits of a frame's header are about memory alone."""
    try:
        reader.open_report(path)
        return b"".join(decompressed_pieces(path))
    except BadCapture:
        return None


@settings(max_examples=examples(20, many=600))
@given(st.integers(0, SMALL.stat().st_size - 1))
def test_a_cut_frame_is_refused_wherever_it_is_cut(folder: Path, at: int) -> None:
    path = folder / "cut.ncu-repz"
    for whole in (CHECKED, SMALL.read_bytes()):
        path.write_bytes(whole[: min(at, len(whole) - 1)])
        with pytest.raises(BadCapture):
            reader.open_report(path)


def test_what_breaks_off_behind_its_beginning_is_a_bad_capture(folder: Path) -> None:
    path = folder / "cut.ncu-repz"
    path.write_bytes(SMALL.read_bytes() + ZSTD_MAGIC + b"\xff" * 30)
    with pytest.raises(BadCapture):
        read_report(path)


class Metric:
    def __init__(self, value: float) -> None:
        self._value = value

    def has_value(self) -> bool:
        return True

    def value(self) -> float:
        return self._value

    def unit(self) -> str:
        return "ns"


class Action:
    def __init__(self, value: float) -> None:
        self._value = value

    def metric_by_name(self, name: str) -> Metric:
        return Metric(self._value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_was_not_collected(value: float) -> None:
    assert reader.metric_value(Action(value), "gpu__time_duration.sum") is None
    assert reader.metric_value(Action(3.0), "gpu__time_duration.sum") == (3.0, "ns")


def launch(index: int, microseconds: float | None) -> Launch:
    return Launch(index, f"k{index}", f"k{index}", "kernel", None, None, microseconds, None, "")


@settings(max_examples=examples(60, many=1000))
@given(st.lists(st.sampled_from([None, math.nan, 1.0, 2.0]) | st.floats(), max_size=8))
@example([math.nan, 2.0, math.nan, 1.0, 3.0])
def test_groups_are_sorted_whatever_their_times_are(times: list[float | None]) -> None:
    made = groups([launch(i, time) for i, time in enumerate(times)])
    shown = [group.microseconds for group in made]
    known = [time for time in shown if time is not None and math.isfinite(time) and time > 0]
    assert shown[: len(known)] == sorted(known, reverse=True)
    order = [g.launches[0].index for g in made]
    shuffled = [launch(i, time) for i, time in enumerate(times)]
    random.Random(len(times)).shuffle(shuffled)
    assert [g.launches[0].index for g in groups(shuffled)] == order


def test_the_json_of_a_foreign_report_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", os.fspath(SMALL), "--json"]) == 0

    def refuse(name: str) -> None:
        raise AssertionError(name)

    json.loads(capsys.readouterr().out, parse_constant=refuse)
