"""This repository's studies: they read anywhere, their kernels compile, their reports render."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from answers import Capsys, json_of, python
from workbench import cuda
from workbench.app.ablate import plan
from workbench.app.check import CheckRow
from workbench.app.target import check_figures
from workbench.cli.check import checks
from workbench.cli.main import main
from workbench.cuda.compiler import package_version
from workbench.errors import UsageError
from workbench.evidence.store import EvidenceFolder
from workbench.load import load
from workbench.render import markdown
from workbench.run.worker import job_worker as worker_main
from workbench.study.values import Shape, Work
from workbench.study.workspace import find_workspace
from workspaces import ROOT, step

STUDIES = ("attention", "attention_served", "moe", "softmax", "transpose")
NEW = STUDIES[1:]
WITH_TRITON = ("moe", "softmax")
MOST_EVIDENCE = 25e6  # bytes, of all studies together


def test_the_workspace_has_them_and_the_default_stays() -> None:
    workspace = find_workspace(ROOT)
    assert workspace.studies() == list(STUDIES)
    assert workspace.study().name == "attention"


@pytest.mark.parametrize("name", NEW)
def test_one_is_read_without_torch_and_without_triton(name: str) -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['triton'] = None\n"
        "from pathlib import Path; from workbench.study.workspace import find_workspace\n"
        f"study = find_workspace(Path({str(ROOT)!r})).study({name!r})\n"
        "print(*(study.work(shape).bytes for shape in study.shapes))"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert all(float(amount) > 0 for amount in done.stdout.split())


@pytest.mark.parametrize("name", NEW)
def test_every_step_says_what_was_expected_of_it(name: str) -> None:
    ladder = find_workspace(ROOT).study(name).ladder
    check_figures(ladder)
    first, *steps = ladder.steps
    assert first.variant == "baseline"
    for each in steps:
        assert each.rationale
        assert each.bottleneck or each.chooses
        assert any(prediction.figure == "time" for prediction in each.predictions)


def test_work_is_what_one_call_needs() -> None:
    def work(study: str, shape: str) -> Work:
        return find_workspace(ROOT).study(study).work(shape)

    assert work("softmax", "4096x8192") == Work(3 * 2**25 - 2**12, 2 * 2 * 2**25, "float16")
    assert work("transpose", "8192x8192") == Work(0, 2 * 4 * 2**26, "float32")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "names"),
    [("transpose", ()), ("softmax", ("cluster",)), ("moe", ("baseline", "fix5[trim=1]", "wgmma"))],
)
def test_kernels_compile_without_warnings_and_spills(
    study: str, names: tuple[str, ...], capsys: Capsys
) -> None:
    builds = json_of(capsys, "build", *names, "--study", study, project=ROOT)["builds"]
    compiled = {build["variant"] for build in builds if build["kernels"]}
    steps = {each.variant for each in find_workspace(ROOT).study(study).ladder.steps}
    assert compiled >= (set(names) or steps)
    for build in builds:
        assert not build["warnings"]
        assert not build["error"]
        assert all(not kernel["spill_store_bytes"] for kernel in build["kernels"])


@pytest.mark.parametrize(("study", "checked"), [("softmax", 100), ("moe", 20)])
def test_triton_variants_are_correct_in_its_interpreter(study: str, checked: int) -> None:
    for name in ("torch", "triton"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    script = Path(__file__).parents[1] / "triton_interpreted.py"
    done = python(script, ROOT / "kernels" / study, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert not [line for line in told if line.startswith("WRONG")]
    assert sum(line.startswith("correct") for line in told) > checked


@pytest.mark.parametrize("routing", ["balanced", "zipf", "one", "few"])
def test_loads_of_experts_are_what_tokens_can_choose(routing: str) -> None:
    study = find_workspace(ROOT).study("moe")
    for shape in study.shapes.values():
        loads = study.module.loads(routing, shape.E, shape.k, shape.T)
        assert sum(loads) == shape.k * shape.T
        assert 0 <= loads[-1] <= loads[0] <= shape.T
        assert loads == sorted(loads, reverse=True)
        if routing == "one":
            assert loads[0] == shape.T
        if routing == "few":
            assert loads == [shape.T] * shape.k + [0] * (shape.E - shape.k)


def test_balanced_loads_are_as_uneven_as_a_random_choice() -> None:
    """Of 1024 tokens that choose 8 of 128: 64 on average, with a standard deviation of 7.7."""
    loads = find_workspace(ROOT).study("moe").module.loads("balanced", 128, 8, 1024)
    assert np.std(loads) == pytest.approx(math.sqrt(64 * 15 / 16), rel=0.05)


def test_tokens_go_to_different_experts_in_the_numbers_that_the_work_counts() -> None:
    study = find_workspace(ROOT).study("moe").module
    for routing in ("balanced", "zipf", "one", "few"):
        ids = study._routed(routing, 60, 4, 200, torch.Generator().manual_seed(1))
        assert ids.shape == (200, 4)
        assert all(len(set(row)) == 4 for row in ids.tolist())
        counts = ids.flatten().bincount(minlength=60).sort(descending=True).values
        assert counts.tolist() == study.loads(routing, 60, 4, 200)


def test_weights_of_experts_without_tokens_are_no_work() -> None:
    study = find_workspace(ROOT).study("moe")
    one, many = study.work("qwen3-t1"), study.work("qwen3-t1024")
    expert = 3 * 2048 * 768 * 2
    assert one.bytes == 8 * expert + 2 * 2 * 2048 + 8 * 8
    assert many.bytes == 128 * expert + 2 * 2 * 1024 * 2048 + 8 * 1024 * 8
    assert many.flops == pytest.approx(2 * 1024 * 8 * 3 * 2048 * 768, rel=1e-2)


def test_adversarial_rows_always_have_a_softmax() -> None:
    study = find_workspace(ROOT).study("softmax")
    for cols in (1, 2, 3, 1000):
        for kind in study.module.adversarial.values():
            generator = torch.Generator().manual_seed(7)
            shape = Shape(rows=4, cols=cols, dtype="float16")
            inputs = kind(study.module.inputs(shape, generator), generator)
            rows = study.module.reference(**inputs).sum(-1)
            torch.testing.assert_close(rows, torch.ones_like(rows))


def test_a_study_may_allow_no_error_at_all() -> None:
    def checked(error: float | None) -> CheckRow:
        return CheckRow("tma", "odd", "correct", 0.0, max_abs=error, relative=error)

    assert [checked(error).used for error in (None, 0.0, 1e-9)] == [None, 0.0, math.inf]
    for error in (None, 0.0):
        assert "tma" in markdown.table(checks([checked(error)]))


def test_a_copy_that_is_called_transposed_is_no_transpose() -> None:
    def flat(x: Any) -> Any:
        return x.t().clone()

    x = torch.arange(15.0).reshape(3, 5)
    assert torch.equal(flat(x), x.t())
    worker = object.__new__(worker_main.JobWorker)
    worker.study = find_workspace(ROOT).study("transpose").module
    worker.job = cast(Any, SimpleNamespace(references=("copy",)))
    with pytest.raises(UsageError, match=re.escape("strides (1, 5)")):
        worker.in_layout("flat", flat)(x=x)
    with pytest.raises(UsageError, match=re.escape("strides (1, 5)")):
        worker.in_layout("flat", lambda x: {"out": flat(x)})(x=x)
    assert worker.in_layout("copy", flat) is flat
    assert torch.equal(worker.in_layout("tma", lambda x: x.t().contiguous())(x=x), x.t())
    worker.study = cast(Any, SimpleNamespace())
    assert worker.in_layout("flat", flat) is flat


@pytest.mark.parametrize(
    ("shape", "always"),
    [
        (Shape(n=1), True),
        (Shape(n=1, captured=False), False),
        (Shape(n=1, profiled=False), True),
        (Shape(n=1, profiled=False, captured=False), True),
    ],
)
def test_what_is_only_checked_is_checked_at_any_shape(shape: Shape, always: bool) -> None:
    assert shape.always_checked is always


def test_a_tensor_map_says_what_box_it_takes() -> None:
    with pytest.raises(UsageError, match="only float32, float16 and bfloat16"):
        cuda.tensor_map(torch.zeros(8, 8, dtype=torch.float64), (8, 16))
    for dtype, wrong, wide in ((torch.float32, 64, 32), (torch.float16, 32, 64)):
        with pytest.raises(UsageError) as caught:
            cuda.tensor_map(torch.zeros(8, 64, dtype=dtype), (8, wrong))
        assert str(caught.value.hint).endswith(f"the last of them {wide}")
    with pytest.raises(UsageError) as caught:
        cuda.tensor_map(torch.zeros(8, 64), (8, 6), swizzled=False)
    assert str(caught.value.hint).endswith("the last of them a multiple of 4")


def test_all_evidence_together_stays_small() -> None:
    files = [path for path in ROOT.glob("ablations/*/evidence/**/*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_EVIDENCE


@pytest.mark.slow
@pytest.mark.parametrize("name", NEW)
def test_evidence_is_current_and_shown(name: str, capsys: Capsys) -> None:
    found = cast(Any, json_of(capsys, "ablate", "--study", name, project=ROOT))
    assert found["study"] == name


def test_steps_are_profiled_where_they_are_judged(tmp_path: Path) -> None:
    """At a shape that is not captured by itself, those alone, and their parents."""
    study = find_workspace(ROOT).study("softmax")
    names, folder = list(study.variants), EvidenceFolder(tmp_path / "evidence" / "gpu")
    every = load(study, folder, dict.fromkeys(["32x131072-bf16", "8192x1024", "4096x8192"], names))
    nothing = every["32x131072-bf16"]
    assert plan(study, nothing, names, fresh=False).captured == ("online", "split")
    assert plan(study, nothing, names, fresh=False, capture=names).captured == tuple(names)
    with_one = plan(study, nothing, names, fresh=False, capture=["fused"])
    assert set(with_one.captured) == {"online", "split", "fused"}
    assert plan(study, every["8192x1024"], names, fresh=False).captured == ()
    assert plan(study, every["4096x8192"], names, fresh=False).captured == tuple(names)


@pytest.mark.gpu
@pytest.mark.parametrize("name", NEW)
def test_every_variant_is_correct_on_this_gpu(name: str, tmp_path: Path, capsys: Capsys) -> None:
    if name in WITH_TRITON:
        pytest.importorskip("triton", reason="triton is not installed")
    shutil.copytree(ROOT / "kernels" / name, tmp_path / "kernels" / name)
    ladder = tmp_path / "ablations" / name / "ablation.toml"
    ladder.parent.mkdir(parents=True)
    text = (ROOT / "ablations" / name / "ablation.toml").read_text()
    if name == "transpose":  # the right elements in the wrong order in memory
        flat = tmp_path / "kernels" / name / "flat.py"
        flat.write_text("def run(x):\n    return x.t().clone()\n")
        text = text.replace("[[reference]]", step("flat") + "[[reference]]", 1)
    ladder.write_text(text)
    (tmp_path / "workbench.toml").write_text("")
    variants = find_workspace(ROOT).study(name).variants
    needs = {each: variant.needs for each, variant in variants.items() if variant.needs}
    missing = {each for each, package in needs.items() if not package_version(package)}
    code = main(["check", "--json", "--project", str(tmp_path)])
    checks = json.loads(capsys.readouterr().out)["checks"]
    for check in checks:
        if check["variant"] == "flat":
            assert check["status"] in ("failed", "not collected")
        else:
            assert check["status"] in ("correct", "unsupported", "not collected"), check
    correct = {check["variant"] for check in checks if check["status"] == "correct"}
    assert correct == set(variants) - missing
    assert missing or code == (name == "transpose")
