"""A function decorated for nsight-python, which need not be installed.

Its configurations are the shapes. Of its ranges, ``with nsight.annotate(...)`` or a decorated
function that it calls, the last is tried unless one is named; the others that have the same results
are references, that of ``normalize_against`` before all. What stands before the first range makes
the inputs.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from workbench.errors import UsageError, unknown
from workbench.problems import try_options
from workbench.problems.given import ranges_of
from workbench.problems.problem import Format, GivenShape, Problem, Request, calling, largest
from workbench.problems.user_files import functions, gathered, literal, one_of, parsed, study_name
from workbench.study.front_ends import decorators, marked, parameters
from workbench.study.users_code import users_code

MOST_CONFIGS = 8
KERNEL = ("nsight.analyze.kernel", "analyze.kernel")
FILE = "_given"
TYPES = {name: f"torch.{name}" for name in (*try_options.DTYPES, "half", "float", "double")}


def is_of(request: Request) -> bool:
    if request.source.suffix != ".py":
        return False
    return any(marked(node, *KERNEL) for node in functions(parsed(request.source)).values())


def read_nsight_python(request: Request) -> Problem:
    """Raises UsageError for a function without a range or a configuration."""
    path = request.source
    tree = parsed(path)
    decorated = {n: node for n, node in functions(tree).items() if marked(node, *KERNEL)}
    node = decorated[one_of(path, "nsight-python function", decorated, request.function)]
    ranges = list(ranges_of(tree, node))
    if not ranges:
        raise UsageError(
            f"{path}:{node.lineno}: {node.name}() has no range",
            hint='with nsight.annotate("name"): around the call that is measured',
        )
    shapes, default_shape = largest(_shapes(request, path, tree, node), MOST_CONFIGS)
    against = _keyword(node, "normalize_against")
    first = against.value if isinstance(against, ast.Constant) else ""
    if request.range and request.range not in ranges:
        raise unknown(f"range of {node.name}()", request.range, ranges)
    tried = request.range or [name for name in ranges if name != first or len(ranges) == 1][-1]
    others = sorted((n for n in ranges if n != tried), key=lambda name: name != first)
    inside, files = gathered(path)
    load = f'{FILE} = given.Annotated(__file__, "{inside}", "{node.name}")'
    calls = {name: f"{FILE}.range({literal(name)}, inputs)" for name in ranges}
    ranges_too = [calling(n, load, calls[n], study_name(f"{n}_range")) for n in others]
    problem = Problem(
        what=f"{path.name}, {FORMAT.label}: {node.name}({', '.join(parameters(node))}), "
        f"{len(shapes)} configurations, ranges {', '.join(ranges)}",
        name=node.name,
        title=f"{tried} of {path.name}:{node.name}",
        files=files,
        shapes=shapes,
        default_shape=default_shape,
        loads=load,
        made=f"{FILE}.setup(shape, generator)",
        expression=calls[tried],
        baseline=calling(f"{path.name}:{tried}", load, calls[tried]),
        itself=True,
        ranges=bool(ranges_too),
    )
    return try_options.with_references(problem, request, ranges_too)


def _keyword(node: ast.FunctionDef, name: str) -> ast.expr | None:
    marks = decorators(node)
    words = (word for mark in KERNEL for word in marks.get(mark, ()))
    return next((word.value for word in words if word.arg == name), None)


def _shapes(
    request: Request, path: Path, tree: ast.Module, node: ast.FunctionDef
) -> dict[str, GivenShape]:
    made = [try_options.read_input(text) for text in request.inputs]
    names = [one.name for one in made] or parameters(node)
    rows: list[Any] = [tuple(one.value for one in made)] if made else []
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    keywords = (word.value for call in calls if ast.unparse(call.func) == node.name
                for word in call.keywords if word.arg == "configs")  # fmt: skip
    if configs := _keyword(node, "configs") or next(keywords, None):
        rows = rows or _evaluated(path, tree, configs)
    own_calls = (call for call in calls if ast.unparse(call.func) == node.name and call.args)
    plain_calls = (call for call in own_calls if all(map(try_options.is_plain, call.args)))
    rows = rows or [tuple(map(ast.literal_eval, call.args)) for call in plain_calls]
    if not rows and len(names) > len(node.args.defaults):
        raise UsageError(
            f"{path}:{node.lineno}: {node.name}() has no configuration",
            hint=f"--input '{names[0]}=1024' gives one, or configs= in its decorator",
        )
    shapes: dict[str, GivenShape] = {}
    for row in rows or [()]:
        values = dict(zip(names, row if isinstance(row, tuple | list) else (row,), strict=False))
        for value in values.values():
            if not isinstance(value, bool | int | float | str):
                raise UsageError(
                    f"{path.name}: {value!r} in a configuration is no number, text or dtype",
                    hint="--input 'n=1024' gives a configuration by hand",
                )
        label = "_".join(f"{n}{str(v).removeprefix('torch.')}" for n, v in values.items())
        shapes[study_name(label) if label else "given"] = GivenShape(values)
    return shapes


def _evaluated(path: Path, tree: ast.Module, configs: ast.expr) -> list[Any]:
    """The configurations, by running what they are made of and nothing else of the file."""
    wanted = _names(configs)
    statements: list[ast.stmt] = []
    inside = [f.body for f in functions(tree).values() if configs in ast.walk(f)]  # as in main()
    for node in reversed([*tree.body, *(line for body in inside for line in body)]):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(t, ast.Name) and t.id in wanted for t in targets):
            statements.insert(0, node)
            wanted |= _names(node)
    space = {"itertools": itertools, "math": math, "torch": SimpleNamespace(**TYPES)}
    module = ast.Module([*statements, ast.Assign([ast.Name("_configs", ast.Store())], configs)], [])
    with users_code(path, "has configurations that cannot be read"):
        exec(compile(ast.fix_missing_locations(module), str(path), "exec"), space)
    configurations = space["_configs"]
    return list(configurations) if isinstance(configurations, Iterable) else [configurations]


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


FORMAT = Format(
    label="a function for nsight-python",
    files=".py",
    priority=40,
    is_of=is_of,
    read=read_nsight_python,
    options=frozenset({"inputs", "range"}),
)
