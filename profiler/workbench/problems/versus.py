"""What ``--vs`` names: any callable, a function of a file, or ``compile``."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from workbench.errors import EnvironmentLacks, UsageError
from workbench.problems.expressions import Call, read_call
from workbench.problems.problem import Module, Request, require, split
from workbench.problems.sources import bound, functions, parsed, study_name, together

COMPILE = "compile"  # torch.compile of the format's own reference, or of what is tried
VARIANT = "versus"


@dataclass(frozen=True)
class Versus:
    """``called`` is how a reader knows it; ``loads`` are lines of a module that calls it, and
    ``expression`` the call of the dict ``inputs`` then.
    """

    called: str
    loads: str
    expression: str
    files: Mapping[str, bytes] = field(default_factory=dict)

    def module(self, name: str = VARIANT) -> Module:
        return Module(
            name=name,
            called=self.called,
            text=f"{self.loads}\n\n\ndef run(**inputs):\n    return {self.expression}\n",
        )


def find(request: Request, folder: Path) -> Versus:
    """Raises UsageError for what names nothing, EnvironmentLacks for a package that is missing.

    ``folder`` is that of the problem: a file beside it needs no path.
    """
    text = request.versus
    file = text.partition(":")[0]
    if file.endswith(".py") or "/" in file:
        return _of_file(text, folder)
    call = read_call(text)
    package = call.target.partition(".")[0]
    if package == call.target:
        raise UsageError(
            f"--vs '{text}' names no package and no file",
            hint=f"such as --vs torch.softmax or --vs FILE:{call.target}",
        )
    if not request.elsewhere and find_spec(package) is None:
        raise EnvironmentLacks(
            f"--vs {text}: the Python package '{package}' is not installed here",
            hint=f"pip install {package}, or name another to compare with",
        )
    loads = f'_versus = given.Dotted("{call.target}")'
    return Versus(text, loads, _expression(call))


def _expression(call: Call) -> str:
    if call.arguments is None:
        return "given.compared(_versus, inputs)"
    return f"_versus({with_inputs(call.arguments)})"


def with_inputs(arguments: str) -> str:
    """Text of arguments in which bare names are those of inputs."""
    tree = ast.parse(f"f({arguments})", mode="eval")

    class Named(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            if node.id == "f":
                return node
            return ast.parse(f"given.one(inputs, {node.id!r})", mode="eval").body

    return ast.unparse(Named().visit(tree))[2:-1]


def _of_file(text: str, folder: Path) -> Versus:
    path, function = split(text)
    if not path.exists() and (folder / path).exists():
        path = folder / path
    path = require(path, "file")
    tree = parsed(path)
    candidates = [name for name in functions(tree) if not name.startswith("_")]
    if not function and len(candidates) == 1:
        function = candidates[0]
    if not function or function not in bound(tree):
        known = ", ".join(candidates) or "none"
        raise UsageError(
            f"--vs {text} names no function of {path.name}",
            hint=f"write --vs {path.name}:FUNCTION, one of: {known}",
        )
    loads = f'_versus = given.File(__file__, "{path.name}")'
    call = f"given.call(_versus.{function}, inputs)"
    return Versus(f"{path.name}:{function}", loads, call, together(path))


def variant_name(called: str, taken: Mapping[str, object]) -> str:
    """A module's name for a reference, after what it is called; none of ``taken``."""
    if called.startswith("torch.compile of"):
        called = "compiled"
    name = study_name(re.sub(r"\(.*|:.*|\.py$", "", called).removesuffix(".py"))
    while f"{name}.py" in taken or name in ("study", "baseline"):
        name = f"{name}_reference"
    return name
