"""Code written for a GPU, called on the CPU as far as it goes there. Runs in the worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class OnCpu(TorchFunctionMode):
    """What is asked to be on a GPU is on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if str(given.get("device", "")).startswith("cuda"):
            given["device"] = "cpu"
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.to:
            args = tuple("cpu" if _is_gpu(value) else value for value in args)
        return func(*args, **given)


def _is_gpu(value: Any) -> bool:
    return isinstance(value, str | torch.device) and str(value).startswith("cuda")


@contextmanager
def on_cpu() -> Iterator[None]:
    """Also generators."""
    own = torch.Generator

    class Generator:
        def __new__(cls, device: Any = "cpu") -> Any:
            return own("cpu")

    torch.Generator = Generator  # type: ignore[misc]
    try:
        with OnCpu():
            yield
    finally:
        torch.Generator = own  # type: ignore[misc]
