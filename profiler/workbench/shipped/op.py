"""A package's operator, by ``torch.library``, and who answers a call: the variant, or the
reference for what the variant does not support.

``torch.compile`` sees one node of its graph.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from workbench.cuda.cubin_folder import carry
from workbench.cuda.declare import overridden, take_declared
from workbench.errors import EnvironmentLacks, ToolFailed, UsageError
from workbench.shipped.dispatch import Instances, aligned, like, settled, tensors_of
from workbench.shipped.facts import CUBINS, FILE, TENSOR, Given, given_of, read
from workbench.words import Inputs, Parameter

REMEMBERED = 4096  # kinds of inputs, with whether the variant is run for them


class Operator:
    """The operator of a ``package``, named after it as it was imported, whose files stand in
    ``folder``.

    ``strict`` is what a call does that does not say: raise NotImplementedError where the variant
    does not support its inputs, in place of using the reference.
    """

    def __init__(self, package: str, folder: Path) -> None:
        self.strict = False
        self.namespace = package.replace(".", "_")
        self.facts = facts = read(folder / FILE)
        self._package = f"{package}.kernels.{facts.study}"
        self._sources = folder / "kernels" / facts.study
        self._instances = Instances(self._load, keeps=bool(facts.keeps))
        self._reference: Callable[..., Any] | None = None
        self._said: set[str] = set()
        self._without: dict[torch.device, str] = {}
        self._others = [name for name, kind in facts.arguments if kind != TENSOR]
        self._refused: dict[Any, str] = {}  # by kind of inputs; "" for what is run
        self._loaded = 0
        self._counts: Counter[str] = Counter()
        carry(folder / CUBINS)
        # Inductor's own graphs share memory that a kept counter would be taken for a leak of.
        unsafe = getattr(torch.Tag, "cudagraph_unsafe", None) if facts.keeps else None
        tags = [] if unsafe is None else [unsafe]  # torch 2.11 takes no single one
        self.definition = torch.library.custom_op(
            f"{self.namespace}::{facts.function}",
            self.call,
            mutates_args=tuple(map(facts.in_schema, facts.in_place)),
            schema=facts.schema,
            tags=tags,
        )
        self.definition.register_fake(self.fake)
        if not facts.in_place:  # torch differentiates no operator that changes its inputs
            self.definition.register_autograd(self.backward, setup_context=self.setup)

    @property
    def counts(self) -> Mapping[str, int]:
        """How often the variant answered, and the reference, by the reason why."""
        return dict(self._counts)

    def reference(self, **inputs: Any) -> list[torch.Tensor]:
        """Compute what answers where the variant does not, called alone.

        Its tensors, which the study's own function gives in float64, are in the type of the first
        input.
        """
        facts = self.facts
        if facts.reference:
            return tensors_of(self._reference_run()(**inputs), inputs, facts.in_place)
        results = tensors_of(self.study.reference(**inputs), inputs, ())
        kind = next((x.dtype for x in inputs.values() if _is_floating(x)), torch.float64)
        results = [x.to(kind) if _is_floating(x) else x for x in results]
        for name, value in zip(facts.in_place, results[len(facts.outputs) :], strict=False):
            inputs[name].copy_(value)
        return results[: len(facts.outputs)]

    @property
    def study(self) -> ModuleType:
        """The study's module: inputs, shapes, tolerance and the reference in float64."""
        return importlib.import_module(f"{self._package}.study")

    # ---- the operator ------------------------------------------------------------------------
    def call(self, *arguments: Any) -> Any:
        """Call the operator with its arguments, and last whether it is ``strict``. Raises
        NotImplementedError where it is and the variant does not support the inputs.
        """
        inputs, strict = self._named(arguments), bool(arguments[-1])
        tensors = [inputs[name] for name in self.facts.tensors]
        with without_autocast(tensors):
            result = self._answered(inputs, tensors, strict)
        strided = [inputs[name] for name in self._laid_out]
        return self._packed([settled(out, strided, tensors) for out in result])

    def _answered(
        self, inputs: Inputs, tensors: Sequence[torch.Tensor], strict: bool
    ) -> list[torch.Tensor]:
        facts = self.facts
        result, why = None, self._why_not(tensors, inputs)
        if not why:
            try:
                result = self._ours(inputs, tensors)
            except (NotImplementedError, UsageError) as error:
                why = _first_line(error)
            # These would fail again, after compiling or importing, at every call.
            except (EnvironmentLacks, ToolFailed, ImportError) as error:
                why = self._without[tensors[0].device] = _first_line(error)
        if result is None:
            if strict:
                raise NotImplementedError(f"{facts.package}: {facts.variant} is not run: {why}")
            self._say(why)
            result = self.reference(**inputs)
        return result

    def fake(self, *arguments: Any) -> Any:
        """The outputs of a call without their values: those of the reference."""
        inputs = self._named(arguments)
        if not self.facts.outputs:
            return None
        outputs = getattr(self.study, "outputs", None)
        with torch.no_grad(), without_autocast([inputs[name] for name in self.facts.tensors]):
            inputs |= {name: torch.empty_like(inputs[name]) for name in self.facts.in_place}
            result = tensors_of((outputs or self.reference)(**inputs), inputs, ())
        strided = [inputs[name] for name in self._laid_out]
        return self._packed([like(out, strided) for out in result])

    def setup(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep what ``backward`` needs."""
        ctx.save_for_backward(*[x for x in inputs if isinstance(x, torch.Tensor)])
        ctx.others = [None if isinstance(x, torch.Tensor) else x for x in inputs]

    def backward(self, ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        """Through the study's own ``backward`` where it has one, else through the reference, which
        is computed again.
        """
        saved = iter(ctx.saved_tensors)
        arguments = [next(saved) if other is None else other for other in ctx.others]
        inputs = self._named(arguments)
        wanted = [name for name, need in zip(inputs, ctx.needs_input_grad, strict=False) if need]
        own_backward = getattr(self.study, "backward", None)
        with without_autocast([inputs[name] for name in self.facts.tensors]):
            if own_backward is not None:
                gradients_by_name = own_backward(gradients, **inputs)
            else:
                gradients_by_name = self._through_reference(inputs, wanted, gradients)
        return (*(gradients_by_name.get(name) if name in wanted else None for name in inputs), None)

    # ---- who answers -------------------------------------------------------------------------
    def _named(self, arguments: Sequence[Any]) -> Inputs:
        by_name = {name: x for (name, _), x in zip(self.facts.arguments, arguments, strict=False)}
        for name in self.facts.tensors:
            if by_name[name] is None:
                raise TypeError(f"{self.facts.package}: '{name}' is None, and no tensor")
        return by_name

    def _why_not(self, tensors: Sequence[torch.Tensor], inputs: Inputs) -> str:
        if why := elsewhere(tensors) or self._without.get(tensors[0].device, ""):
            return why
        others = tuple(inputs[name] for name in self._others)
        kinds = tuple((x.dtype, x.shape) for x in tensors)
        # 1 is True for a dictionary, and not for a domain.
        key = (kinds, others, tuple(map(type, others)))
        if key not in self._refused:
            if len(self._refused) >= REMEMBERED:
                self._refused.clear()
            described: list[Given] = [given_of(x) for x in tensors]
            named = dict(zip(self._others, others, strict=True))
            self._refused[key] = self.facts.domain.why_not(self.facts.tensors, described, named)
        return self._refused[key]

    def _ours(self, inputs: Inputs, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        facts = self.facts
        strided = set(facts.domain.strided)
        owned = {
            name: aligned(x, strided=name in strided) if isinstance(x, torch.Tensor) else x
            for name, x in inputs.items()
        }
        with on_device(tensors[0].device):
            module = self._instances.at(tensors[0].device)
            result = tensors_of(module.run(**owned), owned, facts.in_place)
            for name in facts.in_place:
                if owned[name] is not inputs[name]:
                    inputs[name].copy_(owned[name])
        if len(result) != len(facts.outputs):
            raise RuntimeError(f"{facts.variant} returned {len(result)} tensors")
        self._counts[facts.variant] += 1
        return result

    def _through_reference(
        self, inputs: Inputs, wanted: Sequence[str], gradients: Sequence[Any]
    ) -> Inputs:
        again = torch.is_grad_enabled()  # then the gradients are themselves to be differentiated
        with torch.enable_grad():
            if not again:
                fresh = {n: inputs[n].detach().requires_grad_() for n in wanted}
                inputs = {
                    name: fresh.get(name, x.detach() if isinstance(x, torch.Tensor) else x)
                    for name, x in inputs.items()
                }
            pairs = [
                (out, gradient)
                for out, gradient in zip(self.reference(**inputs), gradients, strict=True)
                if gradient is not None and out.requires_grad
            ]
            if not pairs:
                return {}
            outputs, given_gradients = zip(*pairs, strict=True)
            results = torch.autograd.grad(
                outputs,
                [inputs[n] for n in wanted],
                given_gradients,
                create_graph=again,
                allow_unused=True,
            )
        return dict(zip(wanted, results, strict=True))

    def _packed(self, outputs: Sequence[torch.Tensor]) -> Any:
        """Return results as the operator's schema has them."""
        if not outputs:
            return None
        return outputs[0] if len(self.facts.outputs) == 1 else tuple(outputs)

    def _say(self, why: str) -> None:
        """Once for each reason."""
        self._counts[f"reference: {why}"] += 1
        if why not in self._said:
            self._said.add(why)
            warnings.warn(f"{self.facts.package}: the reference is used: {why}", stacklevel=2)

    # ---- modules -----------------------------------------------------------------------------
    @cached_property
    def _laid_out(self) -> tuple[str, ...]:
        """The inputs whose layout an output of their size takes: none where the study wants what
        is returned in order.
        """
        in_order = getattr(self.study, "contiguous", False)
        return () if in_order else self.facts.domain.strided

    def _load(self) -> ModuleType:
        """The variant's module, anew. Raises EnvironmentLacks where it cannot be, for want of a
        package or of a compiler.
        """
        self._loaded += 1
        name = self.facts.module
        try:
            return self._module(name, f"{name}_{self._loaded}", dict(self.facts.params))
        except Exception as error:
            why = f"{type(error).__name__}: {_first_line(error)}"
            raise EnvironmentLacks(f"{name}.py cannot be loaded here: {why}") from error

    def _reference_run(self) -> Callable[..., Any]:
        if self._reference is None:
            name = self.facts.reference
            module = self._module(name, name, dict(self.facts.reference_params))
            self._reference = module.run
        run: Callable[..., Any] = self._reference
        return run

    def _module(self, file: str, called: str, params: Mapping[str, Parameter]) -> ModuleType:
        importlib.import_module(self._package)
        name = f"{self._package}.{called}"
        spec = importlib.util.spec_from_file_location(name, self._sources / f"{file}.py")
        if spec is None or spec.loader is None:
            raise ImportError(f"there is no {file}.py in {self._package}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        with overridden(params):
            spec.loader.exec_module(module)
        take_declared()
        return module


def elsewhere(tensors: Sequence[torch.Tensor]) -> str:
    """Why tensors are not where a kernel runs; "" where they are."""
    devices = {x.device for x in tensors}
    if len(devices) == 1 and tensors[0].is_cuda:
        return ""
    return f"the inputs are on {', '.join(sorted(map(str, devices)))}, and not on one GPU"


def on_device(device: torch.device) -> AbstractContextManager[Any]:
    """Kernels inside are launched there."""
    return torch.cuda.device(device)


def without_autocast(tensors: Sequence[torch.Tensor]) -> AbstractContextManager[Any]:
    """Inside, types are those of the tensors. A compiled graph runs its operators so, whatever it
    was traced under, and what is called without it has to give the same.
    """
    kind = tensors[0].device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
