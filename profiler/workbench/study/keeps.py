"""Where the code of a variant may keep something from one call to the next.

Read off the syntax alone, and on the careful side: a cached function that returns a number keeps
nothing that matters, and is named all the same. What is named costs a copy of the module for every
stream; what were not named would be wrong in the second stream.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from workbench.study.text import readable_text

CACHES = {"cache", "lru_cache", "cached_property"}
MADE = {
    *("arange", "empty", "full", "ones", "rand", "randint", "randn", "tensor", "zeros"),
    *("empty_like", "full_like", "ones_like", "zeros_like", "Event", "Generator", "Stream"),
}
CHANGES = {
    *("add", "append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault"),
    "update",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def kept_between_calls(paths: Iterable[Path]) -> tuple[str, ...]:
    """``FILE:LINE: what`` of every such place in some Python files; none of others."""
    found = []
    for path in paths:
        if path.suffix == ".py":
            try:
                tree = ast.parse(readable_text(path))
            except (SyntaxError, ValueError, RecursionError):
                continue  # building it says so
            places = dict(sorted(_of(tree)))
            found += [f"{path.name}:{line}: {what}" for line, what in places.items()]
    return tuple(found)


def _of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield from _of_function(node)
        elif isinstance(node, ast.ClassDef):
            yield from _made_outside(node.body)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield node.lineno, f"{', '.join(node.names)} outlives a call"
    yield from _made_outside(tree.body)


def _of_function(function: Function) -> Iterator[tuple[int, str]]:
    for decorator in function.decorator_list:
        made = decorator.func if isinstance(decorator, ast.Call) else decorator
        if _last(made) in CACHES:
            yield function.lineno, f"{function.name}() is cached"
    for default in [*function.args.defaults, *function.args.kw_defaults]:
        if isinstance(default, ast.Dict | ast.List | ast.Set):
            yield function.lineno, f"{function.name}() has a default that can be changed"
    own = _bound(function)
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Subscript | ast.Attribute)
            and not isinstance(node.ctx, ast.Load)
            and (isinstance(node, ast.Attribute) or _root(node) not in own)
        ):
            yield node.lineno, f"{ast.unparse(node)} is set"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            root = _root(node.func.value)
            if node.func.attr in CHANGES and root and root not in own:
                yield node.lineno, f"{ast.unparse(node.func.value)} is changed"
        if isinstance(node, ast.Call) and _last(node.func) == "setattr":
            yield node.lineno, "an attribute is set"


def _bound(function: Function) -> set[str]:
    """Names that are the function's own."""
    given = function.args
    names = {a.arg for a in [*given.posonlyargs, *given.args, *given.kwonlyargs]}
    names |= {a.arg for a in (given.vararg, given.kwarg) if a is not None}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _made_outside(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    """Tensors, streams and the like that a module or a class holds."""
    for statement in body:
        if isinstance(statement, Function | ast.ClassDef):
            continue
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call) or _last(node.func) not in MADE:
                continue
            if _root(node.func) in ("torch", "cupy", "cp"):
                yield node.lineno, f"{ast.unparse(node.func)}(...) is made once"


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
