"""Register the operator. The variant answers what it was checked for, the reference the rest."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch

from . import cuda
from ._ops import ops

FACTS = json.loads(Path(__file__).with_name("variant.json").read_text("utf-8"))
VARIANT, FUNCTION, CALLS = FACTS["variant"], FACTS["function"], FACTS["calls"]  # it was checked for
NAMES = [name for name, _ in FACTS["arguments"]]
TENSORS = [name for name, kind in FACTS["arguments"] if kind == "Tensor"]
OTHERS = [name for name in NAMES if name not in TENSORS]
counts: Counter[str] = Counter()  # how often the variant answered, and the reference by reason
_is_strict = False  # see strict()


def strict(always: bool) -> None:
    """Raise NotImplementedError in place of using the reference, from now on."""
    global _is_strict
    _is_strict = always


@cache
def _loaded(role: str, copy: Any = None) -> Any:
    """Load the module of a role, "study", "variant" or "reference", once for each copy of it."""
    name, values = FACTS["modules"][role]
    return cuda.variant(name, **values)


def study() -> Any:
    """Return the study's module: inputs, shapes, tolerance, and the reference in float64."""
    return _loaded("study")


def run(*arguments: Any, **named: Any) -> Any:
    """Call the operator. Without a gradient it is an overload that has no kernel of autograd, which
    would double the time of a call.
    """
    if torch.is_grad_enabled():
        for value in (*arguments, *named.values()):
            if getattr(value, "requires_grad", False):
                return operator(*arguments, **named)
    return without_gradient(*arguments, **named)


@lru_cache(4096)  # a call looks up its answer: to find it takes longer than a kernel
def _why_not(kinds: tuple[Any, ...], others: tuple[Any, ...]) -> str:
    """Say why the variant does not answer tensors of such types, sizes and devices, with these
    other inputs; "" if it does.
    """
    if why := _elsewhere({device for _, _, device in kinds}):
        return why
    call, types = dict(zip(OTHERS, others, strict=True)), {}
    for name, (dtype, shape, _) in zip(TENSORS, kinds, strict=True):
        types[f"{name}.dtype"] = str(dtype)[6:]
        call |= {f"{name}.shape[{axis}]": size for axis, size in enumerate(shape)}
    like = [checked for checked in CALLS if checked.keys() == call.keys() | types.keys()]
    if not like:
        ranks = [len(shape) for _, shape, _ in kinds]
        return f"tensors of {ranks} dimensions: it was checked for others"
    if not any(types.items() <= checked.items() for checked in like):
        return (
            f"{', '.join(types.values())} for {', '.join(TENSORS)}: it was checked for other types"
        )
    firsts: dict[tuple[Any, ...], Any] = {}  # the first size, by what it was in the checks
    for field, value in call.items():
        checked = tuple([each[field] for each in like])
        is_constant = len(set(checked)) == 1
        if field in OTHERS and value not in checked and (is_constant or type(value) in (bool, str)):
            return f"{field} is {value!r}: it was only checked for {sorted(set(checked))}"
        if field not in OTHERS:
            wanted = checked[0] if is_constant else firsts.setdefault(checked, value)
            if value != wanted or not value:
                return f"{field} is {value}: for this call it was only checked as {wanted}"
    return ""


def _elsewhere(devices: set[torch.device]) -> str:
    device = next(iter(devices))
    if len(devices) > 1 or device.type != "cuda":
        return f"the inputs are on {', '.join(sorted(map(str, devices)))}, and not on one GPU"
    major, minor = torch.cuda.get_device_capability(device)
    capability = f"{major}.{minor}{'a' if major >= 9 else ''}"
    if FACTS["capabilities"] and capability not in FACTS["capabilities"]:
        return f"it is built for compute capability {', '.join(FACTS['capabilities'])}"
    return ""


def _call(*arguments: Any) -> Any:
    inputs = dict(zip(NAMES, arguments, strict=True))
    tensors = [inputs[name] for name in TENSORS]
    device = tensors[0].device
    if torch.is_autocast_enabled(device.type):
        with torch.autocast(device.type, enabled=False):
            return _call(*arguments)
    kinds = tuple([(x.dtype, x.shape, x.device) for x in tensors])
    if not (why := _why_not(kinds, tuple([inputs[name] for name in OTHERS]))):
        try:
            if device.index == torch.cuda.current_device():
                return _ours(inputs, tensors, device)
            with torch.cuda.device(device):
                return _ours(inputs, tensors, device)
        except (NotImplementedError, ImportError) as error:
            why = str(error).partition("\n")[0]
    if _is_strict:
        raise NotImplementedError(f"{VARIANT} is not run: {why}")
    counts[f"reference: {why}"] += 1
    if counts[f"reference: {why}"] == 1:
        warnings.warn(f"{FACTS['package']}: the reference is used: {why}", stacklevel=2)
    return _settled(reference(**inputs), tensors)


def _ours(inputs: dict[str, Any], tensors: list[torch.Tensor], device: torch.device) -> Any:
    for name, x in zip(TENSORS, tensors, strict=True):
        if not x.is_contiguous() and name not in FACTS["strided"]:
            inputs[name] = x = x.contiguous()
        if x.data_ptr() % 16:
            inputs[name] = x.clone()
    outputs = _tensors(_module(device).run(**inputs))
    counts[VARIANT] += 1
    return _settled(outputs, tensors)


def _module(device: torch.device) -> Any:
    """Return the variant's module. One that may keep something from call to call, such as a counter
    that its blocks share, is loaded for each stream, and anew for each call that is captured.
    """
    if not FACTS["keeps"]:
        return _loaded("variant")
    if torch.cuda.is_current_stream_capturing():
        return _loaded("variant", object())
    return _loaded("variant", (device, torch._C._cuda_getCurrentRawStream(device.index)))


def reference(**inputs: Any) -> list[torch.Tensor]:
    """Compute what answers where the variant does not."""
    if "reference" in FACTS["modules"]:
        return _tensors(_loaded("reference").run(**inputs))
    kind = next((inputs[n].dtype for n in TENSORS if inputs[n].is_floating_point()), torch.float64)
    results = _tensors(study().reference(**inputs))
    return [x.to(kind) if x.is_floating_point() else x for x in results]


def _fake(*arguments: Any) -> Any:
    inputs = dict(zip(NAMES, arguments, strict=True))
    with torch.no_grad(), torch.autocast(inputs[TENSORS[0]].device.type, enabled=False):
        made = _tensors(getattr(study(), "outputs", reference)(**inputs))
    return _packed([torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in made])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    named = dict(zip(NAMES, inputs, strict=True))
    ctx.save_for_backward(*[named[name] for name in TENSORS])
    ctx.others = {name: named[name] for name in OTHERS}


def _backward(ctx: Any, *gradients: Any) -> Any:
    if not hasattr(study(), "backward"):
        raise RuntimeError(f"{FACTS['package']} has no gradient: its study has no backward()")
    inputs = dict(zip(TENSORS, ctx.saved_tensors, strict=True)) | ctx.others
    return tuple(map(study().backward(gradients, **inputs).get, NAMES))


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    return list(result.values() if isinstance(result, dict) else result)


def _packed(outputs: list[torch.Tensor]) -> Any:
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _settled(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> Any:
    """Return the outputs in order, each in memory of its own."""
    taken = [x.untyped_storage().data_ptr() for x in inputs]
    for index, out in enumerate(outputs):
        if out.untyped_storage().data_ptr() in taken or not out.is_contiguous():
            outputs[index] = out.clone(memory_format=torch.contiguous_format)
        taken.append(outputs[index].untyped_storage().data_ptr())
    return _packed(outputs)


tags = [torch.Tag.pt2_compliant_tag]
if FACTS["keeps"] and hasattr(torch.Tag, "cudagraph_unsafe"):
    tags.append(torch.Tag.cudagraph_unsafe)
library = torch.library.Library(ops.name, "FRAGMENT")  # custom_op doubles the time of a call
typed = ", ".join(f"{kind} {name}" for name, kind in FACTS["arguments"])
results = ", ".join(["Tensor"] * FACTS["outputs"])
for name in (FUNCTION, f"{FUNCTION}.without_gradient"):
    library.define(f"{name}({typed}) -> ({results})", tags=tags)
    library.impl(name, _call, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{ops.name}::{name}", _fake, lib=library)
NAME = f"{ops.name}::{FUNCTION}"
torch.library.register_autograd(NAME, _backward, setup_context=_save, lib=library)
operator = getattr(ops, FUNCTION).default
without_gradient = getattr(ops, FUNCTION).without_gradient
