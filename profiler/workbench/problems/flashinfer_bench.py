"""A FlashInfer-Bench definition with its workloads and a solution (``docs/flashinfer-trace``).

``definition.json`` has axes, inputs, outputs and the reference; ``--workload`` names the JSONL file
with values of the variable axes, ``--solution`` the JSON file with the sources. Both are found by
themselves where they stand beside the definition, or as in the data set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from workbench.errors import UsageError, nearest
from workbench.problems.expressions import DTYPES, literal
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
from workbench.problems.user_files import Versus, compared_with, modules, study_name
from workbench.study import json_text
from workbench.study.text import read_text
from workbench.words import Parameter

MOST_SHAPES = 8  # of a definition's workloads, which may be hundreds
PARTS = ("name", "axes", "inputs", "outputs", "reference")
PYTHON = ("python", "triton", "tilelang")


def read(request: Request) -> Problem:
    """Raises UsageError for what is no definition, and for a part that is missing or misfits."""
    path, data = request.source, _json(request.source)
    if {"spec", "sources"} <= set(data):
        raise UsageError(
            f"{path.name} is a solution of '{data.get('definition')}', and no definition",
            hint=f"workbench try DEFINITION.json --solution {path.name}",
        )
    if absent := [part for part in PARTS if part not in data]:
        raise UsageError(
            f"{path.name} is no definition of FlashInfer-Bench: it has no '{absent[0]}'",
            hint=f"a definition has {', '.join(PARTS)}",
        )
    inputs, outputs = (_tensors(path, data, key) for key in ("inputs", "outputs"))
    loads, files = _workloads(request, path, data)
    shapes, default_shape = largest(loads, MOST_SHAPES)
    solution = _solution(request, path, data["name"])
    reference_file = f"{study_name(data['name'])}_reference.py"
    files |= {reference_file: f"{data['reference'].rstrip()}\n".encode()}
    names = literal(list(outputs))
    own = Versus(
        f"the reference of {data['name']}",
        f'_reference = given.File(__file__, "{reference_file}")',
        f"given.by_name(given.called(_reference.run, inputs, reads=True), {names})",
        "definition",
    )
    tried, written = calling(own.called, own.loads, own.expression), {}
    if solution is not None:
        tried, style, sources = _baseline(solution, list(outputs))
        files |= sources
        written = outputs if style else {}
    call = own.expression.replace("_reference.run", "given.compiled(_reference, 'run')")
    compiled = Versus("torch.compile of the reference", own.loads, call)
    references = compared_with(request, path.parent, [own] if solution else [], compiled)
    told = f"with the solution {solution['name']}" if solution else "without a solution"
    return Problem(
        kind=FORMAT.label,
        what=f"{path.name}, {FORMAT.label}, {len(shapes)} workloads, {told}",
        name=data["name"],
        title=solution["name"] if solution else data["name"],
        files=files,
        shapes=shapes,
        default_shape=default_shape,
        loads=f"INPUTS = {literal(inputs)}\nOUTPUTS = {literal(written)}\n{own.loads}",
        made="given.workload(INPUTS, OUTPUTS, shape, generator, __file__)",
        expression=own.expression,
        baseline=tried,
        references=modules(references, files),
        against=own.called,
        itself=solution is None,
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json_text.as_data(read_text(path))
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}", hint="fix this line") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path} is no JSON object", hint=f"a definition has {', '.join(PARTS)}")
    return data


def _around(path: Path, kind: str) -> Iterator[Path]:
    """Files beside a path, and those below the folder of a ``kind`` of its data set."""
    yield from sorted(p for p in path.parent.iterdir() if p.is_file())
    for folder in list(path.parents)[:4]:
        if (folder / kind).is_dir():
            yield from sorted(p for p in (folder / kind).rglob("*") if p.is_file())


def _tensors(path: Path, data: Mapping[str, Any], key: str) -> dict[str, tuple[Any, str]]:
    """Name to its axes, numbers where they are constant, and its type."""
    axes = data["axes"]
    found: dict[str, tuple[Any, str]] = {}
    for name, spec in data[key].items():
        shape, dtype = spec.get("shape"), spec.get("dtype", "")
        if dtype not in DTYPES:
            raise UsageError(
                f"{path.name}: '{name}' has the dtype '{dtype}', which cannot be made here",
                hint=nearest(dtype, DTYPES),
            )
        for axis in shape or ():
            if axis not in axes:
                raise UsageError(
                    f"{path.name}: '{name}' has an unknown axis '{axis}'", hint=nearest(axis, axes)
                )
        sizes = None if shape is None else tuple(axes[a].get("value", a) for a in shape)
        found[name] = (sizes, dtype)
    return found


def _workloads(
    request: Request, path: Path, data: Mapping[str, Any]
) -> tuple[dict[str, GivenShape], dict[str, bytes]]:
    variable = [name for name, axis in data["axes"].items() if "value" not in axis]
    file = _workload_file(request, path, str(data["name"]))
    if file is None:
        if variable:
            raise UsageError(
                f"{path.name} has the variable axes {', '.join(variable)} and no workload",
                hint="--workload FILE.jsonl gives their values",
            )
        return {"given": GivenShape({})}, {}
    found: dict[str, GivenShape] = {}
    files: dict[str, bytes] = {}
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        if not line.strip():
            continue
        load = _workload(file, number, line, str(data["name"]))
        if load is None:
            continue
        axes = {name: load["axes"].get(name) for name in variable}
        if lacking := [name for name, value in axes.items() if not isinstance(value, int)]:
            raise UsageError(
                f"{file.name}:{number}: the workload has no axis '{lacking[0]}'",
                hint=f"variable axes are {', '.join(variable)}",
            )
        given = _given(load, file, files)
        name = "_".join(f"{axis}{value}" for axis, value in axes.items()) or "given"
        name = name if name not in found else f"{name}-{str(load.get('uuid', number))[:8]}"
        found[name] = GivenShape({**axes, **given})
    if not found:
        raise UsageError(
            f"{file.name} has no workload of '{data['name']}'", hint="one JSON object a line"
        )
    return found, files


def _workload_file(request: Request, path: Path, name: str) -> Path | None:
    if request.workload is not None:
        return require(request.workload, "file")
    lines = [file for file in _around(path, "workloads") if file.suffix == ".jsonl"]
    return next((f for f in lines if f.stem == name), lines[0] if len(lines) == 1 else None)


def _workload(file: Path, number: int, line: str, name: str) -> dict[str, Any] | None:
    """Of a line, which may be a trace; None where it is one of another definition."""
    try:
        data = json_text.as_data(line)
    except ValueError as error:
        raise UsageError(f"{file.name}:{number} is no JSON: {error}") from None
    if data.get("definition", name) != name:
        return None
    load = data.get("workload", data)
    if not isinstance(load, dict) or not {"axes", "inputs"} <= set(load):
        raise UsageError(
            f"{file.name}:{number} is no workload", hint="a workload has axes and inputs"
        )
    return load


def _given(load: Mapping[str, Any], file: Path, files: dict[str, bytes]) -> dict[str, Parameter]:
    """Plain values, and where stored tensors are; their files come along."""
    found: dict[str, Parameter] = {}
    for name, spec in load["inputs"].items():
        kind = spec.get("type")
        if kind == "scalar":
            found[name] = spec["value"]
        elif kind == "safetensors":
            stored = next(
                (f for f in (p / spec["path"] for p in file.resolve().parents) if f.is_file()), None
            )
            if stored is None:
                raise UsageError(
                    f"{file.name}: {spec['path']} of input '{name}' is nowhere above it",
                    hint="paths of safetensors are relative to the folder of the data set",
                )
            files[stored.name] = stored.read_bytes()
            found[name] = f"{stored.name}:{spec['tensor_key']}"
        elif kind != "random":
            raise UsageError(
                f"{file.name}: input '{name}' is of type '{kind}'",
                hint=nearest(str(kind), ("random", "scalar", "safetensors")),
            )
    return found


def _solution(request: Request, path: Path, name: str) -> dict[str, Any] | None:
    """The one named, else the only one of this definition around it."""
    if request.solution is not None:
        found = _json(require(request.solution, "file"))
        if not {"spec", "sources"} <= set(found):
            raise UsageError(
                f"{request.solution.name} is no solution: it has no spec and sources",
                hint="a solution of FlashInfer-Bench is a JSON file with name, spec, sources",
            )
        if found.get("definition") != name:
            raise UsageError(
                f"{request.solution.name} is a solution of '{found.get('definition')}', not of "
                f"'{name}'",
                hint="name the definition that it is of",
            )
        return found
    known = [_json(f) for f in _around(path, "solutions") if f.suffix == ".json" and f != path]
    mine = [s for s in known if s.get("definition") == name and {"spec", "sources"} <= set(s)]
    if len(mine) > 1:
        raise UsageError(
            f"there are {len(mine)} solutions of '{name}'",
            hint="name one with --solution FILE.json",
        )
    return mine[0] if mine else None


def _baseline(
    solution: Mapping[str, Any], outputs: list[str]
) -> tuple[Module, bool, dict[str, bytes]]:
    """The entry point, whether it writes into its outputs, and the sources."""
    spec, called = solution["spec"], str(solution["name"])
    sources = {s["path"]: s["content"].encode() for s in solution["sources"]}
    file, _, entry = str(spec.get("entry_point", "")).partition("::")
    if not entry or file not in sources:
        raise UsageError(
            f"the solution {called} has no entry point among its sources: '{file}::{entry}'",
            hint='"entry_point": "main.py::run", with main.py one of its sources',
        )
    style = bool(spec.get("destination_passing_style", True))
    language, binding = spec.get("language", "python"), spec.get("binding")
    if language in PYTHON:
        loads = f'_given = given.File(__file__, "{file}")'
    elif binding == "torch":
        compiled = [name for name in sources if name.endswith((".cu", ".cpp", ".cc", ".cxx", ".c"))]
        given = f"__file__, {literal(study_name(called))}, {literal(compiled)}"
        loads = f"_given = given.Extension({given})"
    else:
        raise UsageError(
            f"the solution {called} is in {language} with the binding {binding or 'tvm-ffi'}",
            hint='tried are python, triton, and cuda or cpp with "binding": "torch"',
        )
    out = f"given.called(_given.{entry}, inputs)"
    out = out if style else f"given.by_name({out}, {literal(outputs)})"
    return calling(f"{called}, {file}::{entry}", loads, out), style, sources


FORMAT = Format(
    label="a FlashInfer-Bench definition",
    files=".json",
    priority=10,
    is_of=lambda request: request.source.suffix == ".json",
    read=read,
    options=frozenset({"solution", "workload"}),
)
