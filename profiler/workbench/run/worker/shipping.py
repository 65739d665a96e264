"""Collect what a package of a variant needs to know: ``python -m workbench.run.worker.shipping
job.json``. It needs no GPU and no compiler.

It imports the variant for the kernels that it declares, and draws the inputs of the shapes at which
it is correct, without their values.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from workbench import cuda
from workbench.cuda.compiler import PROGRAM, Source
from workbench.errors import UsageError
from workbench.run.protocol import Packable, ShipJob, ShippedKernel
from workbench.run.worker.output import type_name, without_values
from workbench.run.worker.startup import job_of
from workbench.study.workspace import load_module
from workbench.words import Inputs, Parameter

TENSOR = "Tensor"
HINTS = {
    "inputs": "draw them with torch alone, on the generator's device, and let no size depend on a "
    "value",
    "result": "give study.py a function outputs(**inputs) that returns empty tensors like the "
    "results, such as torch.empty_like(x)",
}


def packed(job: ShipJob) -> Packable:
    """Do a job in the current directory. Raises UsageError for what is no operator."""
    folder = Path.cwd() / "kernels" / job.study

    def load(role: str) -> ModuleType:
        name, values = job.modules[role]
        with cuda.overridden(values):
            return load_module(folder / f"{name}.py", f"workbench_{role}")

    def answering() -> Any:
        """The function that answers where the variant does not."""
        if hasattr(study, "outputs"):
            return study.outputs
        return load("reference").run if "reference" in job.modules else study.reference

    study = load("study")
    if getattr(study, "in_place", ()):
        raise UsageError("it changes its inputs", hint="an operator returns its results as tensors")
    calls: list[Inputs] = []
    for shape in job.checked:
        step = "inputs"
        try:
            with without_values(), torch.no_grad():
                calls.append(study.inputs(study.shapes[shape], torch.Generator()))
                kinds = {name: kind(name, value) for name, value in calls[-1].items()}
                step = "result"
                out = answering()(**calls[-1])
        except UsageError:
            raise
        except Exception as error:
            first = next(iter(str(error).splitlines()), "")
            why = f"without values: {type(error).__name__}: {first}"
            message = f"the {step} at '{shape}' cannot be had {why}"
            raise UsageError(message, hint=HINTS[step]) from None
    out = list(out.values()) if isinstance(out, Mapping) else out
    outputs = out if isinstance(out, tuple | list) else [out]
    tensors = [name for name, kind in kinds.items() if kind == TENSOR]
    if not tensors or not all(isinstance(value, torch.Tensor) for value in outputs):
        raise UsageError(
            "an operator takes a tensor, and returns tensors that are not nested",
            hint="return a tensor, or a tuple or dict of tensors",
        )
    cuda.take_declared()
    if job.has_kernels:  # what a variant without any imports need not be here
        load("variant")
    kernels = [described(folder, kernel) for kernel in cuda.take_declared()]
    if len({kernel.options for kernel in kernels}) > 1:
        raise UsageError(
            "its kernels are compiled with different options, and a package has one set of them",
            hint="give cuda.kernel the same options everywhere",
        )
    return Packable(
        arguments=tuple(kinds.items()),
        outputs=len(outputs),
        calls=tuple(map(checked_call, calls)),
        strided=tuple(n for n in tensors if not all(call[n].is_contiguous() for call in calls)),
        kernels=tuple({kernel.symbol: kernel for kernel in kernels}.values()),
    )


def kind(name: str, value: Any) -> str:
    """Raises UsageError for what no operator takes."""
    kind = TENSOR if isinstance(value, torch.Tensor) else type(value).__name__
    is_known = kind in (TENSOR, "bool", "int", "float", "str")
    if not is_known or getattr(value, "requires_grad", False):
        raise UsageError(
            f"the input '{name}' is a {kind}: an operator takes tensors without gradients, truth "
            "values, numbers and words",
            hint="give the study such inputs; it may have a backward(gradients, **inputs)",
        )
    return kind


def described(folder: Path, source: Source) -> ShippedKernel:
    if source.compiler == PROGRAM:
        raise UsageError(
            f"{source.path.name} has host code, which a package does not carry",
            hint="declare its kernels without compiler='program'",
        )
    return ShippedKernel(
        source=source.path.relative_to(folder).as_posix(),
        name=source.name,
        defines={key: str(value) for key, value in source.defines.items()},
        options=source.options,
    )


def checked_call(inputs: Inputs) -> dict[str, Parameter]:
    """Name what ``op.py`` compares of a call: types and sizes of tensors, and the other inputs."""
    call: dict[str, Parameter] = {}
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            call[f"{name}.dtype"] = type_name(value.dtype)
            call |= {f"{name}.shape[{axis}]": int(size) for axis, size in enumerate(value.shape)}
        else:
            call[name] = value
    return call


def main() -> None:
    with job_of(ShipJob) as (job, journal):
        journal.write(packed(job))


if __name__ == "__main__":
    main()
