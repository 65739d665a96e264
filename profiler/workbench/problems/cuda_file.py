"""A ``.cu`` file with its launch, inputs and outputs: compiled as every kernel of a study is."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from workbench import bounds
from workbench.cuda.compiler import PROGRAM
from workbench.cuda.includes import expand_includes
from workbench.cuda.programs import Entry, entries, launches, masked
from workbench.errors import UsageError, unknown
from workbench.problems import c_signature, try_options
from workbench.problems.problem import Format, Module, Problem, Request
from workbench.problems.user_files import gathered
from workbench.study.files import readable_text, require_readable

MARK = "__global__"
SOURCES, MOST = ("*.cu", "*.cuh", "*/*.cu", "*/*.cuh"), 8  # that a hint looks at, and names
WHOLE = {*c_signature.NUMBERS} - {"float", "double", "bool"}


def read_cuda_file(request: Request) -> Problem:
    """Raises UsageError where launch, inputs, outputs or reference are missing or misfit."""
    path = request.source
    require_readable(path, bounds.SOURCE)
    source, files = gathered(path)
    included: set[Path] = set()
    text = expand_includes(path, included, "replace")
    kernels = entries(text) or entries(readable_text(path))  # a header may be no C++
    if not kernels:
        raise UsageError(
            f"{path.name} has no __global__ function", hint=_with_kernels(path, text, included)
        )
    inputs = [try_options.read_input(option) for option in request.inputs]
    if not request.launch:
        first = next(iter(kernels))
        entry = _named(request.function or first, kernels, path)
        raise UsageError(
            f"{path.name} needs --launch: how {entry.name}({entry.parameters}) is launched",
            hint=_how_to_launch(path, entry, text),
        )
    if not inputs:
        raise UsageError(
            f"{path.name} needs --input for what its kernel reads",
            hint="--input 'x=randn(4096,8192)' for a tensor, --input 'n=8192' for a value; "
            "where it reads nothing, any value will do",
        )
    made = {one.name: one for one in inputs}
    outputs = []
    for option in request.outputs:
        outputs.append(try_options.read_output(option, made))
        made[outputs[-1].name] = outputs[-1]
    launched, extents, arguments = try_options.read_launch(request.launch, made)
    bare, angle, instance = launched.partition("<")
    kernel = _named(bare.strip(), kernels, path)
    called = f"{kernel.name}{angle}{instance}"
    if kernel.template is not None and not angle:
        raise UsageError(
            f"{called} is a template of {kernel.template}, and --launch names no instance",
            hint=f"such as --launch '{called}<...><<<grid, block>>>(...)'",
        )
    if kernel.template is None:
        kernel = _that_fits(path, kernel, arguments, made)
    if not request.versus or request.versus == try_options.COMPILE:
        raise UsageError(
            f"{path.name} needs --vs: nothing says what {kernel.name} should compute",
            hint="such as --vs 'torch.softmax(x, dim=-1)', or --vs FILE.py:FUNCTION",
        )
    if kernel.template is None and not kernel.c_linkage:
        called = f"::{called}"
        if kernel.is_one_of_several:
            called = f"(void (*)({c_signature.plain_parameters(kernel.parameters)}))&{called}"
    call = f"[{extents}]({', '.join(arguments)})"
    problem = Problem(
        what=f"{path.name}, {FORMAT.label}: its kernel {launched}",
        name=kernel.name.rpartition("::")[2],
        title=f"{launched} of {path.name}",
        files=files,
        shapes=try_options.asked_shape(inputs),
        made=try_options.made_text(inputs),
        baseline=Module(
            "baseline",
            f"{path.name}:{launched}",
            _module(source, kernel, called, [one.name for one in inputs], outputs, call),
        ),
        compiles=True,
    )
    return try_options.with_references(problem, request)


def _with_kernels(path: Path, text: str, included: Collection[Path]) -> str:
    """Return what to try in place of a file without kernels: those beside it, below it or beside
    what it includes that define some. At first those whose kernels its ``text`` launches, then
    those of others that it names, then those that include it.
    """
    folders = {path.parent, *(one.parent for one in included)}
    sources = {one for folder in folders for end in SOURCES for one in folder.glob(end)}
    texts = {
        os.path.relpath(one, path.parent): readable_text(one)
        for one in sorted(sources)
        if one.is_file() and one.stat().st_size < bounds.FILE
    }
    kernels = {name: _bare(entries(other)) for name, other in texts.items() if MARK in other}
    others = [name for name, defined in kernels.items() if defined]
    if not others:
        whole = _whole_program(path, text)
        return f"the whole program: {whole}" if whole else "name a file with one"
    called = _bare(name for name, _ in launches(text))
    words = {*re.findall(r"\w+", masked(text))}
    ranks = (
        [name for name in others if kernels[name] & called],
        [name for name in others if kernels[name] & words],
        [name for name in others if f'"{path.name}"' in texts[name]],
        others,
    )
    return f"name the file with one: {', '.join(next(filter(None, ranks))[:MOST])}"


def _bare(names: Iterable[str]) -> set[str]:
    """Names without their namespaces."""
    return {name.rpartition("::")[2] for name in names}


def _named(name: str, kernels: Mapping[str, Entry], path: Path) -> Entry:
    """Find a kernel by its name, with its namespaces or without. Raises UsageError."""
    name = name.removeprefix("::")
    fits = [entry for full, entry in kernels.items() if name in (full, full.rpartition("::")[2])]
    if not fits:
        raise unknown(f"kernel of {path.name}", name, kernels)
    return next((entry for entry in fits if entry.name == name), fits[0])


def _that_fits(
    path: Path, kernel: Entry, arguments: Sequence[str], made: Mapping[str, try_options.Made]
) -> Entry:
    """The one of its name that takes the arguments. Raises UsageError for none, or several."""
    fitting, wrong = [], None
    for parameters in (kernel.parameters, *kernel.overloads):
        try:
            c_signature.require_fit(kernel.name, parameters, arguments, made)
            fitting.append(parameters)
        except UsageError as error:
            wrong = wrong or error
    if not fitting and wrong:
        raise wrong
    if len(fitting) > 1:
        listed = "; ".join(f"({one})" for one in fitting)
        raise UsageError(
            f"{path.name} has several kernels {kernel.name} that take these: {listed}",
            hint="give the one that you try another name",
        )
    return replace(kernel, parameters=fitting[0])


def _how_to_launch(path: Path, entry: Entry, text: str) -> str:
    """The options that this kernel needs; with a ``main()``, also how the program is profiled."""
    wanted = c_signature.parameters_of(entry.parameters)
    sizes = [one.name for one in wanted if one.type in WHOLE and not one.is_pointer]
    size = sizes[0] if len(sizes) == 1 else str(c_signature.ELEMENTS)
    names = ", ".join(one.name for one in wanted)
    instance = "" if entry.template is None else "<...>"
    bare = entry.name.rpartition("::")[2]
    launch = f"{bare}{instance}<<<cdiv({size}, 256), 256>>>({names})"
    hint = c_signature.as_options(bare, wanted, launch)
    calls = [whole for name, whole in launches(text) if name.rpartition("::")[2] == bare]
    if calls:
        hint += f"\n      the file launches it as {calls[0]}: write its sizes as numbers or inputs"
    if whole := _whole_program(path, text):
        hint += f"\n      or the whole program: {whole}"
    return hint


def _whole_program(path: Path, text: str) -> str:
    """Return how a file with a ``main()`` is profiled, "" for one without."""
    if not re.search(r"\bmain\s*\(", text):
        return ""
    compiled = f"nvcc -O3 -lineinfo -o {path.stem} {path.name}"
    return f"{compiled} && workbench profile -- ./{path.stem}"


def _module(
    source: str,
    entry: Entry,
    kernel: str,
    inputs: Sequence[str],
    outputs: Sequence[try_options.Made],
    call: str,
) -> str:
    made = "".join(f"    {output.name} = {output.call}\n" for output in outputs)
    names = [output.name for output in outputs]
    launched = "kernel" if "kernel" not in (*inputs, *names) else "launched"
    back = f"    return {', '.join(names)}\n" if outputs else ""
    more = ", cooperative=True" * entry.waits_for_grid
    return f"""import torch
from workbench import cuda

{launched} = cuda.kernel("{source}", "{kernel}", compiler="{PROGRAM}"{more})


def cdiv(a, b):
    return -(-a // b)


def run({", ".join(inputs)}):
{made}    {launched}{call}
{back}"""


FORMAT = Format(
    label="a CUDA source",
    files=".cu or .cuh",
    priority=10,
    is_of=lambda request: request.source.suffix in (".cu", ".cuh"),
    read=read_cuda_file,
    options=frozenset({"inputs", "launch", "outputs"}),
)
