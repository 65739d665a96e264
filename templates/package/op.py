"""Register the operator, and answer its calls: by the variant, or by the reference for inputs that
the variant was not checked for.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from . import cuda
from ._ops import add_op_namespace_prefix, ops

FACTS = json.loads((Path(__file__).resolve().parent / "variant.json").read_text("utf-8"))
NAMES = [name for name, _ in FACTS["arguments"]]
TENSORS = [name for name, kind in FACTS["arguments"] if kind == "Tensor"]
IN_PLACE = FACTS["in_place"]
STRIDED = FACTS["domain"]["strided"]
Inputs = dict[str, Any]

counts: Counter[str] = Counter()  # how often the variant answered, and the reference by reason
_is_strict = False
_modules: dict[Any, ModuleType] = {}
_refused: dict[Any, str] = {}  # by kind of inputs; "" for those of the variant


def strict(always: bool) -> None:
    """Raise NotImplementedError in place of using the reference, from now on."""
    global _is_strict
    _is_strict = always


@cache
def study() -> ModuleType:
    """Return the study's module: inputs, shapes, tolerance, and the reference in float64."""
    return cuda.load("study", {})


# ---- what the variant was checked for --------------------------------------------------------


def why_not(inputs: Inputs) -> str:
    """Say why the variant does not answer these inputs; "" if it does."""
    tensors = [inputs[name] for name in TENSORS]
    if why := _elsewhere(tensors):
        return why
    others = tuple((type(inputs[n]), inputs[n]) for n in NAMES if n not in TENSORS)
    key = (tuple((x.dtype, x.shape) for x in tensors), others)
    if key not in _refused:
        if len(_refused) > 4096:
            _refused.clear()
        _refused[key] = _outside(tensors, inputs)
    return _refused[key]


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


def _outside(tensors: list[torch.Tensor], inputs: Inputs) -> str:
    domain, ranks = FACTS["domain"], [x.dim() for x in tensors]
    case = next((case for case in domain["cases"] if case["ranks"] == ranks), None)
    if case is None:
        return f"tensors of {ranks} dimensions: it was checked for others"
    if any(x.numel() == 0 for x in tensors):
        return "a tensor without elements"
    for name, allowed in domain["values"].items():
        if allowed and inputs[name] not in allowed:
            return f"{name}={inputs[name]!r}: it was only checked for {allowed}"
    types = [str(x.dtype).removeprefix("torch.") for x in tensors]
    if types not in case["dtypes"]:
        checked = " or ".join(map(", ".join, case["dtypes"]))
        return f"{', '.join(types)} for {', '.join(TENSORS)}: it was checked for {checked}"
    for places in case["equal"]:
        if len({tensors[which].shape[at] for which, at in places}) > 1:
            same = " and ".join(f"{TENSORS[which]}.shape[{at}]" for which, at in places)
            return f"{same} differ: it was only checked where they are the same"
    for which, at, extent in case["fixed"]:
        if tensors[which].shape[at] != extent:
            return f"{TENSORS[which]}.shape[{at}]: it was only checked for {extent}"
    return ""


# ---- the operator ----------------------------------------------------------------------------


def _call(*arguments: Any) -> Any:
    inputs = dict(zip(NAMES, arguments, strict=True))
    with _without_autocast(inputs):
        why, outputs = why_not(inputs), None
        if not why:
            try:
                outputs = _ours(inputs)
            except (NotImplementedError, ImportError) as error:
                why = str(error).partition("\n")[0]
        if outputs is None:
            if _is_strict:
                raise NotImplementedError(f"{FACTS['variant']} is not run: {why}")
            counts[f"reference: {why}"] += 1
            if counts[f"reference: {why}"] == 1:
                warnings.warn(f"{FACTS['package']}: the reference is used: {why}", stacklevel=2)
            outputs = reference(**inputs)
    return _packed([_settled(out, inputs) for out in outputs])


def _ours(inputs: Inputs) -> list[torch.Tensor]:
    device = inputs[TENSORS[0]].device
    laid_out = {n: _aligned(inputs[n], n) if n in TENSORS else inputs[n] for n in NAMES}
    with torch.cuda.device(device):
        outputs = _tensors(_module(device).run(**laid_out), laid_out)
    for name in IN_PLACE:
        if laid_out[name] is not inputs[name]:
            inputs[name].copy_(laid_out[name])
    counts[FACTS["variant"]] += 1
    return outputs


def _module(device: torch.device) -> ModuleType:
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
        return _tensors(_reference()(**inputs), inputs)
    results = _tensors(study().reference(**inputs), {})
    kind = next((inputs[n].dtype for n in TENSORS if inputs[n].is_floating_point()), torch.float64)
    results = [x.to(kind) if x.is_floating_point() else x for x in results]
    for name, value in zip(IN_PLACE, results[len(FACTS["outputs"]) :], strict=False):
        inputs[name].copy_(value)
    return results[: len(FACTS["outputs"])]


@cache
def _reference() -> Callable[..., Any]:
    run: Callable[..., Any] = cuda.load(FACTS["reference"], FACTS["reference_params"]).run
    return run


def _fake(*arguments: Any) -> Any:
    inputs = dict(zip(NAMES, arguments, strict=True))
    if not FACTS["outputs"]:
        return None
    with torch.no_grad(), _without_autocast(inputs):
        scratch = {**inputs, **{name: torch.empty_like(inputs[name]) for name in IN_PLACE}}
        made = getattr(study(), "outputs", reference)(**scratch)
    return _packed([_like(out, inputs) for out in _tensors(made, {})])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*[x for x in inputs if isinstance(x, torch.Tensor)])
    ctx.others = [None if isinstance(x, torch.Tensor) else x for x in inputs]


def _backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
    """Differentiate by the study's own backward, else by the reference, which is computed again."""
    saved = iter(ctx.saved_tensors)
    values = [next(saved) if other is None else other for other in ctx.others]
    inputs = dict(zip(NAMES, values, strict=True))
    wanted = [name for name, need in zip(NAMES, ctx.needs_input_grad, strict=True) if need]
    with _without_autocast(inputs):
        if hasattr(study(), "backward"):
            by_name = study().backward(gradients, **inputs)
        else:
            by_name = _through_reference(inputs, wanted, gradients)
    return tuple(by_name.get(name) if name in wanted else None for name in NAMES)


def _through_reference(inputs: Inputs, wanted: list[str], gradients: Any) -> Mapping[str, Any]:
    again = torch.is_grad_enabled()  # the gradients are to be differentiated, too
    with torch.enable_grad():
        if not again:
            fresh = {name: inputs[name].detach().requires_grad_(name in wanted) for name in TENSORS}
            inputs = {**inputs, **fresh}
        pairs = [
            (out, gradient)
            for out, gradient in zip(reference(**inputs), gradients, strict=True)
            if gradient is not None and out.requires_grad
        ]
        if not pairs:
            return {}
        outputs, seeds = zip(*pairs, strict=True)
        asked = [inputs[name] for name in wanted]
        results = torch.autograd.grad(outputs, asked, seeds, create_graph=again, allow_unused=True)
    return dict(zip(wanted, results, strict=True))


# ---- tensors ---------------------------------------------------------------------------------


def _tensors(result: Any, inputs: Inputs) -> list[torch.Tensor]:
    """Return the tensors of a result in order, without inputs that were changed in place."""
    if isinstance(result, Mapping):
        result = list(result.values())
    results = list(result) if isinstance(result, tuple | list) else [result]
    changed = [inputs[name] for name in IN_PLACE if name in inputs]
    return [x for x in results if x is not None and not any(x is value for value in changed)]


def _packed(outputs: list[torch.Tensor]) -> Any:
    return (outputs[0] if len(outputs) == 1 else tuple(outputs)) if outputs else None


def _aligned(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Lay a tensor out as the variant was checked with it, by a copy where it is not so already."""
    resolved = tensor.resolve_conj().resolve_neg()
    resolved = resolved if name in STRIDED else resolved.contiguous()
    return resolved if resolved.data_ptr() % 16 == 0 else resolved.clone()


def _like(out: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Return an empty tensor in the layout that the operator returns: that of the first strided
    input of its shape and type, else in order.
    """
    laid_out = [] if getattr(study(), "contiguous", False) else STRIDED
    for x in (inputs[name] for name in laid_out):
        if x.shape == out.shape and x.dtype == out.dtype:
            return torch.empty_like(x)
    return torch.empty(out.shape, dtype=out.dtype, device=out.device)


def _settled(out: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """Return the output in its layout, in memory of its own."""
    memory = out.untyped_storage().data_ptr()
    is_own = all(memory != inputs[name].untyped_storage().data_ptr() for name in TENSORS)
    if is_own and not STRIDED and out.is_contiguous():
        return out
    fitting = _like(out, inputs)
    return out if is_own and out.stride() == fitting.stride() else fitting.copy_(out)


def _without_autocast(inputs: Inputs) -> Any:
    """Compute in the types of the tensors, as a compiled graph does."""
    kind = inputs[TENSORS[0]].device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)


def _registered() -> Any:
    tag = getattr(torch.Tag, "cudagraph_unsafe", None) if FACTS["keeps"] else None
    operator = torch.library.custom_op(
        add_op_namespace_prefix(FACTS["function"]),
        _call,
        mutates_args=tuple(f"{name}_" for name in IN_PLACE),
        schema=FACTS["schema"],
        tags=[] if tag is None else [tag],
    )
    operator.register_fake(_fake)
    if not IN_PLACE:  # torch differentiates no operator that changes its inputs
        operator.register_autograd(_backward, setup_context=_setup)
    return getattr(ops, FACTS["function"])


run = _registered()
