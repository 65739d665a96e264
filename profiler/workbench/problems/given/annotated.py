"""A function for nsight-python, taken apart: what makes its inputs, and its ranges."""

from __future__ import annotations

import ast
import itertools
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

from workbench.problems.given.calls import only
from workbench.problems.given.inputs import filled, seeded
from workbench.problems.given.user_module import File
from workbench.problems.user_files import parameters
from workbench.words import Inputs

if TYPE_CHECKING:
    import torch

    from workbench.study.model import Shape

RESULT = "_result"


def _annotation(node: ast.expr) -> str:
    """The name in ``nsight.annotate("name")``, "" for anything else."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("nsight.annotate", "annotate"):
        first = node.args[0] if node.args else None
        return str(first.value) if isinstance(first, ast.Constant) else ""
    return ""


def _decorated(tree: ast.Module) -> dict[str, str]:
    """Functions with ``@nsight.annotate("name")``, and the names."""
    nodes = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    found = {n.name: next(filter(None, map(_annotation, n.decorator_list)), "") for n in nodes}
    return {name: called for name, called in found.items() if called}


def ranges_of(tree: ast.Module, node: ast.FunctionDef) -> dict[str, list[ast.stmt]]:
    decorated = _decorated(tree)
    found = [_ranges_in(statement, decorated) for statement in node.body]
    return {name: body for each in found for name, body in each.items()}


def _ranges_in(statement: ast.stmt, decorated: Mapping[str, str]) -> dict[str, list[ast.stmt]]:
    if isinstance(statement, ast.With):
        names = [_annotation(item.context_expr) for item in statement.items]
        return {name: statement.body for name in names if name}
    if isinstance(statement, ast.Assign | ast.Expr) and isinstance(statement.value, ast.Call):
        called = decorated.get(ast.unparse(statement.value.func), "")
        return {called: [statement]} if called else {}
    return {}


class Annotated(File):
    """A ``function`` of a file, its ranges callable each by itself."""

    def __init__(self, beside: str, name: str, function: str) -> None:
        super().__init__(beside, name)
        self.function = function

    @cached_property
    def module(self) -> ModuleType:
        """Loaded with a stand-in for nsight, which would start ncu by itself."""
        before = {n: m for n, m in sys.modules.items() if n.partition(".")[0] == "nsight"}
        for name in before:
            del sys.modules[name]
        sys.modules["nsight"] = _stand_in()
        try:
            return self.loaded()
        finally:
            del sys.modules["nsight"]
            sys.modules.update(before)

    def setup(self, shape: Shape, generator: torch.Generator) -> Inputs:
        """All that stands before the first range binds."""
        import torch

        given = {
            name: getattr(torch, str(value)[6:]) if str(value).startswith("torch.") else value
            for name, value in shape.items()
        }
        with seeded(generator):
            found: Inputs = self._parts[0](**given)
        return found

    def range(self, name: str, inputs: Inputs) -> Any:
        """The tensors that a range binds, or writes into."""
        import torch

        whole, fresh = filled(inputs)
        with torch.no_grad():
            bound = self._parts[1][name](**whole)
        tensors = tuple(value for value in bound if isinstance(value, torch.Tensor))
        return only(tensors or fresh) if tensors or fresh else None

    @cached_property
    def _parts(self) -> tuple[Callable[..., Inputs], Mapping[str, Callable[..., Any]]]:
        """What stands before the ranges, and each range by its name."""
        text = self.path.read_text(encoding="utf-8")
        tree = ast.parse(text, filename=str(self.path))
        node = next(
            n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == self.function
        )
        ranges, decorated = ranges_of(tree, node), _decorated(tree)
        setup = list(itertools.takewhile(lambda s: not _ranges_in(s, decorated), node.body))
        names = sorted({*parameters(node), *_bound(setup)})
        back = ast.parse("locals()", mode="eval").body
        made = _function("setup", node.args, [*setup, ast.Return(back)])
        parts = [_function(f"range_{at}", _keywords(names), _returning(body))
                 for at, body in enumerate(ranges.values())]  # fmt: skip
        module = ast.fix_missing_locations(ast.Module([made, *parts], []))
        space = dict(vars(self.module))
        exec(compile(module, str(self.path), "exec"), space)
        return space["setup"], {name: space[f"range_{at}"] for at, name in enumerate(ranges)}


def _bound(body: list[ast.stmt]) -> list[str]:
    found = [n for s in body for n in ast.walk(s) if isinstance(n, ast.Name)]
    return list(dict.fromkeys(n.id for n in found if isinstance(n.ctx, ast.Store)))


def _function(name: str, args: ast.arguments, body: list[ast.stmt]) -> ast.FunctionDef:
    plain = ast.parse(f"def {name}(): pass").body[0]
    assert isinstance(plain, ast.FunctionDef)
    plain.args, plain.body = args, body
    return plain


def _keywords(names: list[str]) -> ast.arguments:
    """All by name, those that nothing gives are None; others are taken, too."""
    parsed = ast.parse(f"def f(*, {''.join(f'{n}=None, ' for n in names)}**others): pass").body[0]
    assert isinstance(parsed, ast.FunctionDef)
    return parsed.args


def _returning(body: list[ast.stmt]) -> list[ast.stmt]:
    """With what it binds as a tuple; a bare call at its end counts as bound."""
    *before, last = body
    if isinstance(last, ast.Expr):
        bind = ast.Assign([ast.Name(RESULT, ast.Store())], last.value)
        body = [*before, ast.copy_location(bind, last)]
    names = _bound(body)
    back = ast.Return(ast.Tuple([ast.Name(name, ast.Load()) for name in names], ast.Load()))
    return [*body, back]


def _stand_in() -> ModuleType:
    """A module in which decorators and ranges do nothing, and everything else is there."""

    class Nothing(ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return Nothing(f"{self.__name__}.{name}")

        def __call__(self, *given: Any, **keywords: Any) -> Any:
            """A decorator gives its function; one with arguments, and a range, give this."""
            return given[0] if len(given) == 1 and callable(given[0]) else self

        def __enter__(self) -> None:
            return None

        def __exit__(self, *error: object) -> None:
            return None

    return Nothing("nsight")
