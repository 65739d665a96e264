"""Read what ``run`` returned: its outputs by name, and in memory order. Runs in the worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from workbench.errors import ToolFailed, UsageError
from workbench.run.worker.deviation import newly_unwritten, same_bits, tensors
from workbench.words import Inputs

Tensors = dict[str, torch.Tensor]
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
        if why := refuse_output(tensor, inputs, name):
            raise NoResult(why, hint=_hint(why))
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
        if newly_unwritten(one, other):
            return True, f"leaves NaN in {what} when it is called again: not written anew"
    return not all(same_bits(one, again.tensors[n]) for n, one in kept.tensors.items()), ""


def refuse_kind(out: torch.Tensor, expected: torch.Tensor, name: str = "") -> str:
    """Why its shape or the kind of its type is not the reference's; "" where they are."""
    what = f"'{name}' has " if name else ""
    if out.shape != expected.shape:
        return f"{what}shape {tuple(out.shape)}, expected {tuple(expected.shape)}"
    if kind_of(out.dtype) != kind_of(expected.dtype):
        return f"{what}{_short(out.dtype)}, where reference() gives {_short(expected.dtype)}"
    return ""


def kind_of(dtype: torch.dtype) -> str:
    """Whether it holds truth values, integers, real or complex numbers."""
    if dtype.is_complex:
        return "complex"
    if dtype.is_floating_point:
        return "real"
    return "bool" if dtype == torch.bool else "integer"


def refuse_output(out: Any, inputs: Inputs, name: str = "") -> str:
    """Why it is no result, "" where it is one.

    It must be there when ``run`` returns. And it must lie in memory of its own: what is written
    into an input's is gone with the next call, and has changed that input.
    """
    where = _at(name)
    if why := refuse_lazy(out, name):
        return f"run() returned {why}"
    tensors = [value for value in inputs.values() if isinstance(value, torch.Tensor)]
    if tensors and all(out.device != tensor.device for tensor in tensors):
        return (
            f"run() returned a tensor on {out.device}{where}, its inputs are on {tensors[0].device}"
        )
    for key, value in inputs.items():
        if isinstance(value, torch.Tensor) and _overlap(out, value):
            return f"what run() returns{where} shares memory with its input '{key}'"
    return ""


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
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and value.is_leaf and value.grad is not None:
            return f"leaves a gradient in its input '{name}', to which the next call would add"
    return ""


def _hint(why: str) -> str:
    if "shares memory" in why:
        return OF_ITS_OWN
    return ON_THE_GPU if "its inputs are on" in why else RETURN_THEM


def _fields(result: Any) -> tuple[str, ...]:
    """List the fields of a named tuple; torch.max and others return some."""
    named = getattr(result, "_fields", ()) or getattr(type(result), "__match_args__", ())
    fields = tuple(map(str, named))
    return fields if len(fields) == len(result) else ()


def _inside(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)


def _at(name: str) -> str:
    return f" at '{name}'" if name else ""


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


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


def _overlap(before: torch.Tensor, after: torch.Tensor) -> bool:
    (begin, end), (first, last) = _range(before), _range(after)
    return before.device == after.device and begin < last and first < end


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
