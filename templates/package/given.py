"""Call the file of a study that ``workbench try`` wrote, and what it was compared with."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch

from . import cuda


def File(beside: str, name: str) -> Any:
    """Load a file, which may import others beside it."""
    sys.path.insert(0, str(cuda.SOURCES))
    try:
        return cuda.load(name.removesuffix(".py"), {})
    finally:
        sys.path.remove(str(cuda.SOURCES))


def Dotted(name: str) -> Any:
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(module), function)


def call(function: Callable[..., Any], inputs: dict[str, Any]) -> Any:
    """Pass inputs to the parameters of their names, the others in order."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a builtin
        return function(*inputs.values())
    free = [name for name in names if name not in inputs]
    rest = [value for name, value in inputs.items() if name not in names]
    by_name = {name: value for name, value in inputs.items() if name in names}
    return function(**by_name, **dict(zip(free, rest, strict=False)))


def compared(function: Callable[..., Any], inputs: dict[str, Any]) -> Any:
    """Pass the tensors, and ``dim=-1`` or the plain values where the function needs them."""
    tensors = [value for value in inputs.values() if isinstance(value, torch.Tensor)]
    plain = [value for value in inputs.values() if not isinstance(value, torch.Tensor)]
    for others, named in (((), {}), ((), {"dim": -1})):
        try:
            return function(*tensors, *others, **named)
        except TypeError:
            continue
    return function(*tensors, *plain)


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


def plain(function: Callable[..., Any], inputs: dict[str, Any], changed: Any = ()) -> Any:
    return function(inputs)


def exact(function: Callable[..., Any], inputs: dict[str, Any], changed: Any = ()) -> Any:
    def wide(x: Any) -> Any:
        return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    return function({name: wide(value) for name, value in inputs.items()})
