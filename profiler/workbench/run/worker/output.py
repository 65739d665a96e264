"""What ``run`` may hand back. Runs in the worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def refuse_output(out: Any, inputs: Mapping[str, Any]) -> str:
    """Why it is no result, "" where it is one.

    It must be there when ``run`` returns: an object that computes when it is looked at has done
    nothing yet. And it must lie in memory of its own: what is written into an input's is gone with
    the next call, and has changed that input.
    """
    if type(out) is not torch.Tensor:
        return f"run() returned {type(out).__name__}, not a tensor"
    given = [value for value in inputs.values() if isinstance(value, torch.Tensor)]
    if out.layout != torch.strided:
        return f"run() returned a tensor that is not dense: {out.layout}"
    if given and all(out.device != tensor.device for tensor in given):
        return f"run() returned a tensor on {out.device}, its inputs are on {given[0].device}"
    if out.is_neg() or out.is_conj():
        return "run() returned a tensor that is computed where it is read (lazy sign or conjugate)"
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and _overlap(out, value):
            return f"what run() returns shares memory with its input '{name}'"
    return ""


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    (begin, end), (first, last) = _range(one), _range(other)
    return one.device == other.device and begin < last and first < end


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses of its first byte and of the one behind its last."""
    if not tensor.numel():
        return 0, 0
    reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    begin = tensor.data_ptr()
    return begin, begin + (reach + 1) * tensor.element_size()
