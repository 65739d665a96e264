"""What is measured beside products is in the machine code, in every form."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.ncu.capture import load_capture
from workspaces import ROOT, recorded_index, recorded_report

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


def test_how_busy_the_exponentials_can_be_is_as_told() -> None:
    """A key of a warpgroup is 64 rows, half an instruction of exponentials a scheduler, and 4
    cycles of products where nothing slows them.
    """
    text = (ROOT / "docs" / "attention-notes.md").read_text("utf-8")
    plain = " ".join(text.split())
    rows = dict(re.findall(r"(?m)^\| ([\w, ]+ \| 2) \| (.*) \|$", text))
    alone, slowed, product = map(float, rows["both, and half a conversion | 2"].split(" | "))
    more = float(rows["multiplication | 2"].split(" | ")[0])

    def cycles(extra: float) -> float:
        products = 4 * product / 36
        left = 0.5 - products / (slowed + extra)
        return products + left * (alone + extra)

    assert f"takes {slowed:.2f} cycles of a scheduler and alone {alone:.2f}" in plain
    assert f"Products that take {4 * product / 36:.2f} cycles a key then" in plain
    most, least = 400 / cycles(0), 400 / cycles(more)
    assert f"are {cycles(0):.2f}: the unit would be busy for {most:.0f} % of the time" in plain
    assert f"at the {more:.2f} cycles of a multiplication leaves {least:.0f} %" in plain


def figures_of(shape: str, variant: str) -> Callable[[str], float]:
    range_ = str(recorded_index(shape, variant)["range"])
    metrics = load_capture(recorded_report(shape, variant), range_).metrics
    return lambda metric: float(metrics.query(f"metric == '{metric}'").value.iloc[0])


def test_how_few_cycles_the_products_of_few_wide_keys_take_is_as_told() -> None:
    figure = figures_of("b4h16s256d128", "fix20")
    active, whole = figure("sm__cycles_active.avg"), figure("gpc__cycles_elapsed.max")
    share = figure("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed")
    plain = " ".join((ROOT / "docs" / "attention-notes.md").read_text("utf-8").split())
    assert f"an SM is active for {active:,.0f} cycles" in plain
    assert f"busy for {share:.1f} % of the {whole:,.0f} that the kernel takes" in plain
    assert f"takes, {share / 100 * whole:,.0f}. " in plain


def test_how_busy_they_are_in_the_capture_is_as_told() -> None:
    figure = figures_of("b1h16s16384d64-causal", "fix25")
    exponentials = figure("sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_elapsed")
    products = figure("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed")
    clock = figure("gpc__cycles_elapsed.avg.per_second") / 1e9
    plain = " ".join((ROOT / "docs" / "attention-notes.md").read_text("utf-8").split())
    assert f"the unit is busy for {exponentials:.1f} % of the cycles" in plain
    assert f"the tensor cores for {products:.1f} (65.1" in plain
    assert f"at {clock:.2f} GHz, as much as the account has" in plain
