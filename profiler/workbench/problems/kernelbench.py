"""A KernelBench problem: ``Model``, ``get_inputs()``, ``get_init_inputs()``, and ``ModelNew``.

``ModelNew`` stands in the same file or in that of ``--solution``; without one ``Model`` itself is
tried. Both are made from the same seed, and ``ModelNew`` takes the parameters of ``Model`` where
their names and shapes are the same, as the benchmark does it (``kernelbench/eval.py``).
"""

from __future__ import annotations

import ast

from workbench.errors import UsageError
from workbench.problems.expressions import literal
from workbench.problems.problem import (
    DEFAULT_SHAPE,
    GivenShape,
    Kind,
    Module,
    Problem,
    Request,
    require,
)
from workbench.problems.sources import (
    COMPILE,
    Versus,
    bound,
    classes,
    find_versus,
    functions,
    parameters,
    parsed,
    together,
    variant_name,
)
from workbench.problems.sources import study_name as named

MODEL, NEW, INPUTS = "Model", "ModelNew", "get_inputs"


def is_problem(tree: ast.Module) -> bool:
    return MODEL in classes(tree) and INPUTS in functions(tree)


def is_solution(tree: ast.Module) -> bool:
    """Whether it has a ``ModelNew`` and no problem that it is of."""
    return NEW in classes(tree) and not is_problem(tree)


def read(request: Request) -> Problem:
    """Raises UsageError for a solution without ``ModelNew``."""
    path = request.source
    tree = parsed(path)
    files = together(path)
    solution = None
    if request.solution is not None:
        solution = require(request.solution, "file")
        if NEW not in bound(parsed(solution)):
            raise UsageError(
                f"{solution.name} defines no {NEW}",
                hint=f"a solution of a KernelBench problem is a class {NEW}(nn.Module)",
            )
        files |= together(solution)
    elif NEW in classes(tree):
        solution = path
    tried, name = (solution.name, NEW) if solution else (path.name, MODEL)
    model = f'_model = given.Network(given.File(__file__, "{path.name}"))'
    loads = model if not solution else _with_new(path.name, solution.name)
    call = "_model(inputs)"
    eager = Versus(f"{path.name}:{MODEL}", model, call)
    references = []
    if request.versus == COMPILE:
        text = f"{model[:-1]}, compiled=True)"
        references.append(Versus(f"torch.compile of {MODEL}", text, call))
    elif request.versus:
        references.append(find_versus(request, path.parent))
        files |= references[0].files
    if solution:
        references.append(eager)
    own = f"with the {NEW} of {tried}" if solution else f"without {NEW}: its {MODEL} is tried"
    return Problem(
        kind=Kind.KERNELBENCH,
        what=f"{path.name}, {Kind.KERNELBENCH}, {own}",
        name=request.name or named(path.stem),
        title=f"{name} of {tried}",
        files=files,
        shapes={DEFAULT_SHAPE: GivenShape({})},
        default_shape=DEFAULT_SHAPE,
        loads=model,
        made=f"given.listed(_model.file.{INPUTS}, {literal(_names(tree))}, generator)",
        exact="_model.double(inputs)",
        plain=call,
        baseline=Module("baseline", f"{tried}:{name}", _run(loads, call)),
        references=tuple(
            one.module("eager" if one is eager else variant_name(one.called, files))
            for one in references
        ),
        against=eager.called,
        itself=not solution,
    )


def _with_new(problem: str, solution: str) -> str:
    return (
        "_model = given.Network(\n"
        f'    given.File(__file__, "{problem}"), given.File(__file__, "{solution}")\n)'
    )


def _run(loads: str, call: str) -> str:
    return f"{loads}\n\n\ndef run(**inputs):\n    return {call}\n"


def _names(tree: ast.Module) -> list[str]:
    """Parameters of ``Model.forward``."""
    body = classes(tree)[MODEL].body
    forward = next(
        (n for n in body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None
    )
    return parameters(forward)[1:] if forward else []
