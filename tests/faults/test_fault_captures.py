"""Captures of anyone: whatever the bytes are, they are read or refused, within bounds."""

from __future__ import annotations

import json
import math
import os
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from answers import Capsys, python
from property_cases import examples
from workbench import bounds
from workbench.cli.main import main
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


HANGS = """
import sys
from pathlib import Path
from workbench import bounds
from workbench.ncu import reader
bounds.REPORT_SECONDS = 0.2
with reader.limited(Path(sys.argv[1])):
    pass
print("in time", flush=True)
with reader.limited(Path(sys.argv[1])):
    sum(range(10**10))  # native, and it lets no other Python run
"""


def test_what_ncu_report_comes_to_no_end_with_is_a_bad_capture() -> None:
    done = python("-c", HANGS, "a\x1b.ncu-rep")
    assert (done.returncode, done.stdout) == (4, "in time\n")
    assert done.stderr.startswith("error: a\\x1b.ncu-rep is damaged: ncu_report comes to no end")
    assert "hint:" in done.stderr


PROBE = """
import os, random, sys
from pathlib import Path
from workbench.cli.main import main
from workbench import bounds
from workbench.ncu import reader
bounds.REPORT_SECONDS = 4.0
import ncu_report, pandas
source, folder, first, count = Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:])
whole = source.read_bytes()
for seed in range(first, first + count):
    pick = random.Random(seed)
    data = bytearray(whole)
    kind = pick.randrange(4)
    at = pick.randrange(len(data))
    if kind == 0:
        data[at] ^= 1 << pick.randrange(8)
    elif kind == 1:
        del data[at:]
    elif kind == 2:
        data[at : at + pick.randrange(1, 64)] = pick.randbytes(pick.randrange(64))
    else:
        data[pick.randrange(min(len(data), 4096))] = pick.randrange(256)
    path = folder / f"mutant{seed % 2}{source.suffix}"
    path.write_bytes(data)
    child = os.fork()  # ncu_report never gives memory back
    if not child:
        os._exit(main(["show", str(path), "--json"]))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 2, 4), (seed, code)
    print("case", seed, code, file=sys.stderr)
"""
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


CRASHES = """
import ctypes, sys
from pathlib import Path
from workbench.ncu.reader import limited
with limited(Path(sys.argv[1])):
    pass
with limited(Path(sys.argv[1])):
    ctypes.string_at(0)
"""


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


def bomb(gigabytes: int) -> bytes:
    """So many zeros, compressed."""
    packer = zstandard.ZstdCompressor(level=3).compressobj()
    parts = [packer.compress(bytes(1 << 28)) for _ in range(4 * gigabytes)]
    return b"".join([*parts, packer.flush()])


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_a_report_of_zeros_without_end_is_refused(folder: Path, capsys: Capsys) -> None:
    path = folder / "bomb.ncu-repz"
    path.write_bytes(bomb(1))
    before = peak()
    assert main(["show", str(path)]) == 4
    assert "holds more than a thousand times its size" in capsys.readouterr().err
    with pytest.raises(BadCapture, match="thousand times"):
        list(chunks(path))
    assert peak() - before < 1 << 29  # of 1 GiB


def test_tables_of_zeros_without_end_are_no_tables() -> None:
    head = zstandard.ZstdCompressor(level=3).compressobj(size=1 << 30)
    data = b"".join([*(head.compress(bytes(1 << 28)) for _ in range(4)), head.flush()])
    assert zstandard.frame_content_size(data) == 1 << 30
    before = peak()
    with pytest.raises(ValueError, match="holds too much"):
        decompressed(data)
    with pytest.raises(ValueError, match="does not say"):
        decompressed(bomb(1))
    assert peak() - before < 1 << 29  # of 1 GiB


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


def test_the_json_of_a_foreign_report_is_json(capsys: Capsys) -> None:
    assert main(["show", os.fspath(SMALL), "--json"]) == 0

    def refuse(name: str) -> None:
        raise AssertionError(name)

    json.loads(capsys.readouterr().out, parse_constant=refuse)
