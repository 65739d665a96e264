"""A ``.cu`` file with its launch, inputs and outputs: compiled as every kernel of a study is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench import bounds
from workbench.cuda.compiler import PROGRAM
from workbench.cuda.includes import expand_includes
from workbench.cuda.programs import Entry, entries
from workbench.errors import UsageError, unknown
from workbench.problems.problem import DEFAULT_SHAPE, Format, GivenShape, Module, Problem, Request
from workbench.problems.python_function import made_text
from workbench.problems.user_files import (
    COMPILE,
    LAUNCH_HINT,
    LaunchCall,
    find_versus,
    modules,
    read_input,
    read_launch,
    read_output,
    together,
)
from workbench.study.files import read_text


def read_cuda_file(request: Request) -> Problem:
    """Raises UsageError where launch, inputs, outputs or reference are missing or misfit."""
    path = request.source
    read_text(path, bounds.SOURCE)  # says what is wrong with the file itself
    files = together(path)
    kernels = entries(expand_includes(path))
    if not kernels:
        raise UsageError(f"{path.name} has no __global__ function", hint="name the file with one")
    made = [read_input(option) for option in request.inputs]
    names = [option.name for option in made]
    if not request.launch:
        first = next(iter(kernels))
        entry = _named(request.function or first, kernels, path)
        raise UsageError(
            f"{path.name} needs --launch: how {entry.name}({entry.parameters}) is launched",
            hint=LAUNCH_HINT,
        )
    if not made:
        raise UsageError(
            f"{path.name} needs --input for what its kernel reads",
            hint="--input 'x=randn(4096,8192)' for a tensor, --input 'n=8192' for a value",
        )
    outputs = []
    for option in request.outputs:
        outputs.append(read_output(option, names))
        names.append(outputs[-1][0])
    launch = read_launch(request.launch, names)
    bare, angle, arguments = launch.kernel.partition("<")
    kernel = _named(bare.strip(), kernels, path)
    called = f"{kernel.name}{angle}{arguments}"
    if kernel.template is not None and not angle:
        raise UsageError(
            f"{called} is a template of {kernel.template}, and --launch names no instance",
            hint=f"such as --launch '{called}<...><<<grid, block>>>(...)'",
        )
    if not request.versus or request.versus == COMPILE:
        raise UsageError(
            f"{path.name} needs --vs: nothing says what {kernel.name} should compute",
            hint="such as --vs 'torch.softmax(x, dim=-1)', or --vs FILE.py:FUNCTION",
        )
    compared = find_versus(request, path.parent)
    references = modules([compared], files)
    if kernel.template is None and not kernel.c_linkage:
        called = f"::{called}"
    return Problem(
        kind=FORMAT.label,
        what=f"{path.name}, {FORMAT.label}: its kernel {launch.kernel}",
        name=kernel.name.rpartition("::")[2],
        title=f"{launch.kernel} of {path.name}",
        files=files,
        shapes={DEFAULT_SHAPE: GivenShape({option.name: option.parameter for option in made})},
        default_shape=DEFAULT_SHAPE,
        loads=compared.loads,
        made=made_text(made),
        expression=compared.expression,
        baseline=Module(
            "baseline",
            f"{path.name}:{launch.kernel}",
            _module(path, called, [option.name for option in made], outputs, launch),
        ),
        against=compared.called,
        references=references,
        compiles=True,
    )


def _named(name: str, kernels: Mapping[str, Entry], path: Path) -> Entry:
    """Find a kernel by its name, with its namespaces or without. Raises UsageError."""
    name = name.removeprefix("::")
    fits = [entry for full, entry in kernels.items() if name in (full, full.rpartition("::")[2])]
    if not fits:
        raise unknown(f"kernel of {path.name}", name, kernels)
    return next((entry for entry in fits if entry.name == name), fits[0])


def _module(
    path: Path,
    kernel: str,
    inputs: Sequence[str],
    outputs: Sequence[tuple[str, str]],
    launch: LaunchCall,
) -> str:
    made = "".join(f"    {name} = {text}\n" for name, text in outputs)
    back = f"    return {', '.join(name for name, _ in outputs)}\n" if outputs else ""
    return f"""import torch
from workbench import cuda

kernel = cuda.kernel("{path.name}", "{kernel}", compiler="{PROGRAM}")


def cdiv(a, b):
    return -(-a // b)


def run({", ".join(inputs)}):
{made}    kernel[{launch.extents}]({", ".join(launch.arguments)})
{back}"""


FORMAT = Format(
    label="a CUDA source",
    files=".cu or .cuh",
    priority=10,
    is_of=lambda request: request.source.suffix in (".cu", ".cuh"),
    read=read_cuda_file,
    options=frozenset({"inputs", "launch", "outputs"}),
)
