"""A Python file with a function and tensors.

``inputs()`` in the file gives a dict, or a tuple in the order of the parameters; its own parameters
with defaults are those of the shape. ``reference`` in the file is what the function is compared
with where ``--vs`` names nothing else.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from pathlib import Path

from workbench.errors import UsageError, nearest, unknown
from workbench.problems.problem import DEFAULT_SHAPE, Format, GivenShape, Problem, Request, calling
from workbench.problems.user_files import (
    Made,
    Versus,
    bound,
    classes,
    compared_with,
    functions,
    gathered,
    literal,
    modules,
    parameters,
    parsed,
    read_input,
    required_parameters,
)
from workbench.words import Parameter

INPUTS, REFERENCE = "inputs", "reference"
NOT_TRIED = (INPUTS, REFERENCE, "main", "test")
JIT = ("triton.jit", "jit", "triton.autotune", "triton.heuristics", "cuda.jit", "ct.kernel")
FILE = "_given"


def read_python_function(request: Request) -> Problem:
    """Raises UsageError for a file without a function or inputs, or with several functions."""
    path = request.source
    tree = parsed(path)
    function = pick(path, tree, request.function)
    node = functions(tree).get(function)
    names = parameters(node) if node else []
    made = [read_input(text) for text in request.inputs]
    has_inputs = INPUTS in functions(tree)
    defaults = own_parameters(path, functions(tree)[INPUTS]) if has_inputs else {}
    taken = [item for item in made if item.name not in defaults]
    if not has_inputs:
        require_inputs(path, function, node, taken)
    elif node:
        require_parameters(function, node, [item.name for item in taken], defaults)
    inside, files = gathered(path)
    shape = defaults | {item.name: item.parameter for item in made if not item.is_none}
    load, call = (
        f'{FILE} = given.File(__file__, "{inside}")',
        f"given.call({FILE}.{function}, inputs)",
    )
    compiled = Versus(
        f"torch.compile of {function}",
        load,
        f"given.call(given.compiled({FILE}, {literal(function)}), inputs)",
    )
    theirs = Versus(
        f"{path.name}:{REFERENCE}",
        f'_versus = given.File(__file__, "{inside}")',
        f"given.call(_versus.{REFERENCE}, inputs)",
    )
    has_own = REFERENCE in functions(tree) and not request.versus
    references = compared_with(request, path.parent, [theirs] if has_own else [], compiled)
    itself = not references or references[0] is compiled
    drawn = "{}" if not has_inputs else _own_inputs(tree, names)
    shown = f"its function {function}({', '.join(names)})"
    return Problem(
        kind=FORMAT.label,
        what=f"{path.name}, {FORMAT.label}: {shown}",
        name=function,
        title=f"{function} of {path.name}",
        files=files,
        shapes={DEFAULT_SHAPE: GivenShape(shape)},
        default_shape=DEFAULT_SHAPE,
        loads=f"{load}\n{'' if itself else references[0].loads}",
        made=f"{drawn} | {made_text(taken)}" if taken else drawn,
        expression=call if itself else references[0].expression,
        baseline=calling(f"{path.name}:{function}", load, call),
        references=modules(references, files),
        against=references[0].called if references else "",
        itself=itself,
    )


def pick(path: Path, tree: ast.Module, wanted: str) -> str:
    defined = functions(tree)
    candidates = [
        name
        for name, node in defined.items()
        if not name.startswith("_") and name not in NOT_TRIED and not is_kernel(node)
    ]
    if wanted:
        if wanted in defined and is_kernel(defined[wanted]):
            raise UsageError(
                f"{path.name}:{wanted} is a kernel, which a function of Python launches",
                hint=f"name that function: {', '.join(candidates) or 'the file has none'}",
            )
        if wanted in classes(tree) or (wanted.partition(".")[0] in bound(tree) and "." in wanted):
            raise UsageError(
                f"{path.name}:{wanted} is no function of the file",
                hint=wrapped(path, wanted, wanted in classes(tree)),
            )
        if wanted not in bound(tree):
            raise unknown(f"function of {path.name}", wanted, candidates)
        return wanted
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise UsageError(
            f"{path.name} has several functions: {', '.join(candidates)}",
            hint=f"name one: {path.name}:{candidates[-1]}",
        )
    if modules := [
        n for n, c in classes(tree).items() if any("Module" in ast.unparse(b) for b in c.bases)
    ]:
        raise UsageError(
            f"{path.name} defines no function to try", hint=wrapped(path, modules[-1], True)
        )
    raise UsageError(
        f"{path.name} defines no function to try",
        hint="a function of tensors; or a KernelBench problem's Model with get_inputs()",
    )


def wrapped(path: Path, name: str, is_class: bool) -> str:
    """Return what to write where the file has a class or an attribute in place of a function."""
    before = f"model = {name}().cuda()\n    " if is_class else ""
    return (
        f"add a function that calls it, and try {path.name}:run\n"
        f"    {before}def run(x):\n        return {'model' if is_class else name}(x)"
    )


def is_kernel(node: ast.FunctionDef) -> bool:
    """Whether a decorator makes it a kernel, which only a launch can call."""
    called = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
    return any(ast.unparse(mark) in JIT for mark in called)


def require_inputs(
    path: Path, function: str, node: ast.FunctionDef | None, made: Sequence[Made]
) -> None:
    """Raises UsageError where a parameter has no value, or a value no parameter."""
    names = [one.name for one in made]
    names_taken = parameters(node) if node else names
    open_ended = node is None or node.args.kwarg is not None or node.args.vararg is not None
    required = required_parameters(node) if node else []
    missing = [name for name in required if name not in names]
    if not made or (missing and not open_ended):
        named = ", ".join(missing or names_taken) or "its tensors"
        first = (missing or names_taken or ["x"])[0]
        raise UsageError(
            f"{path.name} has no inputs() and no --input gives {named} of {function}()",
            hint=f"--input '{first}=randn(4096,8192)' for a tensor, --input '{first}=8192' for a "
            "value, or a function inputs() in the file",
        )
    if node:
        require_parameters(function, node, names)


def require_parameters(
    function: str, node: ast.FunctionDef, names: Sequence[str], shape: Iterable[str] = ()
) -> None:
    """Raises UsageError for a value that no parameter takes, of the function or of the ``shape``
    that its ``inputs()`` has.
    """
    accepted = parameters(node)
    wrong = [name for name in names if name not in accepted]
    if wrong and node.args.kwarg is None and node.args.vararg is None:
        also = f" or of {INPUTS}()" if shape else ""
        raise UsageError(
            f"--input gives '{wrong[0]}', which is no parameter of {function}(){also}",
            hint=nearest(wrong[0], [*accepted, *shape]),
        )


def own_parameters(path: Path, node: ast.FunctionDef) -> dict[str, Parameter]:
    """Read the shape from the defaults of ``inputs(rows=4096)``."""
    names, defaults = parameters(node), [*node.args.defaults, *node.args.kw_defaults]
    if len(names) != len(defaults):
        raise UsageError(
            f"{path}:{node.lineno}: inputs() has a parameter without a default",
            hint="such as def inputs(rows=4096): the defaults are the shape that is tried",
        )
    values: dict[str, Parameter] = {}
    for name, default in zip(names, defaults, strict=True):
        try:
            value = ast.literal_eval(default) if default is not None else None
        except (ValueError, TypeError):
            value = None
        if not isinstance(value, bool | int | float | str):
            raise UsageError(
                f"{path}:{node.lineno}: the default of '{name}' in inputs() is no number or text",
                hint="such as def inputs(rows=4096)",
            )
        values[name] = value
    return values


def _own_inputs(tree: ast.Module, names: Sequence[str]) -> str:
    taken = parameters(functions(tree)[INPUTS])
    keywords = ", ".join(f"{name}=shape[{literal(name)}]" for name in taken)
    return f"given.named({FILE}.{INPUTS}({keywords}), {literal(list(names))})"


def made_text(made: Sequence[Made]) -> str:
    """Write the inputs of ``--input`` as a dict: tensors made of the shape, values as they are."""
    parts = [
        f"{literal(item.name)}: given.made(shape[{literal(item.name)}], generator)"
        if item.call
        else f"{literal(item.name)}: {None if item.is_none else f'shape[{literal(item.name)}]'}"
        for item in made
    ]
    return f"{{{', '.join(parts)}}}"


FORMAT = Format(
    label="a Python function",
    files=".py with inputs(), or --input",
    priority=10,
    is_of=lambda request: request.source.suffix == ".py",
    read=read_python_function,
    options=frozenset({"inputs"}),
)
