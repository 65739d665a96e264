"""What a mixture of experts costs piece by piece: the forms can be made of the sources as they are,
and compile; the page has the record.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from benchmarks import least_experts, multiplying, sizes

from workbench import cuda
from workbench.judge.shapes import geometric_mean
from workbench.study.workspace import find_workspace, load_module
from workspaces import ROOT

ASKED = 1.3  # times the fastest reference, in the geometric mean over the tokens
FORMS = [(target, form) for target in least_experts.TARGETS for form in target.forms]


@pytest.mark.parametrize(
    ("target", "form"), FORMS, ids=[f"{target.tokens} {form.name}" for target, form in FORMS]
)
def test_every_form_can_be_made_and_compiled(
    target: least_experts.Target, form: Any, tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    folder = least_experts.made(target, form, tmp_path)
    sources = [*least_experts.FOLDER.glob("*.cu*"), *least_experts.FOLDER.glob("*.py")]
    changed = any((folder / path.name).read_bytes() != path.read_bytes() for path in sources)
    assert changed == bool(form.edits)
    module: Any = load_module(folder / f"{target.variant}.py", "least_form")
    cuda.take_declared()
    if target.variant == "fix20":
        kernels = [module.products]
    elif target.variant == "fix24":
        kernels = [module.kernels[8, 2048, 768]]
    else:
        kernels = [module.kernels[8, 2048, 768][1]]
    for kernel in kernels:
        report, _ = kernel.compile("sm_90a")
        assert not any(one.spill_store_bytes for one in report.kernels)


def test_the_page_has_what_is_on_record() -> None:
    if not least_experts.RECORD.exists():
        pytest.skip("not recorded yet")
    block = least_experts.BLOCK.search(least_experts.PAGE.read_text("utf-8"))
    assert block is not None
    assert block[0] == f"<!-- least -->\n{least_experts.page_tables()}\n<!-- /least -->"
    shapes = json.loads(least_experts.RECORD.read_text("utf-8"))["shapes"]
    assert len(shapes) == len(least_experts.MODELS) * len(least_experts.TARGETS)
    for one in shapes:
        times = {name: median(rounds) for name, rounds in one["microseconds"].items()}
        assert min(times.values()) > 0.5 * times[least_experts.ORIGINAL]


def test_what_the_means_would_be_without_the_work_is_as_told() -> None:
    """On the page of the experts: with what the forms gain that leave out the most of both."""
    workspace, page = find_workspace(ROOT), sizes.EXPERTS
    shapes = json.loads(least_experts.RECORD.read_text("utf-8"))["shapes"]
    forms = {(one["model"], one["tokens"]): one["microseconds"] for one in shapes}
    means, products = {}, multiplying.recorded()
    for model in least_experts.MODELS:
        over = sizes.over(workspace, page, model)
        assert over is not None
        (ours,) = (line for line in over.lines if line.variant == page.variant)
        gains = []
        for point in ours.points:
            if known := forms.get((model, int(point.size))):
                without = known.get("neither of these") or known["nothing multiplied"]
                gains.append(median(known[least_experts.ORIGINAL]) / median(without))
            else:
                gains.append(point.time.value / products[point.shape].time)
        gained = geometric_mean(gains)
        assert ours.mean is not None
        assert gained is not None
        means[model] = ours.mean, ours.mean * gained
    told = " ".join(page.path.read_text("utf-8").split())
    (_, first), (mean, second) = means["deepseek"], means["qwen3"]
    assert f"the means {first:.3f}x (deepseek) and {second:.3f}x (qwen3)" in told
    assert first < ASKED < second
    share = math.log(ASKED / mean) / math.log(second / mean)
    assert f"for qwen3 it takes {100 * share:.0f} % of what leaving it out would gain" in told


def test_a_table_has_a_form_a_row_and_what_it_gains() -> None:
    shapes = [
        {"model": "qwen3", "tokens": 1, "microseconds": {"original": [20.0, 22.0, 21.0]}},
        {
            "model": "qwen3",
            "tokens": 16,
            "microseconds": {"original": [180.0], "nothing multiplied": [150.0]},
        },
        {"model": "deepseek", "tokens": 1, "microseconds": {"original": [1.0]}},
    ]
    assert list(least_experts.lines("qwen3", shapes)) == [
        "| qwen3 | 1 | 16 |",
        "| --- | --: | --: |",
        "| original | 21.0 µs | 180 µs |",
        "| nothing multiplied | — | 150 µs 1.200x |",
    ]
