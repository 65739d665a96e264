"""Register the operator. The variant answers what it was checked for, the reference the rest."""

from __future__ import annotations

import itertools
import json
import warnings
from collections import Counter
from contextlib import nullcontext
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch

from . import cuda
from ._ops import ops

FACTS = json.loads(Path(__file__).with_name("variant.json").read_text("utf-8"))
NAMES = [name for name, _ in FACTS["arguments"]]
TENSORS = [name for name, kind in FACTS["arguments"] if kind == "Tensor"]
OTHERS = [name for name in NAMES if name not in TENSORS]
CALLS = FACTS["calls"]  # that it was checked for
VALUES = [call["values"] for call in CALLS]
counts: Counter[str] = Counter()  # how often the variant answered, and the reference by reason
_is_strict = False  # see strict()
_captured = itertools.count()


def strict(always: bool) -> None:
    """Raise NotImplementedError in place of using the reference, from now on."""
    global _is_strict
    _is_strict = always


@cache
def _loaded(role: str, copy: Any = None) -> Any:
    """Load the module of a role, "study", "variant" or "reference", once for each copy of it."""
    return cuda.load(*FACTS["modules"][role])


def study() -> Any:
    """Return the study's module: inputs, shapes, tolerance, and the reference in float64."""
    return _loaded("study")


def why_not(inputs: dict[str, Any]) -> str:
    """Say why the variant does not answer these inputs; "" if it does."""
    return _why_not(
        tuple([(x.dtype, x.shape, x.device) for x in [inputs[name] for name in TENSORS]]),
        tuple([inputs[name] for name in OTHERS]),
    )


@lru_cache(4096)  # a call looks up its answer: to find it takes longer than a kernel
def _why_not(kinds: tuple[Any, ...], others: tuple[Any, ...]) -> str:
    types, shapes, devices = zip(*kinds, strict=True)
    if why := _elsewhere(set(devices)):
        return why
    for name, value, checked in zip(OTHERS, others, zip(*VALUES, strict=True), strict=True):
        is_free = type(value) in (int, float) and len(set(checked)) > 1
        if value not in checked and not is_free:
            return f"{name}={value!r}: it was only checked for {sorted(set(checked))}"
    ranks = [len(shape) for shape in shapes]
    calls = [call for call in CALLS if [len(shape) for shape in call["shapes"]] == ranks]
    if not calls:
        return f"tensors of {ranks} dimensions: it was checked for others"
    if (names := [str(dtype)[6:] for dtype in types]) not in [call["dtypes"] for call in calls]:
        return f"{', '.join(names)} for {', '.join(TENSORS)}: it was checked for other types"
    places = [(name, place) for name, n in zip(TENSORS, ranks, strict=True) for place in range(n)]
    sizes = list(itertools.chain(*shapes))
    checked = list(zip(*[itertools.chain(*call["shapes"]) for call in calls], strict=True))
    for (name, place), size, extents in zip(places, sizes, checked, strict=True):
        wanted = extents[0] if len(set(extents)) == 1 else sizes[checked.index(extents)]
        if size != wanted or not size:
            return f"{name}.shape[{place}] is {size}: for this call it was only checked as {wanted}"
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
    device = inputs[TENSORS[0]].device
    if torch.is_autocast_enabled(device.type):
        with torch.autocast(device.type, enabled=False):
            return _call(*arguments)
    if not (why := why_not(inputs)):
        try:
            is_current = device.index == torch.cuda.current_device()
            with nullcontext() if is_current else torch.cuda.device(device):
                return _ours(inputs, device)
        except (NotImplementedError, ImportError) as error:
            why = str(error).partition("\n")[0]
    if _is_strict:
        raise NotImplementedError(f"{FACTS['variant']} is not run: {why}")
    counts[f"reference: {why}"] += 1
    if counts[f"reference: {why}"] == 1:
        warnings.warn(f"{FACTS['package']}: the reference is used: {why}", stacklevel=2)
    return _settled(reference(**inputs), inputs)


def _ours(inputs: dict[str, Any], device: torch.device) -> Any:
    laid_out = dict(inputs)
    for name in TENSORS:
        x = inputs[name]
        if name not in FACTS["strided"] and not x.is_contiguous():
            laid_out[name] = x = x.contiguous()
        if x.data_ptr() % 16:
            laid_out[name] = x.clone()
    outputs = _tensors(_module(device).run(**laid_out))
    counts[FACTS["variant"]] += 1
    return _settled(outputs, inputs)


def _module(device: torch.device) -> Any:
    """Return the variant's module. One that may keep something from call to call, such as a counter
    that its blocks share, is loaded for each stream, and anew for each call that is captured.
    """
    if not FACTS["keeps"]:
        return _loaded("variant")
    if torch.cuda.is_current_stream_capturing():
        return _loaded("variant", next(_captured))
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
    values = dict(zip(NAMES, inputs, strict=True))
    ctx.save_for_backward(*[values[name] for name in TENSORS])
    ctx.others = {name: values[name] for name in OTHERS}


def _backward(ctx: Any, *gradients: Any) -> Any:
    if not hasattr(study(), "backward"):
        raise RuntimeError(f"{FACTS['package']} has no gradient: its study has no backward()")
    inputs = dict(zip(TENSORS, ctx.saved_tensors, strict=True)) | ctx.others
    made = study().backward(gradients, **inputs)
    return tuple(map(made.get, NAMES))


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, dict):
        return list(result.values())
    return list(result) if isinstance(result, tuple | list) else [result]


def _packed(outputs: list[torch.Tensor]) -> Any:
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _settled(outputs: list[torch.Tensor], inputs: dict[str, Any]) -> Any:
    """Return the outputs in order, each in memory of its own."""
    taken = [inputs[name].untyped_storage().data_ptr() for name in TENSORS]
    for index, out in enumerate(outputs):
        if (memory := out.untyped_storage().data_ptr()) in taken or not out.is_contiguous():
            outputs[index] = out.clone(memory_format=torch.contiguous_format)
        taken.append(memory)
    return _packed(outputs)


tags = [torch.Tag.pt2_compliant_tag]
if FACTS["keeps"] and hasattr(torch.Tag, "cudagraph_unsafe"):
    tags.append(torch.Tag.cudagraph_unsafe)
NAME = f"{ops.name}::{FACTS['function']}"
library = torch.library.Library(ops.name, "FRAGMENT")  # custom_op doubles the time of a call
typed = ", ".join(f"{kind} {name}" for name, kind in FACTS["arguments"])
results = ", ".join(["Tensor"] * FACTS["outputs"])
library.define(f"{FACTS['function']}({typed}) -> ({results})", tags=tags)
library.impl(FACTS["function"], _call, "CompositeExplicitAutograd")
torch.library.register_fake(NAME, _fake, lib=library)
torch.library.register_autograd(NAME, _backward, setup_context=_save, lib=library)
run = getattr(ops, FACTS["function"]).default
