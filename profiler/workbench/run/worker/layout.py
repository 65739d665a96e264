"""Results in memory in order, where a study asks for it. Runs in the worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from workbench.errors import UsageError


def in_order(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run``, which raises UsageError for a result that is not contiguous: else a copy that is
    called ``x.t()`` would pass for a transpose.
    """

    def called(**inputs: Any) -> Any:
        result = run(**inputs)
        for tensor in _tensors(result):
            if not tensor.is_contiguous():
                raise UsageError(
                    f"run() returned a tensor of strides {tensor.stride()}, which is not in order",
                    hint="the study says contiguous = True: return one that is",
                )
        return result

    return called


def _tensors(result: Any) -> Iterator[torch.Tensor]:
    parts = result.values() if isinstance(result, dict) else result
    for part in parts if isinstance(result, dict | list | tuple) else (result,):
        if isinstance(part, torch.Tensor):
            yield part
