"""Which format a file or folder is of. Raises UsageError, with a way out, for anything else."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from workbench.errors import UsageError
from workbench.problems import (
    cuda_file,
    flashinfer_bench,
    gpu_mode,
    kernelbench,
    nsight_python,
    python_function,
)
from workbench.problems.problem import Kind, Problem, Request, require
from workbench.problems.sources import parsed, study_name

KNOWN = (
    "a Python file (a function and inputs(), a KernelBench problem, a function for nsight-python), "
    "a .cu file, a GPU MODE task folder, or a FlashInfer-Bench definition.json"
)


OF_FUNCTIONS = (Kind.FUNCTION, Kind.CUDA)
OPTIONS: Mapping[str, tuple[Kind, ...]] = {
    "inputs": (*OF_FUNCTIONS, Kind.NSIGHT),
    "outputs": (Kind.CUDA,),
    "launch": (Kind.CUDA,),
    "workload": (Kind.FLASHINFER,),
}


def read(request: Request) -> Problem:
    """The problem that was asked for, under a name that a study can have."""
    problem = _read(request)
    for option, kinds in OPTIONS.items():
        if getattr(request, option) and problem.kind not in kinds:
            raise UsageError(
                f"--{option.removesuffix('s')} says nothing to {problem.kind}, as "
                f"{request.source.name} is one",
                hint=f"it belongs to {' or '.join(kinds)}; leave it out",
            )
    return replace(problem, name=request.name or study_name(problem.name))


def _read(request: Request) -> Problem:
    path = require(request.source)
    request = replace(request, source=path)
    if gpu_mode.is_task(path):
        return gpu_mode.read(request)
    if path.is_dir():
        python = sorted(p.name for p in path.glob("*.py"))
        hint = (
            f"name a file in it, such as {python[0]}" if python else f"what can be tried: {KNOWN}"
        )
        raise UsageError(f"{path} is a folder without a {gpu_mode.TASK}", hint=hint)
    if path.suffix == ".py":
        return _read_python(request, path, parsed(path))
    if path.suffix == ".cu":
        return cuda_file.read(request)
    if path.suffix == ".json":
        return flashinfer_bench.read(request)
    hint = f"what can be tried: {KNOWN}"
    if ".ncu-rep" in path.name:
        hint = "`workbench show` and `workbench diff` read captures"
    raise UsageError(f"{path.name} is nothing that can be tried", hint=hint)


def _read_python(request: Request, path: Path, tree: ast.Module) -> Problem:
    if kernelbench.is_problem(tree) and not request.function:
        return kernelbench.read(request)
    if kernelbench.is_solution(tree) and not request.function:
        raise UsageError(
            f"{path.name} has a ModelNew without the Model that it is of",
            hint=f"workbench try PROBLEM.py --solution {path.name}",
        )
    if request.solution is not None:
        raise UsageError(
            f"{path.name} is no problem that has solutions",
            hint="--solution belongs to a KernelBench, GPU MODE or FlashInfer-Bench problem",
        )
    if nsight_python.is_benchmark(tree):
        return nsight_python.read(request)
    return python_function.read(request)
