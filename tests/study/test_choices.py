"""What a choice of kernels takes, without a GPU: where times of another step stand for its own, and
where docs/studies.md says so.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch
from tools import sizes

from answers import Patch
from workbench import cuda
from workbench.cuda.launch import Kernel
from workbench.study.values import Shape
from workbench.study.workspace import find_workspace, load_module
from workspaces import ROOT

SMS = 132  # of an H100 and an H200
KERNELS = ROOT / "kernels"
NOTES = (ROOT / "docs" / "studies.md").read_text()
ROWS = re.findall(r"(?m)^\| (\d+), (\d+) \|.*\| `(fix\d+)` \|$", NOTES)


class Launched(BaseException):
    """In place of a launch: the modules of the study that it is on behalf of."""

    def __init__(self, modules: list[str]) -> None:
        self.modules = modules


def refuse(kernel: Kernel, where: Any) -> NoReturn:
    frame, modules = sys._getframe(1), []
    while frame is not None and frame.f_back is not None:
        if Path(frame.f_code.co_filename).parent.parent == KERNELS:
            modules.append(Path(frame.f_code.co_filename).stem)
        frame = frame.f_back
    raise Launched(modules)


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Kernel, "__getitem__", refuse)
    monkeypatch.setattr(cuda, "tensor_map", lambda *_, **__: None)
    properties = SimpleNamespace(multi_processor_count=SMS)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)


def taken(choice: Any, inputs: dict[str, Any]) -> list[str]:
    """The choice, and from it on which step calls which, for inputs without memory."""
    with torch.device("meta"), pytest.raises(Launched) as launched:
        choice.run(**inputs)
    return launched.value.modules[::-1]


def experts(shape: Shape) -> dict[str, torch.Tensor]:
    bf16, tokens, topk = torch.bfloat16, shape.T, shape.k
    experts, hidden, intermediate = shape.E, shape.H, shape.I
    with torch.device("meta"):
        return {
            "x": torch.empty(tokens, hidden, dtype=bf16),
            "topk_ids": torch.empty(tokens, topk, dtype=torch.int32),
            "topk_weights": torch.empty(tokens, topk),
            "w13": torch.empty(experts, 2 * intermediate, hidden, dtype=bf16),
            "w2": torch.empty(experts, hidden, intermediate, dtype=bf16),
        }


def attention(heads: int, keys: int) -> list[str]:
    """What the last dispatcher of attention takes at head dimension 64."""
    choice = sizes.dispatcher(find_workspace(ROOT), "attention")
    module = load_module(KERNELS / "attention" / f"{choice}.py", f"choice_{choice}")
    q = torch.empty(1, heads, keys, 64, dtype=torch.float16, device="meta")
    called = taken(module, {"q": q, "k": q, "v": q, "causal": False})
    assert called[0] == choice
    return called[1:]


@pytest.mark.slow
@pytest.mark.parametrize("model", sizes.MODELS)
def test_times_stand_for_the_choice_only_where_it_calls_what_was_timed(model: str) -> None:
    workspace = find_workspace(ROOT)
    study, last = workspace.study("moe"), sizes.dispatcher(workspace, "moe")
    choice = load_module(study.folder / f"{last}.py", "choice_taken")
    found = sizes.over_tokens(workspace, model)
    assert len(found) == len(sizes.TOKENS.split("|"))
    for timed in found.values():
        called = taken(choice, experts(study.shapes[timed.point.shape]))
        assert called[0] == last
        assert timed.version in called, f"{timed.point.shape}: {called}"


@pytest.mark.parametrize(("heads", "keys", "kernel"), ROWS)
def test_few_keys_go_to_the_kernel_in_the_notes(heads: str, keys: str, kernel: str) -> None:
    assert attention(int(heads), int(keys))[0] == kernel


def test_the_notes_have_rows_on_both_sides_of_every_bound() -> None:
    assert len(ROWS) == 13
    assert {kernel for *_, kernel in ROWS} == {"fix22", "fix17", "fix16"}


@pytest.mark.parametrize(
    ("heads", "keys", "kernel"), [(64, 256, "fix28"), (64, 512, "fix18"), (16, 512, "fix28")]
)
def test_more_keys_go_to_kernels_for_more(heads: int, keys: int, kernel: str) -> None:
    assert attention(heads, keys)[0] == kernel
