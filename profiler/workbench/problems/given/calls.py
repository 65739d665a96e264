"""Calls of the user's functions: a variant as it is, a reference in double precision or in its own,
and ``Model`` and ``ModelNew`` of a KernelBench problem.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from workbench.errors import UsageError, unknown
from workbench.problems.given.inputs import Empty, filled, rebuilt
from workbench.problems.given.user_module import File
from workbench.words import Inputs


def call(function: Callable[..., Any], inputs: Inputs, *, data: bool = False) -> Any:
    """What a function makes of the inputs: one tensor, or several.

    ``data``: they are its one argument, put together again. Of a function that returns nothing,
    what it was given to write into.
    """
    whole, fresh = filled(inputs)
    given, keywords = ([rebuilt(whole)], {}) if data else bound(function, whole)
    return _of(function, given, fresh, keywords)


_needs_gradients: set[Callable[..., Any]] = set()


def _of(
    function: Callable[..., Any],
    given: Iterable[Any],
    fresh: Sequence[Any],
    keywords: Inputs | None = None,
) -> Any:
    """Gradients are recorded only for an input that requires one, and for a function that calls
    autograd itself.
    """
    import torch

    given, keywords = tuple(given), keywords or {}
    wanted = any(getattr(v, "requires_grad", False) for v in (*given, *keywords.values()))
    try:
        with torch.set_grad_enabled(wanted or function in _needs_gradients):
            out = function(*given, **keywords)
    except RuntimeError as error:
        if "does not require grad" not in str(error) or function in _needs_gradients:
            raise
        _needs_gradients.add(function)
        with torch.enable_grad():
            out = function(*given, **keywords)
    return own_results(fresh if out is None and fresh else out, (*given, *keywords.values()))


def own_results(out: Any, given: Sequence[Any]) -> Any:
    """Without the plain values of a tuple and the inputs that it hands back, if tensors of its own
    are left.
    """
    import torch

    if not isinstance(out, tuple | list):
        return out
    known = {v.untyped_storage().data_ptr() for v in given if isinstance(v, torch.Tensor)}
    tensors = [part for part in out if isinstance(part, torch.Tensor)]
    made = [part for part in tensors if part.untyped_storage().data_ptr() not in known]
    nested = any(isinstance(part, tuple | list | dict) for part in out)
    return only(out if nested else made or tensors or out)


def one(inputs: Inputs, name: str) -> Any:
    """The input that a call of ``--vs`` names. Raises UsageError for what is none."""
    if name not in inputs:
        raise unknown("input in --vs", name, inputs)
    return inputs[name]


def afterwards(inputs: Inputs, out: Any, changed: Sequence[str]) -> Any:
    """What a call returned that is none of its inputs, then those that it ``changed``."""
    if not changed:
        return out
    left = {name: inputs[name] for name in changed}
    if isinstance(out, dict):
        return {**out, **left}
    made = out if isinstance(out, tuple | list) else () if out is None else (out,)
    given = {value.data_ptr() for value in inputs.values() if hasattr(value, "data_ptr")}
    return only((*(one for one in made if one.data_ptr() not in given), *left.values()))


def only(out: Any) -> Any:
    """One of one, several as a plain tuple; the tensors of a dict stay by name."""
    if not isinstance(out, tuple | list):
        return out
    return out[0] if len(out) == 1 else tuple(out)


def bound(function: Callable[..., Any], inputs: Inputs) -> tuple[list[Any], Inputs]:
    """Positional and keyword arguments of a call with the inputs.

    Inputs go to the parameters of their names. Tensors without one go to the parameters that are
    left, in order; plain values without one only where the function requires another argument.
    Raises UsageError for a tensor that no parameter takes.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin
        return list(inputs.values()), {}
    kinds = {parameter.kind for parameter in parameters}
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    found = {p.name: inputs[p.name] for p in named if p.name in inputs}
    rest = {name: value for name, value in inputs.items() if name not in found}
    if not found and inspect.Parameter.VAR_POSITIONAL in kinds:
        return list(inputs.values()), {}
    others = {}
    if inspect.Parameter.VAR_KEYWORD in kinds:
        others, rest = rest, {}
    for parameter in sorted(named, key=lambda p: p.default is not p.empty):
        if parameter.name in found or not rest:
            continue
        required = parameter.default is parameter.empty
        name = next((n for n, v in rest.items() if required or _is_tensor(v)), None)
        if name is not None:
            found[parameter.name] = rest.pop(name)
    if left := [name for name, value in rest.items() if _is_tensor(value)]:
        raise UsageError(
            f"{getattr(function, '__name__', function)}{inspect.signature(function)} takes no "
            f"'{left[0]}'",
            hint="inputs go to the parameters of their names: rename the input or the parameter",
        )
    given: list[Any] = []
    for at, parameter in enumerate(named):
        by_position = parameter.kind is parameter.POSITIONAL_ONLY or at == len(given)
        if parameter.kind is parameter.KEYWORD_ONLY or not by_position:
            continue
        if parameter.name in found:
            given.append(found.pop(parameter.name))
        elif parameter.kind is parameter.POSITIONAL_ONLY and found:
            given.append(parameter.default)
    return given, {**found, **others}


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def exact(function: Callable[[Inputs], Any], inputs: Inputs, changed: Sequence[str] = ()) -> Any:
    """A reference in double precision: its inputs are doubles, and where it says float32, so are
    its own. ``changed`` are inputs that belong to the result if it changes them. Raises whatever it
    raises that takes no doubles.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Widened(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """Else torch imports its compiler, seconds in every process."""
            return False

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            given = dict(kwargs or {})
            if given.get("dtype") is torch.float32:
                given["dtype"] = torch.float64
            return func(*args, **given)

    def wide(value: Any) -> Any:
        if isinstance(value, Empty):
            return value.widened()
        if isinstance(value, torch.Tensor):
            return value.double() if value.is_floating_point() else value.clone()
        return value

    own = {name: wide(value) for name, value in inputs.items()}
    with torch.no_grad(), Widened():  # type: ignore[no-untyped-call]
        out = function(own)
    return doubles(_with_changed(own, out, changed, {n: wide(inputs[n]) for n in changed}))


def plain(function: Callable[[Inputs], Any], inputs: Inputs, changed: Sequence[str] = ()) -> Any:
    """A reference in the precision of its inputs, which it may change; ``changed`` as above."""
    import torch

    own = {name: _copied(value) for name, value in inputs.items()}
    with torch.no_grad():
        out = function(own)
    return doubles(_with_changed(own, out, changed, {n: inputs[n] for n in changed}))


def _with_changed(own: Inputs, out: Any, changed: Sequence[str], before: Inputs) -> Any:
    import torch

    if any(torch.equal(own[name], before[name]) for name in changed):
        return out
    return afterwards(own, out, changed)


def _copied(value: Any) -> Any:
    import torch

    return value.clone() if isinstance(value, torch.Tensor) else value


def doubles(out: Any) -> Any:
    """The same in float64; integers and truth values as they are."""
    import torch

    out = only(out)
    if isinstance(out, torch.Tensor):
        return out.detach().double() if out.is_floating_point() else out.detach()
    if isinstance(out, dict):
        return {name: doubles(part) for name, part in out.items()}
    if isinstance(out, tuple | list):
        return tuple(map(doubles, out))
    return out


def accepted(check: Callable[[Any, Any], Any], inputs: Inputs, out: Any) -> str:
    """Why a format's own check refuses an output, "" where it does not."""
    own = {n: v.new() if isinstance(v, Empty) else _copied(v) for n, v in inputs.items()}
    result = check(rebuilt(own), out)
    good, why = result if isinstance(result, tuple) else (not result, str(result or ""))
    return "" if good else f"check_implementation() refuses it: {why or 'without a reason'}"


def compared(function: Callable[..., Any], inputs: Inputs) -> Any:
    """A function that is known by its name alone, called with the tensors; with ``dim=-1`` where it
    does not do without, and with the plain values where it needs them.
    """
    import torch

    known = {n: v for n, v in inputs.items() if not isinstance(v, Empty)}
    tensors = [value for value in known.values() if isinstance(value, torch.Tensor)]
    with torch.no_grad():
        try:
            return only(function(*tensors))
        except TypeError as error:
            refused = error
        for others, keywords in (((), {"dim": -1}), (list(known.values())[len(tensors) :], {})):
            try:
                return only(function(*tensors, *others, **keywords))
            except TypeError:
                continue
    raise refused


def called(function: Callable[..., Any], inputs: Inputs, *, reads: bool = False) -> Any:
    """In the order of the inputs, whatever the parameters are called; see ``call``.

    ``reads``: without what is only written into.
    """
    if reads:
        inputs = {name: value for name, value in inputs.items() if not isinstance(value, Empty)}
    whole, fresh = filled(inputs)
    return _of(function, whole.values(), fresh)


def by_name(out: Any, names: Sequence[str]) -> Any:
    """Outputs in the order of a definition, of which a function may give a dict."""
    return only([out[name] for name in names]) if isinstance(out, dict) else out


def put(inputs: Inputs, names: Sequence[str], out: Any) -> Any:
    """A reference's last results where what is tried leaves its own: in the inputs that it changes.
    Returns the results before them; all of a reference that changes these inputs itself.
    """
    results = list(out) if isinstance(out, tuple | list) else [out]
    last = results[-len(names) :]
    if [getattr(one, "shape", None) for one in last] != [inputs[name].shape for name in names]:
        return out
    for name, result in zip(names, last, strict=True):
        if result.data_ptr() != inputs[name].data_ptr():
            inputs[name].copy_(result)
    return only(results[: -len(names)]) if len(results) > len(names) else None


SEED = 42  # that of the benchmark, ``eval_kernel_against_ref``


class Network:
    """The ``Model`` of a problem, or the ``ModelNew`` of ``new``: made at the first call.

    ``double`` is another one of the same parameters in float64.
    """

    def __init__(self, file: File, new: File | None = None, *, compiled: bool = False) -> None:
        self.file, self.new, self.is_compiled = file, new, compiled
        self._made: dict[bool, Any] = {}

    def __call__(self, inputs: Inputs) -> Any:
        import torch

        with torch.no_grad():
            return only(self._of(inputs, exact=False)(*inputs.values()))

    def double(self, inputs: Inputs) -> Any:
        return self._of(inputs, exact=True)(*inputs.values())

    def _of(self, inputs: Inputs, *, exact: bool) -> Any:
        import torch

        if exact not in self._made:
            tensors = [v for v in inputs.values() if isinstance(v, torch.Tensor | Empty)]
            device = tensors[0].device if tensors else torch.device("cuda")
            model = self.model("Model", self.file, device)
            if self.new is not None:
                model = _with_parameters(self.model("ModelNew", self.new, device), model)
            model = model.double() if exact else model
            self._made[exact] = torch.compile(model) if self.is_compiled else model
        return self._made[exact]

    def model(self, name: str, file: File, device: Any) -> Any:
        import torch

        with torch.device(device):
            torch.manual_seed(SEED)
            init: list[Any] = getattr(self.file.module, "get_init_inputs", list)()
            torch.manual_seed(SEED)
            made = getattr(file, name)(*init)
        if not isinstance(made, torch.nn.Module):
            raise UsageError(f"{file.path.name}: {name} is no torch.nn.Module")
        return made.to(device)


def _with_parameters(model: Any, like: Any) -> Any:
    """With those of the other one where names and shapes are the same; else they are its own, of
    the same seed.
    """
    state, own = like.state_dict(), model.state_dict()
    if {n: t.shape for n, t in state.items()} == {n: t.shape for n, t in own.items()}:
        model.load_state_dict(state)
    return model
