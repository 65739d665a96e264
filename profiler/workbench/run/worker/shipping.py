"""Collect what a package of a variant needs to know: ``python -m workbench.run.worker.shipping
job.json``.

It imports the variant for the kernels that it declares, and draws the inputs of the shapes at which
it is correct, without their values. It needs no GPU and no compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from workbench import cuda
from workbench.cuda.compiler import PROGRAM
from workbench.cuda.launch import Kernel
from workbench.errors import UsageError
from workbench.run.protocol import CheckedCase, Domain, Packable, ShipJob, ShippedKernel
from workbench.run.worker.deviation import without_values
from workbench.run.worker.startup import job_of
from workbench.study.model import base_name
from workbench.study.workspace import load_module
from workbench.words import Inputs, Parameter

TENSOR = "Tensor"
SCALARS = (bool, int, float, str)
OUTPUTS = (
    "give study.py a function outputs(**inputs) that returns empty tensors like the results, "
    "such as torch.empty_like(x)"
)


class Shipping:
    """Does one job in the current directory."""

    def __init__(self, job: ShipJob) -> None:
        self.job = job
        self.folder = Path.cwd() / "kernels" / job.study
        self.study = load_module(self.folder / "study.py", "workbench_study")
        self.in_place: tuple[str, ...] = tuple(getattr(self.study, "in_place", ()))

    def run(self) -> Packable:
        drawn = [self.drawn(shape) for shape in self.job.shapes]
        kinds = {name: self.kind(name, value) for name, value in drawn[0][0].items()}
        tensors = [name for name, kind in kinds.items() if kind == TENSOR]
        if not tensors:
            raise UsageError("the inputs have no tensor", hint="an operator has at least one")
        return Packable(
            arguments=tuple(kinds.items()),
            outputs=self.outputs(drawn[0][1]),
            domain=domain_of(tensors, [inputs for inputs, _ in drawn]),
            kernels=self.kernels(),
        )

    def kernels(self) -> tuple[ShippedKernel, ...]:
        """Describe the kernels that the variant declares. What a variant without any imports need
        not be here.
        """
        if not self.job.has_kernels:
            return ()
        cuda.take_declared()
        self.load(self.job.variant, self.job.params)
        kernels = {each.key: each for each in map(self.kernel, cuda.take_declared())}
        return tuple(kernels.values())

    def kernel(self, kernel: Kernel) -> ShippedKernel:
        source = kernel.source
        if source.compiler == PROGRAM:
            raise UsageError(
                f"{source.path.name} has host code, which a package does not carry",
                hint="declare its kernels without compiler='program'",
            )
        return ShippedKernel(
            source=source.path.relative_to(self.folder).as_posix(),
            name=source.name,
            defines={key: str(value) for key, value in source.defines.items()},
            options=source.options,
            early_start=source.must_wait,
            carveout=kernel.carveout,
            cooperative=kernel.cooperative,
        )

    def load(self, variant: str, params: Mapping[str, Parameter]) -> Callable[..., Any]:
        path = self.folder / f"{base_name(variant)}.py"
        with cuda.overridden(params):
            run: Callable[..., Any] = load_module(path, f"workbench_shipped_{path.stem}").run
        return run

    def drawn(self, shape: str) -> tuple[Inputs, Any]:
        """Draw inputs at a shape, and what the reference makes of them without their values, as the
        package's fake implementation has to.
        """
        mode, step, hint = (
            without_values(),
            "inputs",
            "draw them with torch alone, on the device of the generator, and let no size depend on "
            "a value",
        )
        try:
            with mode:
                inputs = self.inputs(shape)
                step, hint = "result", OUTPUTS
                return inputs, self.result(
                    {
                        name: mode.from_tensor(value) if _has_values(value) else value
                        for name, value in inputs.items()
                    }
                )
        except UsageError:
            raise
        except Exception as error:
            first = next(iter(str(error).splitlines()), "")
            raise UsageError(
                f"the {step} at '{shape}' cannot be had without values: "
                f"{type(error).__name__}: {first}",
                hint=hint,
            ) from None

    def inputs(self, shape: str) -> Inputs:
        inputs: Inputs = self.study.inputs(self.study.shapes[shape], torch.Generator())
        for name, value in inputs.items():
            if self.kind(name, value) == TENSOR and value.requires_grad:
                raise UsageError(
                    f"the input '{name}' requires a gradient: a backward pass is not shipped alone",
                    hint="ship the forward pass; study.py may have a backward(gradients, **inputs)",
                )
        return inputs

    def result(self, inputs: Inputs) -> Any:
        """Compute what the package answers where the variant does not."""
        if outputs := getattr(self.study, "outputs", None):
            return outputs(**inputs)
        with torch.no_grad():
            if self.job.reference and not self.in_place:
                return self.load(self.job.reference, self.job.reference_params)(**inputs)
            return self.study.reference(**inputs)

    def kind(self, name: str, value: Any) -> str:
        """Raises UsageError for what no operator takes."""
        if not name.isidentifier() or iskeyword(name) or name == "self":
            raise UsageError(
                f"an operator can have no argument '{name}'", hint="give the input another name"
            )
        if isinstance(value, torch.Tensor):
            return TENSOR
        if type(value) in SCALARS:
            return type(value).__name__
        raise UsageError(
            f"the input '{name}' is a {type(value).__name__}: an operator takes tensors, truth "
            "values, numbers and words",
            hint="give the study such inputs",
        )

    def outputs(self, result: Any) -> tuple[str, ...]:
        """Name the outputs ("" for none has a name), without inputs changed in place."""
        if isinstance(result, Mapping):
            names = tuple(str(name) for name in result if name not in self.in_place)
            outputs = [result[name] for name in names]
        else:
            outputs = list(result) if isinstance(result, tuple | list) else [result]
            outputs = outputs[: len(outputs) - len(self.in_place)]
            names = ("",) * len(outputs)
        if not all(isinstance(out, torch.Tensor) for out in outputs):
            raise UsageError(
                "what is returned is nested: an operator returns tensors",
                hint="return a tensor, or a tuple or dict of tensors",
            )
        return names


def _has_values(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)


def domain_of(tensors: Sequence[str], calls: Sequence[Inputs]) -> Domain:
    """Infer from some calls for which inputs the variant was checked."""
    drawn = [[call[name] for name in tensors] for call in calls]
    cases = []
    for ranks in dict.fromkeys(tuple(x.dim() for x in call) for call in drawn):
        cases.append(_case([call for call in drawn if tuple(x.dim() for x in call) == ranks]))
    strided = [
        name
        for index, name in enumerate(tensors)
        if any(not call[index].is_contiguous() for call in drawn)
    ]
    values = {n: _allowed([call[n] for call in calls]) for n in calls[0] if n not in tensors}
    return Domain(cases=tuple(cases), values=values, strided=tuple(strided))


def _allowed(values: Sequence[Parameter]) -> tuple[Parameter, ...]:
    """A number that was another at every shape may be any; a truth value or a word is one of
    those that there were.
    """
    distinct = tuple(dict.fromkeys(values))
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in distinct)
    return () if numbers and len(distinct) > 1 else distinct


def _case(calls: Sequence[Sequence[torch.Tensor]]) -> CheckedCase:
    by_extents: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for which, tensor in enumerate(calls[0]):
        for dimension in range(tensor.dim()):
            extents = tuple(int(call[which].shape[dimension]) for call in calls)
            by_extents.setdefault(extents, []).append((which, dimension))
    groups = by_extents.items()
    types = (tuple(str(x.dtype).removeprefix("torch.") for x in call) for call in calls)
    return CheckedCase(
        ranks=tuple(x.dim() for x in calls[0]),
        dtypes=tuple(dict.fromkeys(types)),
        equal=tuple(tuple(g) for all_, g in groups if len(g) > 1 and len(set(all_)) > 1),
        fixed=tuple((*p, all_[0]) for all_, g in groups if len(set(all_)) == 1 for p in g),
    )


def main() -> None:
    with job_of(ShipJob) as (job, journal):
        journal.write(Shipping(job).run())


if __name__ == "__main__":
    main()
