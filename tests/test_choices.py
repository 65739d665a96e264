"""What a choice of kernels takes where another step's times stand for its own."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch

from workbench import Shape, cuda
from workbench.commands.sizes import Measured
from workbench.commands.target import target_at
from workbench.cuda.launch import Kernel
from workbench.study.shapes import pick_shapes
from workbench.study.workspace import find_workspace, load_module
from workspaces import ROOT

sys.path.append(str(ROOT))  # where the benchmarks are imported from

from benchmarks import reading, sizes

SMS = 132  # of an H200


class Launched(BaseException):
    """In place of a launch: the modules of the study that it is on behalf of."""

    def __init__(self, modules: list[str]) -> None:
        self.modules = modules


def refuse(kernel: Kernel, where: Any) -> NoReturn:
    frame, modules = sys._getframe(1), []
    while frame is not None and frame.f_back is not None:
        if Path(frame.f_code.co_filename).parent == ROOT / "kernels" / "moe":
            modules.append(Path(frame.f_code.co_filename).stem)
        frame = frame.f_back
    raise Launched(modules)


def taken(choice: Any, shape: Shape) -> list[str]:
    """The choice, and from it on which step calls which, for inputs without memory."""
    bf16, tokens, topk = torch.bfloat16, shape.T, shape.k
    experts, hidden, intermediate = shape.E, shape.H, shape.I
    with torch.device("meta"), pytest.raises(Launched) as launched:
        choice.run(
            x=torch.empty(tokens, hidden, dtype=bf16),
            topk_ids=torch.empty(tokens, topk, dtype=torch.int32),
            topk_weights=torch.empty(tokens, topk),
            w13=torch.empty(experts, 2 * intermediate, hidden, dtype=bf16),
            w2=torch.empty(experts, hidden, intermediate, dtype=bf16),
        )
    return launched.value.modules[::-1]


@pytest.mark.parametrize("model", reading.MODELS)
def test_times_stand_for_the_choice_only_where_it_calls_what_was_timed(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Kernel, "__getitem__", refuse)
    monkeypatch.setattr(cuda, "tensor_map", lambda *_, **__: None)
    properties = SimpleNamespace(multi_processor_count=SMS)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    page, workspace = sizes.EXPERTS, find_workspace(ROOT)
    study = workspace.study(page.study)
    choice = load_module(study.folder / f"{page.variant}.py", "choice_taken")
    picked, _ = pick_shapes(study, page.cases[model])
    targets = tuple(target_at(workspace, each) for each in picked)
    (found,) = Measured(targets, page.versions).over()
    lines = {line.variant: line for line in found.lines}
    assert len(found.sizes) == len(sizes.TOKENS.split("|"))
    for name in found.sizes:
        standing = next(version for version in page.versions if lines[version].at(name))
        called = taken(choice, study.shapes[name])
        assert called[0] == page.variant
        assert standing in called, f"{name}: {called}"
