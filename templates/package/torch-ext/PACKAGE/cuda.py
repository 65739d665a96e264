"""What the study's Python imports: kernels of the package, launched as
``kernel[grid, block, shared_bytes](*args)``, the words of study.py, and those of a study that
`workbench try` wrote.
"""

from __future__ import annotations

import ast
import ctypes
import importlib.util
import itertools
import pkgutil
import struct
import sys
from collections import namedtuple
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, cached_property, lru_cache, partial
from hashlib import sha256
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from . import _ops

SOURCES = Path(__file__).absolute().parent / "sources"  # files of the Hub are links: follow none
TYPES = {torch.float16: 6, torch.float32: 7, torch.bfloat16: 9}  # CUtensorMapDataType
WORDS = {"i": "q", "f": "f4x", "d": "d", "s": "q"}  # of a parameter's kind in launch.h
cuda = given = sys.modules[__name__]
Dotted = pkgutil.resolve_name  # such as torch.nn.functional.softmax
_numbers = itertools.count()
_parameters: ContextVar[Mapping[str, Any]] = ContextVar("parameters")
Tolerance = namedtuple("Tolerance", "absolute relative")
Work = namedtuple("Work", "flops bytes dtype")


class Shape(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return self[name]


@cache
def _library() -> ctypes.CDLL:
    path = getattr(_ops, "LIBRARY", None) or next(SOURCES.parent.glob("*.so"))  # kernel-builder's
    library, pointer = ctypes.CDLL(str(path)), ctypes.c_void_p
    library.workbench_launch.argtypes = (pointer, ctypes.c_int, pointer, pointer, pointer)
    library.workbench_launch.restype = ctypes.c_char_p
    return library


class Kernel:
    def __init__(self, symbol: str, how: tuple[int, ...]) -> None:
        self.symbol, self.how = symbol, how

    def __getitem__(self, where: tuple[Any, ...]) -> Callable[..., None]:
        return partial(self._launch, _packed(where, self.how))

    @cached_property
    def _loaded(self) -> tuple[Callable[..., bytes], int, Callable[..., Any]]:
        kinds = ctypes.c_char_p.in_dll(_library(), self.symbol)  # the first member of the kernel
        words = struct.Struct("=" + "".join(WORDS[kind] for kind in (kinds.value or b"").decode()))
        launch = getattr(_ops, "launch", None) or _library().workbench_launch
        return words.pack, ctypes.addressof(kinds), launch

    def _launch(self, where: bytes, *args: Any) -> None:
        pack, kernel, launch = self._loaded
        words = pack(*[x.data_ptr() if isinstance(x, torch.Tensor) else x for x in args])
        device = torch.cuda.current_device()
        stream = torch._C._cuda_getCurrentRawStream(device)
        if why := launch(kernel, device, stream, where, words):
            raise RuntimeError(f"{self.symbol}: {why.decode()}")


@lru_cache(4096)
def _packed(where: tuple[Any, ...], how: tuple[int, ...]) -> bytes:
    extents = [(x, 1, 1) if isinstance(x, int) else (*x, 1, 1)[:3] for x in where[:2]]
    return struct.pack("=10i", *extents[0], *extents[1], *(where[2:] or (0,)), *how)


def kernel(
    source: str, name: str, *, defines: Mapping[str, Any] | None = None, options: Any = (),
    early_start: bool = False, carveout: int | None = None, cooperative: bool = False,
    compiler: str = "",
) -> Kernel:  # fmt: skip
    """Name a kernel that was compiled with these macros."""
    macros = {k.upper(): int(v) if isinstance(v, bool) else v for k, v in (defines or {}).items()}
    key = " ".join([source, name, *(f"{k}={v}" for k, v in sorted(macros.items()))])
    how = (int(early_start), int(cooperative), -1 if carveout is None else carveout)
    return Kernel(f"workbench_{sha256(key.encode()).hexdigest()[:16]}", how)


def params(**defaults: Any) -> dict[str, Any]:
    """Return the parameters of the module that is being loaded."""
    return {name: _parameters.get({}).get(name, value) for name, value in defaults.items()}


def variant(name: str, /, **values: Any) -> ModuleType:
    """Load a module of ``sources`` anew, with these values of its parameters."""
    called = f"{__package__}.sources.{name}_{next(_numbers)}"
    spec: Any = importlib.util.spec_from_file_location(called, SOURCES / f"{name}.py")
    module = sys.modules[called] = importlib.util.module_from_spec(spec)
    before = _parameters.set(values)
    sys.path.insert(0, str(SOURCES))  # a file of `try` may import others beside it
    try:
        spec.loader.exec_module(module)
    finally:
        _parameters.reset(before)
        sys.path.remove(str(SOURCES))
    return module


def tensor_map(tensor: torch.Tensor, box: tuple[int, ...], *, swizzled: bool = True) -> Any:
    """Return a TMA descriptor of ``tensor`` for copies of ``box``."""
    return _encoded(tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, box, swizzled)


@lru_cache(maxsize=1024)  # a model passes the same addresses at every step
def _encoded(
    address: int, shape: tuple[int, ...], steps: tuple[int, ...], dtype: torch.dtype,
    box: tuple[int, ...], swizzled: bool,
) -> torch.Tensor:  # fmt: skip
    made, rank = torch.empty(128, dtype=torch.uint8, device="cpu"), len(shape)
    long, short = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
    strides = [step * dtype.itemsize for step in steps[:-1]]
    failed = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled(
        ctypes.c_void_p(made.data_ptr()), TYPES[dtype], rank, ctypes.c_void_p(address),
        long(*reversed(shape)), long(*reversed(strides)), short(*reversed(box)),
        short(*[1] * rank), 0, 3 if swizzled else 0, 3, 0,
    )  # fmt: skip
    if failed:
        raise ValueError(f"no TMA descriptor of {shape} in boxes of {box}: CUDA error {failed}")
    return made


# ---- of a study that `try` wrote ---------------------------------------------------------------


def File(beside: str, name: str) -> Any:
    return variant(name.removesuffix(".py"))


@cache  # to look into a signature takes longer than a launch
def _has(function: Callable[..., Any], *names: str) -> bool:
    with suppress(TypeError, ValueError):  # of a builtin
        return set(names) <= set(signature(function).parameters)
    return False


def call(function: Callable[..., Any], inputs: dict[str, Any]) -> Any:
    """Pass inputs by name to a function with such parameters, else in their order."""
    return function(**inputs) if _has(function, *inputs) else function(*inputs.values())


def compared(function: Callable[..., Any], inputs: dict[str, Any]) -> Any:
    """Pass the tensors, and ``dim=-1`` or the plain values where the function needs them."""
    tensors = [value for value in inputs.values() if isinstance(value, torch.Tensor)]
    for named in ({}, {"dim": -1}):
        with suppress(TypeError):
            return function(*tensors, **named)
    return function(*inputs.values())


def named(values: Any, names: list[str]) -> dict[str, Any]:
    values = values if isinstance(values, dict | tuple | list) else (values,)
    return dict(values if isinstance(values, dict) else zip(names, values, strict=False))


def made(text: str, generator: torch.Generator) -> Any:
    """Return a tensor such as ``randn(4096, 8192, dtype=float16)``."""
    node: Any = ast.parse(text, mode="eval").body
    options = {k.arg: getattr(torch, ast.unparse(k.value).strip("'\"")) for k in node.keywords}
    if node.func.id in ("randn", "rand", "randint", "randperm"):
        options["generator"] = generator
    sizes = map(ast.literal_eval, node.args)
    return getattr(torch, node.func.id)(*sizes, device=generator.device, **options)


def without(inputs: dict[str, Any], destinations: Any) -> dict[str, Any]:
    return inputs


def plain(function: Callable[..., Any], inputs: dict[str, Any], changed: Any) -> Any:
    return function(inputs)


def exact(function: Callable[..., Any], inputs: dict[str, Any], changed: Any) -> Any:
    floats = [n for n, x in inputs.items() if torch.is_tensor(x) and x.is_floating_point()]
    return function(inputs | {name: inputs[name].double() for name in floats})
