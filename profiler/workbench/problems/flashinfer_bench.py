"""A FlashInfer-Bench definition with its workloads and a solution (``docs/flashinfer-trace``).

``definition.json`` has axes, inputs, outputs and the reference; ``--workload`` names the JSONL file
with values of the variable axes, ``--solution`` the JSON file with the sources. Both are found by
themselves where they stand beside the definition, or as in the data set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from workbench.errors import UsageError, unknown
from workbench.problems import try_options
from workbench.problems.problem import (
    Format,
    GivenShape,
    Module,
    Problem,
    Request,
    calling,
    largest,
    require,
)
from workbench.problems.user_files import literal, study_name
from workbench.study.files import json_as_type, read_text
from workbench.words import Parameter

MOST_SHAPES = 8  # of a definition's workloads, which may be hundreds
PYTHON = ("python", "triton", "tilelang")
COMPILED, BINDINGS = ("cuda", "cpp"), (None, "tvm-ffi", "torch")
S = TypeVar("S", bound=msgspec.Struct)


class DefinitionAxis(msgspec.Struct, frozen=True):
    """``value`` is None of a variable one."""

    value: int | None = None


class TensorSpec(msgspec.Struct, frozen=True):
    """``shape`` names axes; None for a plain value."""

    dtype: str
    shape: tuple[str, ...] | None = None


class Definition(msgspec.Struct, frozen=True):
    name: str
    axes: dict[str, DefinitionAxis]
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    reference: str


class Given(msgspec.Struct, frozen=True):
    """An input: drawn, a plain ``value``, or stored below the folder of the data set."""

    type: Literal["random", "scalar", "safetensors"]
    value: Parameter = 0
    path: str = ""
    tensor_key: str = ""


class Workload(msgspec.Struct, frozen=True):
    axes: dict[str, int]
    inputs: dict[str, Given]
    uuid: str = ""


class Trace(msgspec.Struct, frozen=True):
    """A line with workloads; it may also be a bare one. Those of others are not read."""

    definition: str = ""
    workload: msgspec.Raw = msgspec.Raw()


class SourceFile(msgspec.Struct, frozen=True):
    path: str
    content: str


class BuildSpec(msgspec.Struct, frozen=True):
    entry_point: str = ""
    language: str = "python"
    binding: str | None = None
    destination_passing_style: bool = True
    target_hardware: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()


class Solution(msgspec.Struct, frozen=True):
    name: str
    definition: str
    spec: BuildSpec
    sources: tuple[SourceFile, ...]
    author: str = ""


def read_flashinfer_bench(request: Request) -> Problem:
    """Raises UsageError for what is no definition, and for a part that is missing or misfits."""
    path, text = request.source, read_text(request.source).encode()
    if (other := _decoded(text, Solution)) is not None:
        raise UsageError(
            f"{path.name} is a solution of '{other.definition}', and no definition",
            hint=f"workbench try DEFINITION.json --solution {path.name}",
        )
    data = _required(text, Definition, path.name)
    inputs, outputs = (_tensors(path, data, of) for of in (data.inputs, data.outputs))
    loads, files = _workloads(request, path, data)
    shapes, default_shape = largest(loads, MOST_SHAPES)
    solution = _solution(request, path, data.name)
    reference_file = f"{study_name(data.name)}_reference.py"
    files |= {reference_file: f"{data.reference.rstrip()}\n".encode()}
    names = literal(list(outputs))
    reference = calling(
        f"the reference of {data.name}",
        f'_reference = given.File(__file__, "{reference_file}")',
        f"given.by_name(given.call(_reference.run, given.read(inputs)), {names})",
        "definition",
    )
    tried, written = replace(reference, name="baseline"), {}
    if solution is not None:
        tried = _baseline(solution, list(outputs))
        files |= {source.path: source.content.encode() for source in solution.sources}
        written = outputs if solution.spec.destination_passing_style else {}
    call = reference.expression.replace("_reference.run", "given.compiled(_reference.run)")
    compiled = calling("torch.compile of the reference", reference.loads, call, name="")
    shown = f"with the solution {solution.name}" if solution else "without a solution"
    problem = Problem(
        what=f"{path.name}, {FORMAT.label}, {len(shapes)} workloads, {shown}",
        name=data.name,
        title=solution.name if solution else data.name,
        files=files,
        shapes=shapes,
        default_shape=default_shape,
        loads=f"INPUTS = {literal(inputs)}\nOUTPUTS = {literal(written)}\n{reference.loads}",
        made="given.workload(INPUTS, OUTPUTS, shape, generator, __file__)",
        expression=reference.expression,
        baseline=tried,
        against=reference.called,
        itself=solution is None,
    )
    return try_options.with_references(problem, request, [reference] if solution else [], compiled)


def _required(text: bytes, kind: type[S], where: str) -> S:
    try:
        return json_as_type(text, kind)  # type: ignore[no-any-return]
    except (msgspec.DecodeError, ValueError) as error:
        called = kind.__name__.lower()
        raise UsageError(
            f"{where} is no {called} of FlashInfer-Bench: {error}",
            hint=f"a {called} has {', '.join(kind.__struct_fields__)}",
        ) from None


def _decoded(text: bytes, kind: type[S]) -> S | None:
    try:
        return _required(text, kind, "")
    except UsageError:
        return None


def _around(path: Path, kind: str) -> Iterator[Path]:
    """Files beside a path, and those below the folder of a ``kind`` of its data set."""
    yield from sorted(p for p in path.parent.iterdir() if p.is_file())
    for folder in list(path.parents)[:4]:
        if (folder / kind).is_dir():
            yield from sorted(p for p in (folder / kind).rglob("*") if p.is_file())


def _tensors(
    path: Path, data: Definition, of: Mapping[str, TensorSpec]
) -> dict[str, tuple[Any, str]]:
    """Name to its axes, numbers where they are constant, and its type."""
    specs_by_name: dict[str, tuple[Any, str]] = {}
    for name, spec in of.items():
        if spec.dtype not in try_options.DTYPES:
            raise unknown(f"dtype of '{name}' in {path.name}", spec.dtype, try_options.DTYPES)
        for axis in spec.shape or ():
            if axis not in data.axes:
                raise unknown(f"axis of '{name}' in {path.name}", axis, data.axes)
        sizes = None if spec.shape is None else tuple(data.axes[a].value or a for a in spec.shape)
        specs_by_name[name] = (sizes, spec.dtype)
    return specs_by_name


def _workloads(
    request: Request, path: Path, data: Definition
) -> tuple[dict[str, GivenShape], dict[str, bytes]]:
    variable = [name for name, axis in data.axes.items() if axis.value is None]
    if request.workload is not None:
        file: Path | None = require(request.workload, "file")
    else:
        lines = [file for file in _around(path, "workloads") if file.suffix == ".jsonl"]
        alone = lines[0] if len(lines) == 1 else None
        file = next((file for file in lines if file.stem == data.name), alone)
    if file is None and variable:
        raise UsageError(
            f"{path.name} has the variable axes {', '.join(variable)} and no workload",
            hint="--workload FILE.jsonl gives their values",
        )
    if file is None:
        return {"given": GivenShape({})}, {}
    shapes: dict[str, GivenShape] = {}
    files: dict[str, bytes] = {}
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        where, text = f"{file.name}:{number}", line.encode()
        if not line.strip():
            continue
        trace = _required(text, Trace, where)
        if trace.definition not in ("", data.name):
            continue
        load = _required(bytes(trace.workload) or text, Workload, where)
        if lacking := [name for name in variable if name not in load.axes]:
            raise UsageError(
                f"{where}: the workload has no axis '{lacking[0]}'",
                hint=f"variable axes are {', '.join(variable)}",
            )
        axes = {name: load.axes[name] for name in variable}
        name = "_".join(f"{axis}{value}" for axis, value in axes.items()) or "given"
        name = name if name not in shapes else f"{name}-{(load.uuid or str(number))[:8]}"
        shapes[name] = GivenShape({**axes, **_given(load, file, files)})
    if not shapes:
        raise UsageError(
            f"{file.name} has no workload of '{data.name}'", hint="one JSON object a line"
        )
    return shapes, files


def _given(load: Workload, file: Path, files: dict[str, bytes]) -> dict[str, Parameter]:
    """Plain values, and where stored tensors are; their files come along."""
    parameters: dict[str, Parameter] = {}
    for name, spec in load.inputs.items():
        if spec.type == "scalar":
            parameters[name] = spec.value
        elif spec.type == "safetensors":
            above = (folder / spec.path for folder in file.resolve().parents)
            if (stored := next(filter(Path.is_file, above), None)) is None:
                raise UsageError(
                    f"{file.name}: {spec.path} of input '{name}' is nowhere above it",
                    hint="paths of safetensors are relative to the folder of the data set",
                )
            files[stored.name] = stored.read_bytes()
            parameters[name] = f"{stored.name}:{spec.tensor_key}"
    return parameters


def _solution(request: Request, path: Path, name: str) -> Solution | None:
    """The one named, else the only one of this definition around it."""
    if (file := request.solution) is not None:
        solution = _required(read_text(require(file, "file")).encode(), Solution, file.name)
        if solution.definition != name:
            raise UsageError(
                f"{file.name} is a solution of '{solution.definition}', not of '{name}'",
                hint="name the definition that it is of",
            )
        return solution
    beside = [f for f in _around(path, "solutions") if f.suffix == ".json" and f != path]
    solutions = (_decoded(read_text(file).encode(), Solution) for file in beside)
    mine = [one for one in solutions if one is not None and one.definition == name]
    if len(mine) > 1:
        what = f"there are {len(mine)} solutions of '{name}'"
        raise UsageError(what, hint="name one with --solution FILE.json")
    return mine[0] if mine else None


def _baseline(solution: Solution, outputs: list[str]) -> Module:
    spec, called = solution.spec, solution.name
    sources = [source.path for source in solution.sources]
    file, _, entry = spec.entry_point.partition("::")
    if not entry or file not in sources:
        raise UsageError(
            f"the solution {called} has no entry point among its sources: '{file}::{entry}'",
            hint='"entry_point": "main.py::run", with main.py one of its sources',
        )
    if spec.language in PYTHON:
        loads = f'_given = given.File(__file__, "{file}")'
    elif spec.language in COMPILED and spec.binding in BINDINGS:
        compiled = [name for name in sources if name.endswith((".cu", ".cpp", ".cc", ".cxx", ".c"))]
        arguments = f"__file__, {literal(study_name(called))}, {literal(compiled)}"
        loads = f"_given = given.Extension({arguments}, by_torch={spec.binding == 'torch'})"
    else:
        with_binding = f" with the binding {spec.binding}" if spec.binding else ""
        raise UsageError(
            f"the solution {called} is in {spec.language}{with_binding}",
            hint=f"tried are {', '.join((*PYTHON, *COMPILED))}, the last two by TVM FFI or torch",
        )
    out = f"given.call(_given.{entry}, inputs)"
    if not spec.destination_passing_style:
        out = f"given.by_name({out}, {literal(outputs)})"
    return calling(f"{called}, {file}::{entry}", loads, out)


FORMAT = Format(
    label="a FlashInfer-Bench definition",
    files=".json",
    priority=10,
    is_of=lambda request: request.source.suffix == ".json",
    read=read_flashinfer_bench,
    options=frozenset({"solution", "workload"}),
)
