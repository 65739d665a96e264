"""Inputs: made from what a user wrote, drawn at random, taken apart and put together."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import UsageError
from workbench.words import Inputs

if TYPE_CHECKING:
    import torch

    from workbench.study.model import Shape

STRUCTURE = "structure"  # the input that tells how the others stand together
RANGES = {"int8": 128, "uint8": 256}  # of random integers, as FlashInfer-Bench draws them
LARGEST_INTEGER = 1024
MOST_SEED = 2**31


@dataclass(frozen=True)
class Empty:
    """A tensor that a kernel writes into: made anew for every call, and no input.

    ``make`` allocates it in place of torch.empty_strided.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    make: Callable[[torch.Tensor], torch.Tensor] | None = None

    def new(self) -> torch.Tensor:
        import torch

        found = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)
        return self.make(found) if self.make else found

    def widened(self) -> Empty:
        """Of doubles, where it is of floating-point numbers."""
        import torch

        return (
            replace(self, dtype=torch.float64, make=None) if self.dtype.is_floating_point else self
        )


@dataclass(frozen=True)
class Leaf:
    """The place of an input in a structure."""

    name: str


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Whatever is made inside is fresh, and on the generator's device."""
    import torch

    torch.manual_seed(generator.initial_seed())
    with torch.device(generator.device):
        yield


def made(call: str, generator: torch.Generator) -> torch.Tensor:
    """A tensor in the grammar of ``--input``: ``randn(4096, 8192, dtype=float16)``."""
    import torch

    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    sizes = [ast.literal_eval(argument) for argument in node.args]
    named = {k.arg: ast.unparse(k.value).strip("'\"") for k in node.keywords}
    dtype = getattr(torch, named["dtype"]) if "dtype" in named else None
    maker = node.func.id
    random = {"generator": generator} if maker in ("randn", "rand", "randint", "randperm") else {}
    # Random numbers of eight bits, and of integers, are drawn wider.
    narrow = maker in ("randn", "rand") and dtype is not None and dtype.itemsize == 1
    try:
        out: torch.Tensor = getattr(torch, maker)(
            *sizes, **random, dtype=None if narrow else dtype, device=generator.device
        )
    except (TypeError, RuntimeError) as error:
        raise UsageError(
            f"'{call}' cannot be made: {str(error).splitlines()[0]}",
            hint="such as randn(4096,8192) or randint(0,100,(4096,),dtype=int32)",
        ) from None
    return out.to(dtype) if narrow else out


def larger(inputs: Inputs) -> Inputs:
    """Four times the floating-point inputs, and the first row of each 32 times: what is right only
    for the numbers that a format draws is found.
    """
    import torch

    found = dict(inputs)
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize > 1:
            found[name] = value * 4
            if value.dim():
                found[name][:1] *= 8
    return found


def drawn(shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Random numbers as FlashInfer-Bench's ``_rand_tensor`` draws them."""
    import torch

    device = generator.device
    if dtype.is_floating_point:
        out = torch.randn(tuple(shape), generator=generator, device=device)
        return (out.clamp_(-2, 2) if dtype.itemsize == 1 else out).to(dtype)
    most = 2 if dtype is torch.bool else RANGES.get(str(dtype)[6:], LARGEST_INTEGER)
    low = 0 if dtype is torch.bool else -most
    out = torch.randint(low, most, tuple(shape), generator=generator, device=device)
    return out.to(dtype)


def named(values: Any, names: Sequence[str]) -> Inputs:
    """Inputs by name: those of a dict, else by the names of parameters, in their order."""
    if isinstance(values, Mapping):
        return dict(values)
    if not isinstance(values, tuple | list):
        values = (values,)
    if len(values) > len(names):
        names = [f"input_{at}" for at in range(len(values))]
    return dict(zip(names, values, strict=False))


def structured(data: Any, names: Sequence[str]) -> Inputs:
    """The tensors of nested tuples, lists and dicts by name, and how they stand together.

    ``names`` are those of the outermost ones, where they are known.
    """
    import torch

    found: Inputs = {}

    def visit(value: Any, name: str) -> Any:
        if isinstance(value, torch.Tensor):
            found[name] = value
            return Leaf(name)
        if isinstance(value, dict):
            return {key: visit(part, _joined(name, key)) for key, part in value.items()}
        if isinstance(value, tuple | list):
            known = names if value is data and len(names) == len(value) else range(len(value))
            outer = "" if value is data and known is names else name
            parts = [visit(p, _joined(outer, k)) for k, p in zip(known, value, strict=True)]
            return type(value)(parts) if type(value) in (tuple, list) else tuple(parts)
        return value

    tree = visit(data, "data")
    return {STRUCTURE: tree, **found}


def _joined(outer: str, name: object) -> str:
    text = "".join(c if c.isalnum() else "_" for c in str(name))
    return f"{outer}_{text}" if outer else text


def rebuilt(inputs: Inputs) -> Any:

    def visit(value: Any) -> Any:
        if isinstance(value, Leaf):
            return inputs[value.name]
        if isinstance(value, dict):
            return {key: visit(part) for key, part in value.items()}
        if isinstance(value, tuple | list):
            return type(value)(map(visit, value))
        return value

    return visit(inputs[STRUCTURE])


def without(inputs: Inputs, destinations: Sequence[str]) -> Inputs:
    """With what is only written into made anew for every call."""
    return {
        name: Empty(tuple(value.shape), value.stride(), value.dtype, value.device)
        if name in destinations
        else value
        for name, value in inputs.items()
    }


def filled(inputs: Inputs) -> tuple[Inputs, tuple[torch.Tensor, ...]]:
    """The inputs of one call, and those that were made for it."""
    fresh = {name: value.new() for name, value in inputs.items() if isinstance(value, Empty)}
    return {**inputs, **fresh}, tuple(fresh.values())


def listed(make: Callable[[], Any], names: Sequence[str], generator: torch.Generator) -> Inputs:
    """What ``get_inputs()`` of a KernelBench problem gives, by name and on the generator's device.

    It draws from torch's own generator, which is seeded for it.
    """
    import torch

    with seeded(generator):
        values = named(make(), names)
    return {
        name: value.to(generator.device) if isinstance(value, torch.Tensor) else value
        for name, value in values.items()
    }


def case(generate: Callable[..., Any], shape: Shape, generator: torch.Generator) -> Any:
    """What ``generate_input()`` of a GPU MODE task gives for a case: with a seed of its own, where
    the case has one, since every draw must be another.
    """
    import os

    # Its references ask for deterministic results, of which cuBLAS gives none without this.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    given = dict(shape)
    if isinstance(given.get("seed"), int):
        given["seed"] = (int(given["seed"]) + generator.initial_seed()) % MOST_SEED
    with seeded(generator):
        return generate(**given)


def workload(
    inputs: Mapping[str, tuple[Sequence[int | str] | None, str]],
    outputs: Mapping[str, tuple[Sequence[int | str] | None, str]],
    shape: Shape,
    generator: torch.Generator,
    beside: str,
) -> Inputs:
    """The inputs of a FlashInfer-Bench definition at a workload, and what it writes into.

    Each is given as its axes, a number or the name of one, None for a plain value, and its type.
    What the shape has under the name of an input is a plain value, or ``file:key`` of safetensors
    in the folder of the module ``beside``.
    """
    import torch

    def sizes(axes: Sequence[int | str]) -> tuple[int, ...]:
        return tuple(axis if isinstance(axis, int) else int(shape[axis]) for axis in axes)

    def made_as(name: str, axes: Sequence[int | str] | None, dtype: torch.dtype) -> Any:
        known = shape.get(name)
        if isinstance(known, str):
            return stored(Path(beside).parent / known).to(generator.device)
        if known is not None:
            return known
        return (
            drawn((), dtype, generator).item()
            if axes is None
            else drawn(sizes(axes), dtype, generator)
        )

    found = {n: made_as(n, a, getattr(torch, d)) for n, (a, d) in inputs.items()}
    for name, (axes, dtype) in outputs.items():
        like = torch.empty(sizes(axes or ()), dtype=getattr(torch, dtype), device="meta")
        found[name] = Empty(tuple(like.shape), like.stride(), like.dtype, generator.device)
    return found


def stored(place: Path) -> torch.Tensor:
    """``path:key`` of a safetensors file."""
    from safetensors import safe_open

    path, _, key = str(place).rpartition(":")
    with safe_open(path, framework="pt") as file:
        found: torch.Tensor = file.get_tensor(key)
    return found
