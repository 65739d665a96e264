"""What a trial call returns, on its way to the process that compares."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from answers import Patch
from workbench.run.process import Worker
from workbench.run.protocol import TrialJob
from workbench.run.worker.checking import SharedMemory
from workbench.run.worker.device import on_cpu
from workbench.run.worker.output import Outputs, copies, tensors_of
from workbench.run.worker.trial_worker import Returned, shown, taken
from workbench.words import Inputs

NAN = float("nan")


def both(run: Callable[..., Any], inputs: Inputs) -> tuple[Any, Inputs, Any, Inputs]:
    """What a call returns and leaves in its inputs, here and where it was taken."""
    memory, here, there = SharedMemory(), copies(inputs), copies(inputs)
    with on_cpu():
        handed = memory.put(Outputs(tensors_of(inputs), frozenset()))
        out = run(**here)
        message = msgspec.json.encode(shown(out, here, handed, memory))
        return out, here, taken(msgspec.json.decode(message, type=Returned), memory, there), there


@pytest.mark.parametrize(
    "run",
    [
        lambda x, y: x + y,
        lambda x, y: (x + y, y.t(), x[:, :0]),
        lambda x, y: {"sum": x + y, "least": torch.minimum(x, y).half()},
        lambda x, y: x.add_(y),
        lambda x, y: (x.mul_(2)[1:, ::2], y.view(torch.int32), y.sum()),
        lambda x, y: (torch.full_like(x, NAN), y / 0),
    ],
)
def test_results_are_taken_as_they_were_shown(run: Callable[..., Any]) -> None:
    """With bits and memory: a result in an input's is in that of the input on the other side."""
    inputs = {"x": torch.randn(4, 6), "y": torch.randn(6, 4).t(), "n": 3}
    out, here, result, there = both(lambda n, **given: run(**given), inputs)
    assert type(result) is type(out)
    for mine, its in zip(flat(out) + flat(here), flat(result) + flat(there), strict=True):
        assert (mine.shape, mine.dtype) == (its.shape, its.dtype)
        assert torch.equal(*(one.contiguous().view(-1).view(torch.uint8) for one in (mine, its)))
    assert owners(out, here) == owners(result, there)


def flat(out: Any) -> list[torch.Tensor]:
    parts = out.values() if isinstance(out, dict) else out if isinstance(out, tuple) else [out]
    return [part for part in parts if isinstance(part, torch.Tensor)]


def owners(out: Any, inputs: Inputs) -> list[tuple[str, int]]:
    """The input in whose memory each result lies, and where."""
    return [
        (name, tensor.data_ptr() - value.data_ptr())
        for tensor in flat(out)
        if tensor.numel()
        for name, value in tensors_of(inputs).items()
        if tensor.untyped_storage().data_ptr() == value.untyped_storage().data_ptr()
    ]


@pytest.mark.parametrize("out", [None, 3, (), [], "text"])
def test_what_is_no_tensor_is_told_by_its_type(out: object) -> None:
    _, _, result, _ = both(lambda **given: out, {"x": torch.ones(3)})
    assert type(result).__name__ == type(out).__name__


def test_who_tells_of_other_memory_than_there_is_shows_nothing() -> None:
    """Also of an input's, whose bytes would be read behind its end."""
    memory, inputs = SharedMemory(), {"x": torch.ones(8)}
    handed = memory.put(Outputs(inputs, frozenset()))
    told = msgspec.to_builtins(shown(inputs["x"][2:], inputs, handed, memory))
    for layout in ({"shape": [1 << 40]}, {"strides": [1 << 30]}, {"dtype": "load"}, {"name": "y"}):
        view = {**told["views"][0], "layout": told["views"][0]["layout"] | layout}
        with pytest.raises((RuntimeError, TypeError, KeyError)):
            taken(msgspec.convert(told | {"views": [view]}, Returned), memory, dict(inputs))


def test_memory_is_kept_for_the_next_call_on_the_cpu(tmp_path: Path, monkeypatch: Patch) -> None:
    """But for what its user has set."""
    started: list[dict[str, str]] = []
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "7")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, env, **__: started.append(env))
    for device in ("cpu", "cuda"):
        names: Any = {"study": "s", "baseline": "b", "called": "b"}
        Worker(tmp_path, TrialJob(**names, references=(), shapes=(), device=device))
    here, on_gpu = started
    assert (here["MALLOC_MMAP_MAX_"], here["MALLOC_TRIM_THRESHOLD_"]) == ("0", "7")
    assert "MALLOC_MMAP_MAX_" not in on_gpu
