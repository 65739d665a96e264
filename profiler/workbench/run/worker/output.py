"""The outputs of a call by name, how far they are from the reference's, piece by piece, so that
large ones need no large copies; and what it did to its inputs. Runs in the worker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from workbench.errors import CannotTell, GateFailed, ToolFailed, UsageError
from workbench.study.values import Tolerance
from workbench.words import Inputs

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

RunFunction = Callable[..., Any]
Tensors = dict[str, torch.Tensor]
Slices = tuple[slice, ...]
CHUNK = 1 << 22  # elements: 32 MB in float64, of which a comparison holds a few
FEW = 64  # elements that make up an output's norm: the ratio of two errors of fewer is chance
NAN_REFERENCE = "the reference is NaN everywhere"
RETURN_THEM = "return a tensor, or a tuple, list or dict of tensors, as reference() does"
ON_THE_GPU = "let torch.empty_like(input), or device=input.device, make it"
OF_ITS_OWN = (
    "write into what torch.empty_like gives, or name the input in in_place of study.py where the "
    "operation changes it"
)


class NoResult(ToolFailed):
    """Raised where what ``run`` returned is no result."""


@dataclass(frozen=True)
class Outputs:
    """Tensors by name, in order: ``""`` is the only one, ``1`` or ``lse`` one of several, ``0.lse``
    one of a nested one, and the name of an input one that was changed in place.

    ``counted``: those that are not named by anything but their place.
    """

    tensors: Tensors
    counted: frozenset[str]

    @property
    def names(self) -> str:
        return ", ".join(name or "a tensor" for name in self.tensors) or "nothing"


def outputs_of(result: Any, inputs: Inputs, in_place: Sequence[str] = ()) -> Outputs:
    """All outputs of a call: what ``run`` returned and then the inputs that it changes.

    An input of ``in_place`` may be among what is returned, and counts once. Raises NoResult.
    """
    changed = {name: inputs[name] for name in in_place}
    for name, value in changed.items():
        if why := refuse_lazy(value):
            raise NoResult(f"run() leaves in its input '{name}' {why}")
    tensors: Tensors = {}
    counted = set()
    for name, tensor, by_place in flattened(result, "run()", empty=bool(changed)):
        if any(_same(tensor, value) for value in changed.values()):
            continue
        why, hint = refuse_output(tensor, inputs, name)
        if why:
            raise NoResult(why, hint=hint)
        tensors[name] = tensor.detach()
        if by_place:
            counted.add(name)
    if twice := tensors.keys() & changed.keys():
        raise NoResult(f"run() returns '{twice.pop()}', which is also an input changed in place")
    tensors |= {name: value.detach() for name, value in changed.items()}
    return Outputs(tensors, frozenset(counted))


def expected_of(result: Any) -> Outputs:
    """Take what ``reference`` returned. Raises UsageError where it is not made of tensors."""
    try:
        every = list(flattened(result, "reference()"))
    except NoResult as error:
        raise UsageError(f"study.py: {error.message}", hint=RETURN_THEM) from None
    tensors = {name: tensor.detach() for name, tensor, _ in every}
    return Outputs(tensors, frozenset(name for name, _, by_place in every if by_place))


def flattened(
    result: Any, whose: str, name: str = "", *, by_place: bool = True, empty: bool = False
) -> Iterator[tuple[str, torch.Tensor, bool]]:
    """Name, tensor and whether the name is a mere place. Raises NoResult for all else."""
    if isinstance(result, torch.Tensor):
        yield name, result, by_place
    elif isinstance(result, Mapping):
        for key, value in result.items():
            yield from flattened(value, whose, _inside(name, key), by_place=False)
    elif isinstance(result, tuple) and (fields := _fields(result)):
        for field, value in zip(fields, result, strict=True):
            yield from flattened(value, whose, _inside(name, field), by_place=False)
    elif isinstance(result, list | tuple):
        for index, value in enumerate(result):
            yield from flattened(value, whose, _inside(name, index))
    elif result is not None or not empty:
        type_name = "None" if result is None else type(result).__name__
        raise NoResult(f"{whose} returned {type_name}{_at(name)}, not a tensor", hint=RETURN_THEM)
    if not name and isinstance(result, Mapping | list | tuple) and not result and not empty:
        raise NoResult(f"{whose} returned an empty {type(result).__name__}", hint=RETURN_THEM)


def paired(outputs: Outputs, expected: Outputs) -> Mapping[str, tuple[str, str]]:
    """Pair the names of an output on both sides, by the name to show.

    Those of one name belong together, and of what is left those in the same place, where one side
    names nothing. Raises NoResult where the two differ in structure.
    """
    left, right = list(outputs.tensors), list(expected.tensors)
    pairs = {name: (name, name) for name in left if name in expected.tensors}
    left = [name for name in left if name not in pairs]
    right = [name for name in right if name not in pairs]
    placed = outputs.counted.issuperset(left) or expected.counted.issuperset(right)
    if len(left) != len(right) or not placed:
        count = len(outputs.tensors) - len(expected.tensors)
        less = f"{len(outputs.tensors)} where reference() gives {len(expected.tensors)}"
        alone = [*left, *right][:1]
        raise NoResult(
            f"run() gives {outputs.names}, reference() {expected.names}: "
            + (less if count else f"'{alone[0]}' is on one side alone"),
            hint="let run() return what reference() does, inputs changed in place last",
        )
    for ours, theirs in zip(left, right, strict=True):
        pairs[theirs if ours in outputs.counted else ours] = (ours, theirs)
    order = list(outputs.tensors)
    return dict(sorted(pairs.items(), key=lambda item: order.index(item[1][0])))


def refused_by(study: ModuleType, inputs: Inputs, outputs: Outputs) -> str:
    """Why the study's own check, where it has one, refuses the outputs; "" where it does not."""
    accepts = getattr(study, "accepts", None)
    if accepts is None:
        return ""
    every = outputs.tensors
    several = tuple(every.values()) if outputs.counted >= every.keys() else dict(every)
    return str(accepts(inputs, next(iter(every.values())) if len(every) == 1 else several))


def differs(kept: Outputs, again: Outputs) -> tuple[bool, str]:
    """Whether a second call on the same inputs gave other bits, and what is wrong with it."""
    if kept.tensors.keys() != again.tensors.keys():
        return True, f"gives {kept.names} in one call and {again.names} in the next"
    for name, one in kept.tensors.items():
        other = again.tensors[name]
        what = f"'{name}'" if name else "its result"
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return True, f"gives {what} of another shape or type when it is called again"
        for place in chunks(one.shape) if one.is_floating_point() else ():
            before, now = (torch.isfinite(tensor[place].double()) for tensor in (one, other))
            if bool((before & ~now).any()):
                return True, f"leaves NaN in {what} when it is called again: not written anew"
    return not all(same_bits(one, again.tensors[n]) for n, one in kept.tensors.items()), ""


def refuse_kind(out: torch.Tensor, expected: torch.Tensor, name: str = "") -> str:
    """Why its shape or the kind of its type is not the reference's; "" where they are."""
    what = f"'{name}' has " if name else ""
    if out.shape != expected.shape:
        return f"{what}shape {tuple(out.shape)}, expected {tuple(expected.shape)}"
    if kind_of(out.dtype) != kind_of(expected.dtype):
        return f"{what}{type_name(out.dtype)}, where reference() gives {type_name(expected.dtype)}"
    return ""


def kind_of(dtype: torch.dtype) -> str:
    """Whether it holds truth values, integers, real or complex numbers."""
    if dtype.is_complex:
        return "complex"
    if dtype.is_floating_point:
        return "real"
    return "bool" if dtype == torch.bool else "integer"


def refuse_output(out: Any, inputs: Inputs, name: str = "") -> tuple[str, str]:
    """Why it is no result, "" where it is one, and a hint.

    It must be there when ``run`` returns. And it must lie in memory of its own: what is written
    into an input's is gone with the next call, and has changed that input.
    """
    where = _at(name)
    if why := refuse_lazy(out, name):
        return f"run() returned {why}", RETURN_THEM
    handed = tensors_of(inputs)
    devices = [tensor.device for tensor in handed.values()]
    if devices and out.device not in devices:
        why = f"run() returned a tensor on {out.device}{where}, its inputs are on {devices[0]}"
        return why, ON_THE_GPU
    begin, end = _range(out)
    for key, value in handed.items():
        first, last = _range(value)
        if out.device == value.device and begin < last and first < end:
            return f"what run() returns{where} shares memory with its input '{key}'", OF_ITS_OWN
    return "", ""


def refuse_lazy(out: Any, name: str = "") -> str:
    """The object in words where it is no plain dense tensor, "" where it is one.

    One that computes when it is looked at, or converted, has done nothing yet.
    """
    where = _at(name)
    if type(out) is not torch.Tensor:
        return f"{type(out).__name__}{where}, not a tensor"
    if shadowed := [key for key in vars(out) if hasattr(torch.Tensor, key)]:
        return f"a tensor with its own '{shadowed[0]}'{where}"
    if out.layout != torch.strided:
        return f"a tensor that is not dense{where}: {out.layout}"
    if out.is_neg() or out.is_conj():
        return f"a tensor that is computed where it is read{where} (lazy sign or conjugate)"
    return ""


def kept_gradient(inputs: Inputs) -> str:
    """The input in which a call left a gradient, in words; "" for none."""
    for name, value in tensors_of(inputs).items():
        if value.is_leaf and value.grad is not None:
            return f"leaves a gradient in its input '{name}', to which the next call would add"
    return ""


def _fields(result: Any) -> tuple[str, ...]:
    """List the fields of a named tuple; torch.max and others return some."""
    named = getattr(result, "_fields", ()) or getattr(type(result), "__match_args__", ())
    fields = tuple(map(str, named))
    return fields if len(fields) == len(result) else ()


def _inside(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)


def _at(name: str) -> str:
    return f" at '{name}'" if name else ""


def type_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def tensors_of(inputs: Inputs) -> Inputs:
    return {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}


def _same(first: Any, second: Any) -> bool:
    """Whether both are one tensor: all of the same memory, in the same layout."""
    if first is second:
        return True
    return (
        isinstance(second, torch.Tensor)
        and first.layout == second.layout == torch.strided
        and first.device == second.device
        and first.dtype == second.dtype
        and first.shape == second.shape
        and first.stride() == second.stride()
        and first.numel() > 0
        and first.data_ptr() == second.data_ptr()
    )


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses of its first byte and of the one behind its last."""
    if not tensor.numel():
        return 0, 0
    reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    begin = tensor.data_ptr()
    return begin, begin + (reach + 1) * tensor.element_size()


def in_order(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run``, which raises UsageError for a result that is not contiguous: else a copy that is
    called ``x.t()`` would pass for a transpose.
    """

    def called(**inputs: Any) -> Any:
        result = run(**inputs)
        for tensor in tensors(result):
            if not tensor.is_contiguous():
                raise UsageError(
                    f"run() returned a tensor of strides {tensor.stride()}, which is not in order",
                    hint="the study says contiguous = True: return one that is",
                )
        return result

    return called


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
        pair = [tensor[tuple(place)].item() for tensor in (out, expected)]
        value, wanted = (f"{number:.3g}".replace("nan", "NaN") for number in pair)
        why = (
            f"{count} of {out.numel()} outputs differ in NaN or infinity, the first at {place}: "
            f"{value}, expected {wanted}"
        )
        unwritten = " (not written, or read out of bounds)" if pair[0] != pair[0] else ""
        return Deviation(math.nan, math.nan, place, why + unwritten, is_judged)
    worst = int(absolute.argmax())
    error, size = math.sqrt(float(squared.sum())), math.sqrt(float(norm.sum()))
    return Deviation(
        absolute=float(absolute.max()),
        relative=error / size if size else math.inf if error else 0.0,
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


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


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
    return f"{type_name(tensor.dtype)}{list(tensor.shape)}"


def dtype_of(inputs: Mapping[Any, torch.Tensor]) -> str:
    """Name the type of the largest tensor, floating-point ones before others."""
    ranked = sorted(inputs.values(), key=lambda t: (t.is_floating_point(), size_of(t)))
    return type_name(ranked[-1].dtype)


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
    storages = {tensor.untyped_storage().data_ptr() for tensor in tensors(out)}
    shared = [
        name
        for name, value in tensors_of(copied_inputs).items()
        if value.untyped_storage().data_ptr() in storages
    ]
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
