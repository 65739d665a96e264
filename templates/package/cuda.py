"""What the study's Python imports: kernels of the extension, launched as
``kernel[grid, block, shared_bytes](*args)``, and the words of study.py.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from ._ops import ops

SOURCES = Path(__file__).resolve().parent / "sources"
TYPES = {torch.float16: 6, torch.float32: 7, torch.bfloat16: 9}  # CUtensorMapDataType
cuda = sys.modules[__name__]
_numbers = itertools.count()
_overrides: dict[str, Any] = {}


class Kernel:
    def __init__(self, key: str) -> None:
        self.key = key

    def __getitem__(self, where: tuple[Any, ...]) -> Callable[..., None]:
        device, shared = torch.cuda.current_device(), where[2] if len(where) > 2 else 0
        stream = torch._C._cuda_getCurrentRawStream(device)
        place = [device, stream, *_three(where[0]), *_three(where[1]), shared]

        def launch(*args: Any) -> None:
            words = [x.data_ptr() if isinstance(x, torch.Tensor) else x for x in args]
            ops.launch(self.key, place, words)

        return launch


def _three(extent: int | tuple[int, ...]) -> tuple[int, ...]:
    return (extent, 1, 1) if isinstance(extent, int) else (*extent, 1, 1)[:3]


def kernel(
    source: str, name: str, *, defines: Mapping[str, Any] | None = None, options: Any = (),
    early_start: bool = False, carveout: int | None = None, cooperative: bool = False,
    compiler: str = "",
) -> Kernel:  # fmt: skip
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
    strides = tuple(step * tensor.itemsize for step in tensor.stride())
    return _encoded(tensor.data_ptr(), tuple(tensor.shape), strides, tensor.dtype, box, swizzled)


@lru_cache(maxsize=1024)  # a model passes the same addresses at every step
def _encoded(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype,
    box: tuple[int, ...], swizzled: bool,
) -> torch.Tensor:  # fmt: skip
    made, rank = torch.empty(128, dtype=torch.uint8, device="cpu"), len(shape)
    long, short = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
    failed = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled(
        ctypes.c_void_p(made.data_ptr()), TYPES[dtype], rank, ctypes.c_void_p(address),
        long(*reversed(shape)), long(*reversed(strides[:-1])), short(*reversed(box)),
        short(*[1] * rank), 0, 3 if swizzled else 0, 3, 0,
    )  # fmt: skip
    if failed:
        raise ValueError(f"no TMA descriptor of {shape} in boxes of {box}: CUDA error {failed}")
    return made


class Shape(dict[str, Any]):
    """A shape holds the study's parameters, readable as ``shape.S`` or ``shape["S"]``."""

    def __init__(self, *, profiled: bool = True, captured: bool = True, **parameters: Any) -> None:
        super().__init__(parameters)

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return self[name]


class Tolerance(NamedTuple):
    """``absolute`` bounds max |out - ref|; ``relative`` bounds ||out - ref|| / ||ref||."""

    absolute: float
    relative: float


class Work(NamedTuple):
    """``flops`` and ``bytes`` are the least work of a call."""

    flops: float
    bytes: float
    dtype: str
