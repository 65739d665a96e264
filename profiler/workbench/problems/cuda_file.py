"""A ``.cu`` file with its launch, inputs and outputs: compiled as every kernel of a study is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from workbench.errors import UsageError, unknown
from workbench.problems.expressions import (
    LAUNCH_HINT,
    Launch,
    literal,
    read_input,
    read_launch,
    read_output,
)
from workbench.problems.problem import DEFAULT_SHAPE, Format, GivenShape, Module, Problem, Request
from workbench.problems.python_function import made_text
from workbench.problems.sources import COMPILE, find_versus, modules, together
from workbench.study.text import read_text

_KERNEL = re.compile(
    r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+"
    r"(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)"
)
# What nvcc has of the host's math.h, and NVRTC has not: the bits of the number.
_DEFINES = {"INFINITY": "__int_as_float(0x7f800000)", "NAN": "__int_as_float(0x7fffffff)"}


def read(request: Request) -> Problem:
    """Raises UsageError where launch, inputs, outputs or reference are missing or misfit."""
    path = request.source
    text = read_text(path)
    kernels = {name: " ".join(taken.split()) for name, taken in _KERNEL.findall(text)}
    if not kernels:
        raise UsageError(f"{path.name} has no __global__ function", hint="name the file with one")
    made = [read_input(one) for one in request.inputs]
    known = [one.name for one in made]
    if not request.launch:
        first = request.function or next(iter(kernels))
        raise UsageError(
            f"{path.name} needs --launch: how {first}({kernels.get(first, '')}) is launched",
            hint=LAUNCH_HINT,
        )
    if not made:
        raise UsageError(
            f"{path.name} needs --input for what its kernel reads",
            hint="--input 'x=randn(4096,8192)' for a tensor, --input 'n=8192' for a value",
        )
    outputs = []
    for one in request.outputs:
        outputs.append(read_output(one, known))
        known.append(outputs[-1][0])
    launch = read_launch(request.launch, known)
    bare = launch.kernel.partition("<")[0].strip()
    if bare not in kernels:
        raise unknown(f"kernel of {path.name}", bare, kernels)
    if not request.versus or request.versus == COMPILE:
        raise UsageError(
            f"{path.name} needs --vs: nothing says what {bare} should compute",
            hint="such as --vs 'torch.softmax(x, dim=-1)', or --vs FILE.py:FUNCTION",
        )
    compared = find_versus(request, path.parent)
    files = together(path)
    references = modules([compared], files)
    called = launch.kernel
    if called == bare and 'extern "C"' not in text:
        called = f"::{bare}"
    return Problem(
        kind=FORMAT.label,
        what=f"{path.name}, {FORMAT.label}: its kernel {launch.kernel}",
        name=bare,
        title=f"{launch.kernel} of {path.name}",
        files=files,
        shapes={DEFAULT_SHAPE: GivenShape({one.name: one.parameter for one in made})},
        default_shape=DEFAULT_SHAPE,
        loads=compared.loads,
        made=made_text(made),
        expression=compared.expression,
        baseline=Module(
            "baseline",
            f"{path.name}:{launch.kernel}",
            _module(path, called, [one.name for one in made], outputs, launch),
        ),
        against=compared.called,
        references=references,
        compiles=True,
    )


def _module(
    path: Path,
    kernel: str,
    inputs: Sequence[str],
    outputs: Sequence[tuple[str, str]],
    launch: Launch,
) -> str:
    """What one would write by hand."""
    text = read_text(path)
    defines = {n: v for n, v in _DEFINES.items() if re.search(rf"\b{n}\b", text)}
    made = "".join(f"    {name} = {text}\n" for name, text in outputs)
    back = f"    return {', '.join(name for name, _ in outputs)}\n" if outputs else ""
    macros = f", defines={literal(defines)}" if defines else ""
    return f"""import torch
from workbench import cuda

kernel = cuda.kernel("{path.name}", "{kernel}"{macros})


def cdiv(a, b):
    return -(-a // b)


def run({", ".join(inputs)}):
{made}    kernel[{launch.extents}]({", ".join(launch.arguments)})
{back}"""


FORMAT = Format(
    label="a CUDA source",
    files=".cu",
    priority=10,
    is_of=lambda request: request.source.suffix == ".cu",
    read=read,
    options=frozenset({"inputs", "launch", "outputs"}),
)
