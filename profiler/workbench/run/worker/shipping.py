"""Collect what a package of a variant carries: ``python -m workbench.run.worker.shipping
job.json``.

It compiles the kernels for named architectures, and draws the inputs of the shapes at which the
variant is correct, without their values. It needs no GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from keyword import iskeyword
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from workbench import cuda
from workbench.cuda.compiler import compiler_version
from workbench.cuda.cubin_folder import key_of, write_cubin
from workbench.errors import UsageError
from workbench.run.protocol import Packable, ShipJob
from workbench.run.worker.deviation import without_values
from workbench.run.worker.startup import job_of
from workbench.shipped.facts import (
    CUBINS,
    NAMED,
    NOTHING,
    ONE,
    SEVERAL,
    TENSOR,
    Given,
    Scalar,
    given_of,
    inferred,
)
from workbench.study.model import base_name
from workbench.study.workspace import load_module
from workbench.words import Inputs, Parameter

OURS = ("strict", "self")  # what a package's functions have themselves
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
        kernels = self.compile()
        drawn = [self.drawn(shape) for shape in self.job.shapes]
        kinds = {name: self.kind(name, value) for name, value in drawn[0][0].items()}
        tensors = [name for name, kind in kinds.items() if kind == TENSOR]
        if not tensors:
            raise UsageError("the inputs have no tensor", hint="an operator has at least one")
        calls = []
        for inputs, _ in drawn:
            arguments: list[Given] = [given_of(inputs[name]) for name in tensors]
            values: dict[str, Scalar] = {n: v for n, v in inputs.items() if n not in tensors}
            calls.append((arguments, values))
        returns, outputs = self.outputs(drawn[0][1])
        return Packable(
            arguments=tuple(kinds.items()),
            outputs=outputs,
            returns=returns,
            domain=inferred(tensors, calls),
            kernels=kernels,
            compiler=compiler_version() if kernels else "",
        )

    def compile(self) -> int:
        """How many kernels the variant declares, each built for every architecture. One that is to
        be built for none has none, and what it imports need not be here.
        """
        if not self.job.archs:
            return 0
        cuda.take_declared()
        self.load(self.job.variant, self.job.params)
        kernels = cuda.take_declared()
        sources = {key_of(k.source, ""): k.source for k in kernels}
        for arch in self.job.archs:
            for source in sources.values():
                write_cubin(Path.cwd() / CUBINS, source, arch)
        return len(sources)

    def load(self, variant: str, params: Mapping[str, Parameter]) -> Callable[..., Any]:
        path = self.folder / f"{base_name(variant)}.py"
        with cuda.overridden(params):
            run: Callable[..., Any] = load_module(path, f"workbench_shipped_{path.stem}").run
        return run

    def drawn(self, shape: str) -> tuple[Inputs, Any]:
        """Inputs at a shape, and what the reference makes of them without their values, as the
        package's fake implementation has to.
        """
        mode = without_values()
        try:
            with mode:
                inputs = self.inputs(shape)
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(
                f"the inputs at '{shape}' cannot be drawn without values: {_told(error)}",
                hint="draw them with torch alone, on the device of the generator, and let no size "
                "depend on a value",
            ) from None
        return inputs, self.traced(inputs, mode, shape)

    def traced(self, inputs: Inputs, mode: FakeTensorMode, shape: str) -> Any:
        try:
            with mode:
                return self.result(
                    {
                        name: mode.from_tensor(value) if _has_values(value) else value
                        for name, value in inputs.items()
                    }
                )
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(
                f"the result at '{shape}' is not known without values: {_told(error)}",
                hint=OUTPUTS,
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
        """Compute what the package answers where the variant does not: its fake implementation asks
        the same. The names and the kind of container are those of ``reference``.
        """
        if outputs := getattr(self.study, "outputs", None):
            return outputs(**inputs)
        with torch.no_grad():
            if self.job.reference and not self.in_place:
                return self.load(self.job.reference, self.job.reference_params)(**inputs)
            return self.study.reference(**inputs)

    def kind(self, name: str, value: Any) -> str:
        """Raises UsageError for what no operator takes."""
        if not name.isidentifier() or iskeyword(name) or name in OURS:
            raise UsageError(
                f"an operator can have no argument '{name}'", hint="give the input another name"
            )
        if isinstance(value, torch.Tensor):
            return TENSOR
        for kind in SCALARS:
            if type(value) is kind:
                return kind.__name__
        raise UsageError(
            f"the input '{name}' is a {type(value).__name__}: an operator takes tensors, truth "
            "values, numbers and words",
            hint="give the study such inputs",
        )

    def outputs(self, result: Any) -> tuple[str, tuple[str, ...]]:
        """Return the outputs' container and names, without inputs changed in place."""
        if isinstance(result, Mapping):
            names = tuple(str(name) for name in result if name not in self.in_place)
            outputs = [result[name] for name in names]
            kind = NAMED
        else:
            several = isinstance(result, tuple | list)
            outputs = list(result) if several else [result]
            outputs = outputs[: len(outputs) - len(self.in_place)]
            kind, names = SEVERAL if several and outputs else ONE, ("",) * len(outputs)
        if not all(isinstance(out, torch.Tensor) for out in outputs):
            raise UsageError(
                "what is returned is nested: an operator returns tensors",
                hint="return a tensor, or a tuple or dict of tensors",
            )
        return (kind, names) if outputs else (NOTHING, ())


def _has_values(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def main() -> None:
    with job_of(ShipJob) as (job, journal):
        journal.write(Shipping(job).run())


if __name__ == "__main__":
    main()
