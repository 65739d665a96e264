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
    ("name", "exponentials", "multiplications", "conversions"),
    [
        ("exponential", beside.EACH, 0, 0),
        ("multiplication", 0, beside.EACH, 0),
        ("both, and half a conversion", beside.EACH, beside.EACH, beside.EACH // 2),
    ],
)
def test_nothing_that_is_timed_was_removed(
    name: str, exponentials: int, multiplications: int, conversions: int, tmp_path: Path
) -> None:
    kernel = beside.kernels(tmp_path)[name]
    report, code = kernel.compile(beside.ARCH)
    (built,) = report.kernels
    assert not report.warnings
    assert built.spill_store_bytes == 0
    found = counted(instructions_of(bytes(code.code), kernel.name))
    assert found["HGMMA"] == beside.PRODUCTS
    assert found["MUFU.EX2"] == exponentials
    assert found["FFMA"] == multiplications
    assert found["F2FP"] == conversions
