"""A variant's module for a call, one a device or one a stream, and the tensors that it returns."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from workbench.words import Inputs


class Instances:
    """``load`` gives a module that is loaded anew.

    A variant that ``keeps`` something from call to call, such as a counter that its blocks share,
    is right only where calls come one after the other: in one stream. Each stream has a module to
    itself then, and so has each graph that is captured, since it may be replayed in any stream.
    """

    def __init__(self, load: Callable[[], ModuleType], *, keeps: bool) -> None:
        self._load = load
        self._keeps = keeps
        self._made: dict[tuple[int, ...], ModuleType] = {}
        self._lock = threading.RLock()

    def at(self, device: torch.device) -> ModuleType:
        """The module for a call on a device's current stream. It stays for as long as the process:
        nobody tells when a graph is gone.
        """
        key = self._key(device)
        instance = self._made.get(key)
        if instance is None:
            with self._lock:
                instance = self._made.get(key) or self._load()
                self._made[key] = instance
        return instance

    def _key(self, device: torch.device) -> tuple[int, ...]:
        index = device.index if device.index is not None else torch.cuda.current_device()
        if not self._keeps:
            return (index,)
        stream = torch.cuda.current_stream(index).cuda_stream
        return (index, stream, _capture(stream))


def _capture(stream: int) -> int:
    """The id of the capture that a stream takes part in; 0 for none."""
    if not torch.cuda.is_current_stream_capturing():
        return 0
    from cuda.bindings import driver

    status, _, capture, *_ = driver.cuStreamGetCaptureInfo(driver.CUstream(stream))
    if int(status) != 0:
        raise RuntimeError(f"the capture state of a stream is not known: {status!r}")
    return int(capture)


def tensors_of(result: Any, inputs: Inputs, in_place: Sequence[str]) -> list[Any]:
    """The tensors of a result in order, without inputs that were changed in place."""
    if isinstance(result, Mapping):
        results = list(result.values())
    elif isinstance(result, tuple | list):
        results = list(result)
    else:
        results = [] if result is None else [result]
    changed = [inputs[name] for name in in_place]
    return [out for out in results if not any(out is value for value in changed)]


def like(out: torch.Tensor, strided: Sequence[torch.Tensor]) -> torch.Tensor:
    """An empty tensor as the operator returns one: laid out as the first of the ``strided`` inputs
    of its extents and type, else in order.
    """
    pattern = _pattern(out, strided)
    if pattern is not None:
        return torch.empty_like(pattern)
    return torch.empty(out.shape, dtype=out.dtype, device=out.device)


def _pattern(out: torch.Tensor, strided: Sequence[torch.Tensor]) -> torch.Tensor | None:
    return next((x for x in strided if x.shape == out.shape and x.dtype == out.dtype), None)


def settled(
    out: torch.Tensor, strided: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
) -> torch.Tensor:
    """The output in its layout, in memory of its own: copied only where it is not so already."""
    pattern = _pattern(out, strided)
    if pattern is None or pattern.is_contiguous():
        fits = out.is_contiguous()
    else:
        fits = out.stride() == torch.empty_like(pattern, device="meta").stride()
    memory = out.untyped_storage().data_ptr()
    is_own = all(memory != x.untyped_storage().data_ptr() for x in inputs)
    return out if fits and is_own else like(out, strided).copy_(out)


def aligned(tensor: torch.Tensor, *, strided: bool) -> torch.Tensor:
    """Lay a tensor out as a variant was checked with it.

    It is in order unless it may be ``strided``, starts at a multiple of 16 bytes, and is no view of
    what would have to be negated or conjugated. It is copied only where it is not so already.
    """
    resolved = tensor.resolve_conj().resolve_neg()
    resolved = resolved if strided else resolved.contiguous()
    return resolved if resolved.data_ptr() % 16 == 0 else resolved.clone()
