"""How far outputs are from the reference, piece by piece, so that large ones need no large copies;
and what a call does to its inputs. Runs in the worker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from workbench.errors import CannotTell, GateFailed
from workbench.study.model import Tolerance
from workbench.words import Inputs

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

CHUNK = 1 << 22  # elements: 32 MB in float64, of which a comparison holds a few
Slices = tuple[slice, ...]
NAN_REFERENCE = "the reference is NaN everywhere"


def chunks(shape: Sequence[int], most: int = CHUNK) -> Iterator[Slices]:
    """Parts of a tensor of a ``shape``, of so many elements at the most, in its order."""
    whole = tuple(slice(0, n) for n in shape)
    if math.prod(shape) <= most:
        yield whole
        return
    first, inner = shape[0], math.prod(shape[1:])
    if inner > most:
        for start in range(first):
            for rest in chunks(shape[1:], most):
                yield (slice(start, start + 1), *rest)
        return
    step = most // inner
    for start in range(0, first, step):
        yield (slice(start, min(start + step, first)), *whole[1:])


@dataclass(frozen=True)
class Deviation:
    """Max absolute error and error relative in norm, over what is finite in both; the ``place`` of
    the largest. NaN and infinity are right where the reference has the same: ``misplaced`` says
    where they are not, and then no error is a number. ``is_judged``: the reference is not NaN
    everywhere.
    """

    absolute: float = 0.0
    relative: float = 0.0
    place: Sequence[int] = ()
    misplaced: str = ""
    is_judged: bool = True


def deviation(out: torch.Tensor, expected: torch.Tensor) -> Deviation:
    """Compare two tensors of one shape."""
    if not out.numel():
        return Deviation()
    parts = list(chunks(out.shape))
    results = [_part(out[part], expected[part]) for part in parts]
    sums = torch.stack([numbers for numbers, _ in results])
    places = torch.stack([place for _, place in results]).cpu()
    misplaced, nan, absolute, squared, norm = (column.cpu() for column in sums.unbind(1))
    is_judged = int(nan.sum()) < out.numel()
    if count := int(misplaced.sum()):
        first = int((misplaced > 0).long().argmax())
        place = _index(parts[first], int(places[first, 0]))
        value, wanted = out[tuple(place)].item(), expected[tuple(place)].item()
        why = (
            f"{count} of {out.numel()} outputs differ in NaN or infinity, the first at {place}: "
            f"{_value(value)}, expected {_value(wanted)}"
        )
        unwritten = " (not written, or read out of bounds)" if value != value else ""
        return Deviation(math.nan, math.nan, place, why + unwritten, is_judged)
    worst = int(absolute.argmax())
    return Deviation(
        absolute=float(absolute.max()),
        relative=_ratio(math.sqrt(float(squared.sum())), math.sqrt(float(norm.sum()))),
        place=_index(parts[worst], int(places[worst, 1])),
        is_judged=is_judged,
    )


def compare(
    out: torch.Tensor, expected: torch.Tensor, bound: Tolerance
) -> tuple[float, float, str]:
    """Max absolute error, error relative in norm, and why it is wrong ("" when it is not)."""
    if out.shape != expected.shape:
        return math.nan, math.nan, f"shape {tuple(out.shape)}, expected {tuple(expected.shape)}"
    error = deviation(out, expected)
    if not error.is_judged:
        return math.nan, math.nan, NAN_REFERENCE
    if error.misplaced:
        return math.nan, math.nan, error.misplaced
    why = ""
    if not (error.absolute <= bound.absolute and error.relative <= bound.relative):
        why = (
            f"max error {error.absolute:.3g} (allowed {bound.absolute:.3g}), relative "
            f"{error.relative:.3g} (allowed {bound.relative:.3g}), worst at {error.place}"
        )
    return error.absolute, error.relative, why


FEW = 64  # elements that make up an output's norm: the ratio of two errors of fewer is chance


def elements_in_norm(expected: torch.Tensor) -> float:
    """How many elements make up the norm of finite values: the participation ratio, sum of squares
    squared over sum of fourth powers. Of n equal values n, where one outweighs all others 1.
    Infinite where all are zero.
    """
    scale = max((float(part.max()) for part in _magnitudes(expected)), default=0.0) or 1.0
    second = fourth = 0.0
    for part in _magnitudes(expected):
        squares = (part / scale).square()
        second += float(squares.sum())
        fourth += float(squares.square().sum())
    return second**2 / fourth if fourth else math.inf


def _magnitudes(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield absolute values in float64, piece by piece; 0 where a value is not finite."""
    for place in chunks(tensor.shape, CHUNK // 16) if tensor.numel() else ():
        piece = tensor[place]
        size = piece.abs() if piece.is_complex() else piece.double().abs_()
        yield size.double().nan_to_num_(0.0, 0.0, 0.0)


def _part(out: torch.Tensor, expected: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[misplaced, NaN of the reference, largest error, squared errors, squared reference], and the
    places of the first that is misplaced and of the largest error; both on the tensors' device:
    nothing waits for it.
    """
    wide = torch.complex128 if out.is_complex() or expected.is_complex() else torch.float64
    actual, wanted = out.to(wide), expected.to(wide)
    finite = torch.isfinite(actual) & torch.isfinite(wanted)
    nan = wanted.isnan()
    misplaced = ~(finite | (actual == wanted) | (actual.isnan() & nan))
    error = torch.where(finite, actual - wanted, 0).abs()
    size = torch.where(finite, wanted, 0).abs()
    counts = (misplaced.sum().double(), nan.sum().double())
    sums = (*counts, error.max(), error.square().sum(), size.square().sum())
    places = (misplaced.flatten().to(torch.uint8).argmax(), error.flatten().argmax())
    return torch.stack(sums), torch.stack(places)


def _value(number: complex) -> str:
    return f"{number:.3g}".replace("nan", "NaN")


def _ratio(error: float, norm: float) -> float:
    if norm:
        return error / norm
    return math.inf if error else 0.0


def _index(slices: Slices, flat: int) -> list[int]:
    """Find the indices of an element by its place in some slices."""
    places = np.unravel_index(flat, [piece.stop - piece.start for piece in slices])
    return [piece.start + int(place) for piece, place in zip(slices, places, strict=True)]


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors of a shape and type hold the same bytes, NaN among them."""
    return all(
        torch.equal(_bytes(first[place]), _bytes(second[place])) for place in chunks(first.shape)
    )


def fits(tensor: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether all numbers of a tensor are numbers of a type too, and not all zero."""
    is_exact = all(
        bool(((p := tensor[place]).to(dtype).to(p.dtype) == p).logical_or(p.isnan()).all())
        for place in chunks(tensor.shape)
    )
    return is_exact and bool(tensor.any())


def newly_unwritten(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether the other is NaN or infinite anywhere where the first is not."""
    return any(
        bool(
            (torch.isfinite(first[place].double()) & ~torch.isfinite(second[place].double())).any()
        )
        for place in chunks(first.shape)
        if first.is_floating_point()
    )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


RunFunction = Callable[..., Any]


def tensors(out: Any) -> list[torch.Tensor]:
    """All of one output or of several."""
    if isinstance(out, torch.Tensor):
        return [out]
    parts = tuple(out.values()) if isinstance(out, dict) else out
    return [t for part in parts for t in tensors(part)] if isinstance(parts, tuple | list) else []


def copies(inputs: Inputs) -> Inputs:
    return {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in inputs.items()}


def copied(out: Any) -> Any:
    """One output or several, in memory that the next call does not write."""
    if isinstance(out, dict):
        return {name: copied(part) for name, part in out.items()}
    if isinstance(out, tuple | list):
        return tuple(map(copied, out))
    return out.clone() if isinstance(out, torch.Tensor) else out


def size_of(tensor: torch.Tensor) -> int:
    """Bytes of a dense tensor."""
    return tensor.numel() * tensor.element_size()


def without_values(*, symbolic: bool = True) -> FakeTensorMode:
    """Make tensors inside that have extents and types, and take no memory, also of real ones.
    ``symbolic``: what depends on values is a symbol, for which torch imports sympy, half a second;
    else it raises what torch raises.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    if not symbolic:
        return FakeTensorMode(allow_non_fake_inputs=True)
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)


def largest(tensor: torch.Tensor) -> float:
    finite = tensor[torch.isfinite(tensor)]
    finite = finite.byte() if finite.dtype == torch.bool else finite
    return float(finite.abs().max()) if finite.numel() else 0.0


def tensor_words(tensor: torch.Tensor) -> str:
    """``float32[4096, 8192]``."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def dtype_of(inputs: Mapping[Any, torch.Tensor]) -> str:
    """Name the type of the largest tensor, floating-point ones before others."""
    ranked = sorted(inputs.values(), key=lambda t: (t.is_floating_point(), size_of(t)))
    return str(ranked[-1].dtype).removeprefix("torch.")


def is_changed(after: Any, before: Any) -> bool:
    return isinstance(after, torch.Tensor) and not same_bits(after, before)


def written(run: RunFunction, inputs: Inputs) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Find the inputs that a call only writes into, so that its result is the same whatever stood
    there, and the others that it changes.
    """
    copied_inputs = copies(inputs)
    with torch.no_grad():
        out = run(**copied_inputs)
    changed = [name for name in inputs if is_changed(copied_inputs[name], inputs[name])]
    shared = [
        name
        for name, value in copied_inputs.items()
        if isinstance(value, torch.Tensor)
        and any(t.untyped_storage().data_ptr() == value.untyped_storage().data_ptr()
                for t in tensors(out))
    ]  # fmt: skip
    results = tensors(copied(out)) or [copied_inputs[name] for name in changed]
    only_written = []
    for name in dict.fromkeys([*changed, *shared]):
        other = copies(inputs)
        value = other[name]
        value.fill_(float("nan") if value.is_floating_point() else 85)
        with torch.no_grad():
            again = tensors(run(**other)) or [other[n] for n in changed]
        if all(
            torch.allclose(a.double(), b.double(), rtol=1e-2, atol=1e-3, equal_nan=True)
            if a.is_floating_point()
            else torch.equal(a, b)  # a count is other by what stood there
            for a, b in zip(results, again, strict=True)
        ):
            only_written.append(name)
    return tuple(only_written), tuple(name for name in changed if name not in only_written)


def error_of(out: Any, expected: Any, name: str) -> tuple[float, float, str]:
    """Largest absolute error and that relative in norm, of all outputs, and why an error is no
    number ("" where both are). Raises GateFailed for outputs of another number or shape.
    """
    ours, theirs = tensors(out), tensors(expected)
    if not ours:
        raise GateFailed(
            f"{name} returned {type(out).__name__}, not a tensor", hint="return tensors"
        )
    if len(ours) != len(theirs):
        raise GateFailed(
            f"{name} gives {len(ours)} tensor{'s' * (len(ours) != 1)}, the reference {len(theirs)}",
            hint="return the same tensors in the same order",
        )
    if [t.shape for t in ours] != [t.shape for t in theirs]:
        raise GateFailed(
            f"{name} returns {', '.join(map(tensor_words, ours))}, and the reference "
            f"{', '.join(str(list(t.shape)) for t in theirs)}",
            hint="do both compute the same of these inputs? --vs may name a call with arguments",
        )
    every = [deviation(one, other) for one, other in zip(ours, theirs, strict=True)]
    absolute, relative = max(d.absolute for d in every), max(d.relative for d in every)
    for number, result in enumerate(every):
        which = f"output {number}: " if len(every) > 1 else ""
        if result.misplaced:
            return math.nan, math.nan, which + result.misplaced
        if not math.isfinite(result.relative):
            error = f"error {result.absolute:.3g} at {result.place}"
            return math.nan, math.nan, f"{which}{error}, relative {result.relative:.3g}"
    return absolute, relative, ""


def require_judging(expected: Any) -> None:
    """Raises CannotTell for a reference with an output that is NaN everywhere."""
    for number, tensor in enumerate(every := tensors(expected)):
        if tensor.numel() and bool(tensor.isnan().all()):
            which = f" in output {number}" if len(every) > 1 else ""
            raise CannotTell(
                f"{NAN_REFERENCE}{which}: nothing can be compared with it",
                hint="check the inputs, or name another reference with --vs",
            )
