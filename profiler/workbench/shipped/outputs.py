"""What a call returned, as the operator has to return it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch


def tensors_of(result: Any, inputs: Mapping[str, Any], in_place: Sequence[str]) -> list[Any]:
    """The tensors of a result in order, without inputs that were changed in place."""
    if isinstance(result, Mapping):
        found = list(result.values())
    elif isinstance(result, tuple | list):
        found = list(result)
    else:
        found = [] if result is None else [result]
    changed = [inputs[name] for name in in_place]
    return [out for out in found if not any(out is one for one in changed)]


def like(out: torch.Tensor, strided: Sequence[torch.Tensor]) -> torch.Tensor:
    """An empty tensor as the operator returns one: laid out as the first of the ``strided`` inputs
    of its extents and type, else in order.
    """
    given = _pattern(out, strided)
    if given is not None:
        return torch.empty_like(given)
    return torch.empty(out.shape, dtype=out.dtype, device=out.device)


def _pattern(out: torch.Tensor, strided: Sequence[torch.Tensor]) -> torch.Tensor | None:
    return next((x for x in strided if x.shape == out.shape and x.dtype == out.dtype), None)


def settled(
    out: torch.Tensor, strided: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
) -> torch.Tensor:
    """The output in its layout, in memory of its own: copied only where it is not so already."""
    given = _pattern(out, strided)
    if given is None or given.is_contiguous():
        fits = out.is_contiguous()
    else:
        fits = out.stride() == torch.empty_like(given, device="meta").stride()
    memory = out.untyped_storage().data_ptr()
    own = all(memory != x.untyped_storage().data_ptr() for x in inputs)
    return out if fits and own else like(out, strided).copy_(out)


def aligned(tensor: torch.Tensor, *, strided: bool) -> torch.Tensor:
    """As a variant was checked with it: in order unless it may be ``strided``, from a multiple of
    16 bytes on, and no view of what would have to be negated or conjugated. Copied only where it is
    not so already.
    """
    found = tensor.resolve_conj().resolve_neg()
    found = found if strided else found.contiguous()
    return found if found.data_ptr() % 16 == 0 else found.clone()
