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
from ._ops import add_op_namespace_prefix, ops

FACTS = json.loads(Path(__file__).with_name("variant.json").read_text("utf-8"))
NAMES = [name for name, _ in FACTS["arguments"]]
TENSORS = [name for name, kind in FACTS["arguments"] if kind == "Tensor"]
OTHERS = [name for name in NAMES if name not in TENSORS]
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
    tensors = [inputs[name] for name in TENSORS]
    if why := _elsewhere(tensors):
        return why
    kinds = tuple((str(x.dtype)[6:], x.shape) for x in tensors)
    return _outside(kinds, tuple(inputs[name] for name in OTHERS))


def _elsewhere(tensors: list[torch.Tensor]) -> str:
    devices = {x.device for x in tensors}
    if len(devices) > 1 or not tensors[0].is_cuda:
        return f"the inputs are on {', '.join(sorted(map(str, devices)))}, and not on one GPU"
    if FACTS["capabilities"] and _capability(tensors[0].device) not in FACTS["capabilities"]:
        return f"it is built for compute capability {', '.join(FACTS['capabilities'])}"
    return ""


@cache
def _capability(device: torch.device) -> str:
    major, minor = torch.cuda.get_device_capability(device)
    return f"{major}.{minor}{'a' if major >= 9 else ''}"


@lru_cache(4096)
def _outside(kinds: tuple[tuple[str, torch.Size], ...], others: tuple[Any, ...]) -> str:
    types, shapes = [kind for kind, _ in kinds], [shape for _, shape in kinds]
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


def _call(*arguments: Any) -> Any:
    inputs = dict(zip(NAMES, arguments, strict=True))
    why = why_not(inputs)
    with torch.autocast(inputs[TENSORS[0]].device.type, enabled=False):
        if not why:
            try:
                return _packed(_settled(out, inputs) for out in _ours(inputs))
            except (NotImplementedError, ImportError) as error:
                why = str(error).partition("\n")[0]
        if _is_strict:
            raise NotImplementedError(f"{FACTS['variant']} is not run: {why}")
        counts[f"reference: {why}"] += 1
        if counts[f"reference: {why}"] == 1:
            warnings.warn(f"{FACTS['package']}: the reference is used: {why}", stacklevel=2)
        return _packed(_settled(out, inputs) for out in reference(**inputs))


def _ours(inputs: dict[str, Any]) -> list[torch.Tensor]:
    device = inputs[TENSORS[0]].device
    with torch.cuda.device(device):
        outputs = _tensors(_module(device).run(**{n: _laid_out(n, x) for n, x in inputs.items()}))
    counts[FACTS["variant"]] += 1
    return outputs


def _module(device: torch.device) -> Any:
    """Return the variant's module. One that may keep something from call to call, such as a counter
    that its blocks share, is loaded for each stream, and anew for each call that is captured.
    """
    key: Any = device
    if FACTS["keeps"]:
        key = (device, torch.cuda.current_stream(device).cuda_stream)
        if torch.cuda.is_current_stream_capturing():
            key = len(_modules)
    if key not in _modules:
        _modules[key] = cuda.load(FACTS["module"], FACTS["params"])
    return _modules[key]


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
    with torch.no_grad(), torch.autocast(inputs[TENSORS[0]].device.type, enabled=False):
        made = _tensors(getattr(study(), "outputs", reference)(**inputs))
    return _packed(_like(out, inputs) for out in made)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*[x for x in inputs if isinstance(x, torch.Tensor)])
    ctx.others = [None if isinstance(x, torch.Tensor) else x for x in inputs]


def _backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
    saved = iter(ctx.saved_tensors)
    values = [next(saved) if other is None else other for other in ctx.others]
    made = study().backward(gradients, **dict(zip(NAMES, values, strict=True)))
    return tuple(made.get(name) for name in NAMES)


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, dict):
        return list(result.values())
    return list(result) if isinstance(result, tuple | list) else [result]


def _packed(outputs: Any) -> Any:
    outputs = tuple(outputs)
    return outputs[0] if len(outputs) == 1 else outputs


def _laid_out(name: str, value: Any) -> Any:
    """Lay a tensor out as the variant was checked with it, by a copy where it is not so already."""
    if name not in TENSORS:
        return value
    resolved = value.resolve_conj().resolve_neg()
    resolved = resolved if name in STRIDED else resolved.contiguous()
    return resolved if resolved.data_ptr() % 16 == 0 else resolved.clone()


def _like(out: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
    """Return an empty tensor in the layout that the operator returns: that of the first strided
    input of its shape and type, else in order.
    """
    for x in [inputs[name] for name in STRIDED if not getattr(study(), "contiguous", False)]:
        if x.shape == out.shape and x.dtype == out.dtype:
            return torch.empty_like(x)
    return torch.empty(out.shape, dtype=out.dtype, device=out.device)


def _settled(out: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
    """Return the output in its layout, in memory of its own."""
    memory = out.untyped_storage().data_ptr()
    is_own = all(memory != inputs[name].untyped_storage().data_ptr() for name in TENSORS)
    if is_own and not STRIDED and out.is_contiguous():
        return out
    fitting = _like(out, inputs)
    return out if is_own and out.stride() == fitting.stride() else fitting.copy_(out)


def _registered() -> Any:
    unsafe = getattr(torch.Tag, "cudagraph_unsafe", None) if FACTS["keeps"] else None
    operator = torch.library.custom_op(
        add_op_namespace_prefix(FACTS["function"]), _call, mutates_args=(), schema=FACTS["schema"],
        tags=[] if unsafe is None else [unsafe],
    )  # fmt: skip
    operator.register_fake(_fake)
    if FACTS["has_backward"]:
        operator.register_autograd(_backward, setup_context=_setup)
    return getattr(ops, FACTS["function"])


run = _registered()
