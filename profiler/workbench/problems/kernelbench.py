"""A KernelBench problem: ``Model``, ``get_inputs()``, ``get_init_inputs()``, and ``ModelNew``.

``ModelNew`` stands in the same file or in that of ``--solution``; without one ``Model`` itself is
tried. Both are made from the same seed, and ``ModelNew`` takes the parameters of ``Model`` where
their names and shapes are the same, as the benchmark does it (``kernelbench/eval.py``).
"""

from __future__ import annotations

from workbench.errors import UsageError
from workbench.problems import try_options
from workbench.problems.problem import Format, Problem, Request, calling, require
from workbench.problems.python_function import called_of
from workbench.problems.user_files import (
    classes,
    functions,
    gathered,
    literal,
    parsed,
    require_defined,
)
from workbench.study.front_ends import parameters

MODEL, NEW, INPUTS = "Model", "ModelNew", "get_inputs"


def is_of(request: Request) -> bool:
    """A problem, or a solution without one, unless a function of the file was named."""
    if request.source.suffix != ".py" or request.function:
        return False
    tree = parsed(request.source)
    return NEW in classes(tree) or {MODEL, INPUTS} <= {*classes(tree), *functions(tree)}


def read_kernelbench(request: Request) -> Problem:
    """Raises UsageError for a solution without ``ModelNew``, and for one without its problem."""
    path = request.source
    tree = parsed(path)
    if not {MODEL, INPUTS} <= {*classes(tree), *functions(tree)}:
        raise UsageError(
            f"{path.name} has a {NEW} without the {MODEL} that it is of",
            hint=f"workbench try PROBLEM.py --solution {path.name}",
        )
    inside, files = gathered(path)
    solution, load = None, f'given.File(__file__, "{inside}")'
    model = f"_model = given.Network({load})"
    loads = model
    if request.solution is not None:
        solution = require(request.solution, "file")
        hint = f"a solution of a KernelBench problem is a class {NEW}(nn.Module)"
        require_defined(solution, [NEW], hint)
        theirs, others = gathered(solution)
        files |= others
        loads = f'_model = given.Network(\n    {load}, given.File(__file__, "{theirs}")\n)'
    elif NEW in classes(tree):
        solution, loads = path, f"_model = given.Network(\n    {load}, {load}\n)"
    tried, name = (solution.name, NEW) if solution else (path.name, MODEL)
    call = "_model(inputs)"
    eager = calling(f"{path.name}:{MODEL}", model, call, "eager")
    loads_compiled = f"{model[:-1]}, compiled=True)"
    compiled = calling(f"torch.compile of {MODEL}", loads_compiled, call, name="")
    alone = f"without {NEW}: its {MODEL} is tried"
    names = parameters(called_of(classes(tree)[MODEL], tree)[0])
    problem = Problem(
        what=f"{path.name}, {FORMAT.label}, {f'with the {NEW} of {tried}' if solution else alone}",
        name=path.stem,
        title=f"{name} of {tried}",
        files=files,
        loads=model,
        made=f"given.listed(_model.file.{INPUTS}, {literal(names)}, generator)",
        exact="_model.double(inputs)",
        expression=call,
        baseline=calling(f"{tried}:{name}", loads, call),
        against=eager.called,
        itself=not solution,
    )
    return try_options.with_references(problem, request, [eager] if solution else [], compiled)


FORMAT = Format(
    label="a KernelBench problem",
    files=".py with Model and get_inputs()",
    priority=50,
    is_of=is_of,
    read=read_kernelbench,
    options=frozenset({"solution"}),
)
