"""What is measured beside products is in the machine code, in every form."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from workspaces import ROOT

sys.path.append(str(ROOT))  # where the benchmarks are imported from

from benchmarks import beside
from benchmarks.least import counted, instructions_of


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("exponential", {"MUFU.EX2": 1.0}),
        ("multiplication", {"FFMA": 1.0}),
        ("both, and half a conversion", {"MUFU.EX2": 1.0, "FFMA": 1.0, "F2FP": 0.5}),
    ],
)
def test_nothing_that_is_timed_was_removed_from_its_loop(
    name: str, has: dict[str, float], tmp_path: Path
) -> None:
    kernel = beside.kernels(tmp_path)[name]
    report, code = kernel.compile(beside.ARCH)
    (built,) = report.kernels
    assert not report.warnings
    assert built.spill_store_bytes == 0
    instructions = instructions_of(bytes(code.code), kernel.name)
    assert counted(instructions)["HGMMA"] == beside.PRODUCTS
    loops = [instructions[to:at] for at, (_, to) in enumerate(instructions) if 0 <= to <= at]
    found = [counted(loop) for loop in loops]
    (timed,) = (one for one in found if not one["HGMMA"] and (one["MUFU.EX2"] or one["FFMA"]))
    each = beside.WHAT[name][1]
    for instruction in ("MUFU.EX2", "FFMA", "F2FP"):
        assert timed[instruction] == has.get(instruction, 0.0) * each
    (multiplying,) = (one for one in found if one["HGMMA"])
    assert multiplying["HGMMA"] == beside.PRODUCTS
