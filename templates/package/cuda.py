"""Launch the kernels of this package from the variant's own Python: ``kernel[grid, block](*args)``.

The extension compiled every kernel that the variant declares, and finds it by its key.
"""

from __future__ import annotations

import importlib.util
import itertools
import struct
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ._ops import ops

SOURCES = Path(__file__).resolve().parent / "sources"
TYPES = {torch.float16: 6, torch.float32: 7, torch.bfloat16: 9}  # CUtensorMapDataType
_numbers = itertools.count()
_overrides: dict[str, Any] = {}


class Kernel:
    """A kernel is launched as ``kernel[grid, block, shared_bytes](*args)``."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._index = -1
        self._kinds = ""

    def __getitem__(self, where: tuple[Any, ...]) -> Callable[..., None]:
        if self._index < 0:
            self._index = ops.find(self.key)
            if self._index < 0:
                raise NotImplementedError(f"the extension has no kernel {self.key}")
            self._kinds = ops.kinds(self._index)
        device = torch.cuda.current_device()
        stream = torch._C._cuda_getCurrentRawStream(device)
        shared = where[2] if len(where) > 2 else 0
        place = [device, stream, *_three(where[0]), *_three(where[1]), shared]

        def launch(*args: Any) -> None:
            words = [_word(arg, kind) for arg, kind in zip(args, self._kinds, strict=True)]
            ops.launch(self._index, place, words)

        return launch


def _three(extent: int | tuple[int, ...]) -> tuple[int, ...]:
    return (extent, 1, 1) if isinstance(extent, int) else (*extent, 1, 1)[:3]


def _word(value: Any, kind: str) -> int:
    if isinstance(value, torch.Tensor):
        return value.data_ptr()
    if kind in "fd":
        return int(struct.unpack("q", struct.pack("d", value))[0])
    return int(value)


def kernel(
    source: str,
    name: str,
    *,
    defines: Mapping[str, Any] | None = None,
    options: tuple[str, ...] = (),
    early_start: bool = False,
    carveout: int | None = None,
    cooperative: bool = False,
    compiler: str = "",
) -> Kernel:
    """Name a kernel that was compiled with these macros."""
    macros = {k.upper(): int(v) if isinstance(v, bool) else v for k, v in (defines or {}).items()}
    text = [f"{k}={v}" for k, v in sorted(macros.items())]
    return Kernel(f"{source} {name} {text} {list(options)} {early_start} {carveout} {cooperative}")


def params(**defaults: Any) -> dict[str, Any]:
    """Return the parameters of the module that is being loaded."""
    return {name: _overrides.get(name, value) for name, value in defaults.items()}


def load(name: str, values: Mapping[str, Any]) -> ModuleType:
    """Load a module of ``sources`` anew, with these values of its parameters."""
    called = f"{__package__}.sources.{name}_{next(_numbers)}"
    spec = importlib.util.spec_from_file_location(called, SOURCES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[called] = importlib.util.module_from_spec(spec)
    around = dict(_overrides)
    _overrides.clear()
    _overrides.update(values)
    try:
        spec.loader.exec_module(module)
    finally:
        _overrides.clear()
        _overrides.update(around)
    return module


def variant(name: str, **values: Any) -> ModuleType:
    """Load another variant of the study, for a dispatcher."""
    return load(name, values)


def tensor_map(tensor: torch.Tensor, box: tuple[int, ...], *, swizzled: bool = True) -> Any:
    """Return a TMA descriptor of ``tensor`` for copies of ``box``."""
    place = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
    return _encoded(*place, tuple(box), swizzled)


# A model passes the same addresses at every step.
@lru_cache(maxsize=1024)
def _encoded(
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: torch.dtype,
    box: tuple[int, ...],
    swizzled: bool,
) -> torch.Tensor:
    described = torch.empty(128, dtype=torch.uint8, device="cpu")
    steps = [step * dtype.itemsize for step in strides]
    ops.encode(described.data_ptr(), address, TYPES[dtype], shape, steps, box, swizzled)
    return described
