"""Captures of anyone: whatever the bytes are, they are read or refused, within bounds."""

from __future__ import annotations

import json
import math
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from answers import Capsys, error_of, python, text_of
from faults.programs import program
from property_cases import examples
from workbench import bounds
from workbench.derive.matching import groups
from workbench.errors import BadCapture
from workbench.ncu import reader
from workbench.ncu.report_file import Launch, chunks, read_report
from workbench.study.files import (
    ZSTD_MAGIC,
    compressed,
    decompressed,
    decompressed_pieces,
    most_held,
)
from workspaces import recorded_report

SMALL = recorded_report("b4h16s2048d128-causal", "fix10")
PLAIN = zstandard.ZstdDecompressor().decompress(SMALL.read_bytes())
CHECKED = compressed(PLAIN)


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
        reader.launches(path)
        return b"".join(decompressed_pieces(path))
    except BadCapture:
        return None


HANGS, PROBE, CRASHES = map(program, ("hangs", "probe", "crashes"))


def test_what_ncu_report_comes_to_no_end_with_is_a_bad_capture() -> None:
    done = python("-c", HANGS, "a\x1b.ncu-rep")
    assert (done.returncode, done.stdout) == (4, "in time\n")
    assert done.stderr.startswith("error: a\\x1b.ncu-rep is damaged: ncu_report comes to no end")
    assert "hint:" in done.stderr


BATCH = 4
PLAIN_BATCHES, PACKED_BATCHES = examples(1, many=10), examples(1, many=25)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PLAIN_BATCHES + PACKED_BATCHES))
def test_a_changed_report_of_anyone_is_read_or_refused(number: int, folder: Path) -> None:
    """Nothing promises that it is the same: such a report has neither hash nor checksum."""
    packed = number >= PLAIN_BATCHES
    source = folder / ("whole.ncu-repz" if packed else "whole.ncu-rep")
    source.write_bytes(SMALL.read_bytes() if packed else PLAIN)
    done = python("-c", PROBE, source, folder, 1000 * number, BATCH)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    assert done.stderr.count("case ") == BATCH


@pytest.mark.parametrize("code", [HANGS, CRASHES])
def test_it_ends_though_nobody_hears_why(code: str) -> None:
    line = f'exec {sys.executable} -c "$0" a.ncu-rep 2>&-'
    done = subprocess.run(["sh", "-c", line, code], capture_output=True, timeout=60)
    assert done.returncode == 4


def test_what_crashes_ncu_report_is_a_bad_capture() -> None:
    done = python("-X", "faulthandler", "-c", CRASHES, "a.ncu-rep")
    assert done.returncode == 4
    assert done.stderr.startswith("error: a.ncu-rep is damaged: ncu_report breaks down over it")


@settings(max_examples=examples(20, many=600))
@given(st.integers(0, SMALL.stat().st_size - 1))
def test_a_cut_frame_is_refused_wherever_it_is_cut(folder: Path, at: int) -> None:
    path = folder / "cut.ncu-repz"
    for whole in (CHECKED, SMALL.read_bytes()):
        path.write_bytes(whole[: min(at, len(whole) - 1)])
        with pytest.raises(BadCapture):
            reader.launches(path)


def bomb(**packed: int) -> bytes:
    """A GiB of zeros, compressed."""
    packer = zstandard.ZstdCompressor(level=3).compressobj(**packed)
    return b"".join([*(packer.compress(bytes(1 << 28)) for _ in range(4)), packer.flush()])


@contextmanager
def little_memory() -> Iterator[None]:
    """Less than half of a bomb's GiB is taken."""

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    before = peak()
    yield
    assert peak() - before < 1 << 29


def test_a_report_of_zeros_without_end_is_refused(folder: Path, capsys: Capsys) -> None:
    path = folder / "bomb.ncu-repz"
    path.write_bytes(bomb())
    with little_memory():
        told = error_of(capsys, "show", path, code=4)
        assert "holds more than a thousand times its size" in told
        with pytest.raises(BadCapture, match="thousand times"):
            list(chunks(path))


def test_tables_of_zeros_without_end_are_no_tables() -> None:
    with_its_size, without = bomb(size=1 << 30), bomb()
    assert zstandard.frame_content_size(with_its_size) == 1 << 30
    with little_memory():
        for data, why in ((with_its_size, "holds too much"), (without, "does not say")):
            with pytest.raises(ValueError, match=why):
                decompressed(data)


@pytest.mark.parametrize("size", [0, 1, 1 << 20, 1 << 30, 1 << 40])
def test_no_file_may_hold_more_than_the_bound(size: int) -> None:
    assert bounds.HELD_ALWAYS <= most_held(size) <= bounds.HELD


def test_what_breaks_off_behind_its_beginning_is_a_bad_capture(folder: Path) -> None:
    path = folder / "cut.ncu-repz"
    path.write_bytes(SMALL.read_bytes() + ZSTD_MAGIC + b"\xff" * 30)
    with pytest.raises(BadCapture, match="cannot be decompressed"):
        list(chunks(path))
    with pytest.raises(BadCapture):
        read_report(path)


class Action:
    """A launch whose every metric has the value."""

    def __init__(self, value: float) -> None:
        self._metric = SimpleNamespace(
            has_value=lambda: True, value=lambda: value, unit=lambda: "ns"
        )

    def metric_by_name(self, name: str) -> Any:
        return self._metric


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
    launches = [launch(i, time) for i, time in enumerate(times)]
    made = groups(launches)
    shown = [group.microseconds for group in made]
    known = [time for time in shown if time is not None and math.isfinite(time) and time > 0]
    assert shown[: len(known)] == sorted(known, reverse=True)
    random.Random(len(times)).shuffle(launches)
    assert groups(launches) == made


def test_the_json_of_a_foreign_report_is_json(capsys: Capsys) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    json.loads(text_of(capsys, "show", SMALL, "--json"), parse_constant=refuse)
