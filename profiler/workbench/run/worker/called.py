"""What a call does to its inputs, and how far its outputs are from others. Runs in the worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from workbench.errors import GateFailed

Run = Callable[..., Any]


def tensors(out: Any) -> list[torch.Tensor]:
    """All of one output or of several."""
    if isinstance(out, torch.Tensor):
        return [out]
    if isinstance(out, dict):
        out = tuple(out.values())
    return [t for part in out for t in tensors(part)] if isinstance(out, tuple | list) else []


def copies(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in inputs.items()}


def size_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def largest(tensor: torch.Tensor) -> float:
    finite = tensor[torch.isfinite(tensor)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def shown(tensor: torch.Tensor) -> str:
    """``float32[4096, 8192]``."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def dtype_of(given: Mapping[str, torch.Tensor]) -> str:
    """Of the largest input, floating-point ones before others."""
    ranked = sorted(given.values(), key=lambda t: (t.is_floating_point(), size_of(t)))
    return str(ranked[-1].dtype).removeprefix("torch.")


def is_changed(after: Any, before: Any) -> bool:
    if not isinstance(after, torch.Tensor):
        return False
    one, other = (t.contiguous().view(-1).view(torch.uint8) for t in (after, before))
    return not torch.equal(one, other)


def written(run: Run, inputs: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Which inputs a call changes, and of these which it only writes into: what it gives is the
    same whatever stood there.
    """
    own = copies(inputs)
    with torch.no_grad():
        out = run(**own)
    changed = [name for name in inputs if is_changed(own[name], inputs[name])]
    shared = [
        name
        for name, value in own.items()
        if isinstance(value, torch.Tensor)
        and any(t.untyped_storage().data_ptr() == value.untyped_storage().data_ptr()
                for t in tensors(out))
    ]  # fmt: skip
    results = tensors(out) or [own[name] for name in changed]
    only_written = []
    for name in dict.fromkeys([*changed, *shared]):
        other = copies(inputs)
        value = other[name]
        value.fill_(float("nan") if value.is_floating_point() else 1)
        with torch.no_grad():
            again = tensors(run(**other)) or [other[n] for n in changed]
        if all(torch.allclose(a.double(), b.double(), rtol=1e-2, atol=1e-3, equal_nan=False)
               for a, b in zip(results, again, strict=True)):  # fmt: skip
            only_written.append(name)
    return {
        "destinations": tuple(only_written),
        "in_place": tuple(name for name in changed if name not in only_written),
    }


def error_of(out: Any, expected: Any, name: str) -> tuple[float, float]:
    """Largest absolute error and that relative in norm, of all outputs. Raises GateFailed for
    outputs of another number or shape.
    """
    ours, theirs = tensors(out), tensors(expected)
    if not ours:
        raise GateFailed(
            f"{name} returned {type(out).__name__}, not a tensor", hint="return tensors"
        )
    if [t.shape for t in ours] != [t.shape for t in theirs]:
        raise GateFailed(
            f"{name} returns {', '.join(map(shown, ours))}, and the reference "
            f"{', '.join(str(list(t.shape)) for t in theirs)}",
            hint="do both compute the same of these inputs? --vs may name a call with arguments",
        )
    worst = (0.0, 0.0)
    for one, other in zip(ours, theirs, strict=True):
        difference = one.double() - other.double()
        norm = float(other.double().norm())
        absolute, whole = float(difference.abs().max()), float(difference.norm())
        worst = max(worst[0], absolute), max(worst[1], whole / norm if norm else whole)
    return worst
