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
NAMES = [name for name, _ in FACTS["arguments"]]
TENSORS = [name for name, kind in FACTS["arguments"] if kind == "Tensor"]
OTHERS = [name for name in NAMES if name not in TENSORS]
FIRST = NAMES.index(TENSORS[0])
EAGER = {torch._C.DispatchKey.CUDA, torch._C.DispatchKey.CPU}
DOMAIN, STRIDED = FACTS["domain"], FACTS["domain"]["strided"]
counts: Counter[str] = Counter()  # how often the variant answered, and the reference by reason
_is_strict = False  # see strict()
_modules: dict[Any, Any] = {}


def strict(always: bool) -> None:
    """Raise NotImplementedError in place of using the reference, from now on."""
    global _is_strict
    _is_strict = always


@cache
def study() -> Any:
    """Return the study's module: inputs, shapes, tolerance, and the reference in float64."""
    return cuda.load("study", {})


def why_not(inputs: dict[str, Any]) -> str:
    """Say why the variant does not answer these inputs; "" if it does."""
    return _why_not(
        tuple([(x.dtype, x.shape, x.device) for x in [inputs[name] for name in TENSORS]]),
        tuple([inputs[name] for name in OTHERS]),
    )


@lru_cache(4096)  # a call looks up its answer: to find it takes longer than a kernel
def _why_not(kinds: tuple[Any, ...], others: tuple[Any, ...]) -> str:
    types, shapes = [str(dtype)[6:] for dtype, _, _ in kinds], [shape for _, shape, _ in kinds]
    if why := _elsewhere({device for _, _, device in kinds}):
        return why
    ranks = list(map(len, shapes))
    case = next((case for case in DOMAIN["cases"] if case["ranks"] == ranks), None)
    if case is None:
        return f"tensors of {ranks} dimensions: it was checked for others"
    if 0 in [extent for shape in shapes for extent in shape]:
        return "a tensor without elements"
    for name, value in zip(OTHERS, others, strict=True):
        if (allowed := DOMAIN["values"][name]) and value not in allowed:
            return f"{name}={value!r}: it was only checked for {allowed}"
    if types not in case["dtypes"]:
        checked = " or ".join(map(", ".join, case["dtypes"]))
        return f"{', '.join(types)} for {', '.join(TENSORS)}: it was checked for {checked}"
    for places, extent in case["same"]:
        extents = [shapes[which][place] for which, place in places]
        if set(extents) != {extent or extents[0]}:
            sizes = " and ".join(f"{TENSORS[which]}.shape[{place}]" for which, place in places)
            return f"{sizes}: only checked where {extent or 'equal'}, not for {extents}"
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
    device = arguments[FIRST].device
    if torch.is_autocast_enabled(device.type):
        with torch.autocast(device.type, enabled=False):
            return _call(*arguments)
    inputs = dict(zip(NAMES, arguments, strict=True))
    if not (why := why_not(inputs)):
        try:
            if device.index == torch.cuda.current_device():
                return _ours(inputs, device)
            with torch.cuda.device(device):
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
        if name not in STRIDED and not x.is_contiguous():
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
    key: Any = device
    if FACTS["keeps"]:
        key = (device, torch._C._cuda_getCurrentRawStream(device.index))
        if torch.cuda.is_current_stream_capturing():
            key = len(_modules)
    if (module := _modules.get(key)) is None:
        module = _modules[key] = cuda.load(FACTS["module"], FACTS["params"])
    return module


def reference(**inputs: Any) -> list[torch.Tensor]:
    """Compute what answers where the variant does not."""
    if FACTS["reference"]:
        return _tensors(_reference().run(**inputs))
    kind = next((inputs[n].dtype for n in TENSORS if inputs[n].is_floating_point()), torch.float64)
    results = _tensors(study().reference(**inputs))
    return [x.to(kind) if x.is_floating_point() else x for x in results]


@cache
def _reference() -> Any:
    return cuda.load(FACTS["reference"], FACTS["reference_params"])


def _fake(*arguments: Any) -> Any:
    inputs = dict(zip(NAMES, arguments, strict=True))
    with torch.no_grad(), torch.autocast(arguments[FIRST].device.type, enabled=False):
        made = _tensors(getattr(study(), "outputs", reference)(**inputs))
    return _packed(_like(out, inputs) for out in made)


def _below_autograd(keys: Any, arguments: tuple[Any, ...]) -> Any:
    """Call the operator's next kernel: in eager mode ``_call``, without another dispatch."""
    keys &= torch._C._after_ADInplaceOrView_keyset
    with torch._C._AutoDispatchBelowAutograd():
        if keys.highestPriorityTypeId() in EAGER:
            return _call(*arguments)
        return run.redispatch(keys, *arguments)


class _Gradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keys: Any, *arguments: Any) -> Any:  # type: ignore[override]
        ctx.save_for_backward(*[x for x in arguments if isinstance(x, torch.Tensor)])
        ctx.others = [None if isinstance(x, torch.Tensor) else x for x in arguments]
        return _below_autograd(keys, arguments)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if not FACTS["has_backward"]:
            raise RuntimeError(f"{FACTS['package']} has no gradient: its study has no backward()")
        saved = iter(ctx.saved_tensors)
        values = [next(saved) if other is None else other for other in ctx.others]
        made = study().backward(gradients, **dict(zip(NAMES, values, strict=True)))
        return None, *map(made.get, NAMES)


def _autograd(keys: Any, *arguments: Any) -> Any:
    if torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments):
        return _Gradient.apply(keys, *arguments)
    return _below_autograd(keys, arguments)


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, dict):
        return list(result.values())
    return list(result) if isinstance(result, tuple | list) else [result]


def _packed(outputs: Any) -> Any:
    outputs = tuple(outputs)
    return outputs[0] if len(outputs) == 1 else outputs


def _like(out: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
    """Return an empty tensor in the layout that the operator returns: that of the first strided
    input of its shape and type, else in order.
    """
    for x in [inputs[name] for name in STRIDED if not getattr(study(), "contiguous", False)]:
        if x.shape == out.shape and x.dtype == out.dtype:
            return torch.empty_like(x)
    return torch.empty(out.shape, dtype=out.dtype, device=out.device)


def _settled(outputs: list[torch.Tensor], inputs: dict[str, Any]) -> Any:
    """Return the outputs in their layout, each in memory of its own."""
    taken = [inputs[name].untyped_storage().data_ptr() for name in TENSORS]
    for index, out in enumerate(outputs):
        is_own = (memory := out.untyped_storage().data_ptr()) not in taken
        taken.append(memory)
        if is_own and not STRIDED and out.is_contiguous():
            continue
        fitting = _like(out, inputs)
        if not is_own or out.stride() != fitting.stride():
            outputs[index] = fitting.copy_(out)
    return _packed(outputs)


def _registered() -> Any:
    """Define the operator by hand: ``torch.library.custom_op`` doubles the time of a call."""
    tags = [torch.Tag.pt2_compliant_tag]
    if FACTS["keeps"] and hasattr(torch.Tag, "cudagraph_unsafe"):
        tags.append(torch.Tag.cudagraph_unsafe)
    name = FACTS["function"]
    library.define(name + FACTS["schema"], tags=tags)
    library.impl(name, _call, "CompositeExplicitAutograd")
    library.impl(name, _autograd, "Autograd", with_keyset=True)
    torch.library.register_fake(f"{ops.name}::{name}", _fake, lib=library)
    return getattr(ops, name).default


library = torch.library.Library(ops.name, "FRAGMENT")
run = _registered()
