"""The way of a reader through ``ablate``, from its options to its verdict, every branch taken.

    python -m tools.walk            the figures
    python -m tools.walk --steps    the functions, in order, indented by depth of calls

A function is read once, where it is first called, arguments before the call. A call is followed
where its name leads to one definition: through the module and its imports, a class, or ``self``.
Methods called on an object are not followed, so that measuring (``run/``) and loading
(``load.py``) are missing, and what renders and prints is left out. A *stay* is a run of functions
in one file; a *return* is a stay in a file that was left before.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

ENGINE = Path(__file__).parents[1] / "profiler/workbench"
START = ("cli/ablate.py", "run")
PRINTS = ("render/", "cli/streams.py:show")
ENTERED = ("__init__", "__post_init__", "__enter__", "__exit__", "__call__")  # by using a class


@dataclass(frozen=True)
class Definition:
    file: str
    name: str
    node: ast.FunctionDef | ast.ClassDef = field(compare=False)

    @property
    def is_read(self) -> bool:
        return not f"{self.file}:{self.name}".startswith(PRINTS)


class Code:
    """The definitions of the engine by file and name, and what each file imports."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}  # by module
        self.definitions: dict[tuple[str, str], Definition] = {}
        self.imports: dict[str, dict[str, tuple[str, str]]] = {}
        for path in sorted(ENGINE.rglob("*.py")):
            file = str(path.relative_to(ENGINE))
            module = "workbench." + file.removesuffix(".py").replace("/", ".")
            self.files[module.removesuffix(".__init__")] = file
            self._read(file, ast.parse(path.read_text()))

    def _read(self, file: str, tree: ast.Module) -> None:
        self.imports[file] = {
            alias.asname or alias.name: (node.module, alias.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.definitions[file, node.name] = Definition(file, node.name, node)
            if isinstance(node, ast.ClassDef):
                for method in node.body:
                    if isinstance(method, ast.FunctionDef):
                        name = f"{node.name}.{method.name}"
                        self.definitions[file, name] = Definition(file, name, method)

    def meant(self, file: str, name: str) -> Definition | str | None:
        """What a name in a file means: a definition, or another file."""
        if (file, name) in self.definitions:
            return self.definitions[file, name]
        module, attribute = self.imports[file].get(name, ("", ""))
        if f"{module}.{attribute}" in self.files:
            return self.files[f"{module}.{attribute}"]
        there = self.files.get(module)
        return self.meant(there, attribute) if there and there != file else None

    def named_in(self, definition: Definition) -> Iterator[Definition]:
        """What a definition names, in order."""
        body: list[ast.stmt] = list(definition.node.body)
        if isinstance(definition.node, ast.ClassDef):
            methods = [each for each in body if isinstance(each, ast.FunctionDef)]
            body = [method for method in methods if method.name in ENTERED]
        for node in (n for statement in body for n in _in_order(statement)):
            found: Definition | str | None = None
            if isinstance(node, ast.Name):
                found = self.meant(definition.file, node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                of = self.meant(definition.file, node.value.id)
                if node.value.id == "self":
                    of = self.meant(definition.file, definition.name.partition(".")[0])
                if isinstance(of, str):
                    found = self.meant(of, node.attr)
                elif of is not None:
                    found = self.definitions.get((of.file, f"{of.name}.{node.attr}"))
            if isinstance(found, Definition):
                yield found


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one as they are evaluated; annotations are no calls."""
    children: list[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call):
        children = [*node.args, *node.keywords, node.func]
    elif isinstance(node, ast.FunctionDef):
        children = list(node.body)
    elif isinstance(node, ast.AnnAssign):
        children = [node.value] if node.value else []
    for child in children:
        if not isinstance(child, ast.arguments):
            yield from _in_order(child)
    yield node


def walk(code: Code) -> list[tuple[int, Definition]]:
    """Every definition on the way, with its depth in calls."""
    way: dict[Definition, int] = {}

    def read(definition: Definition, depth: int) -> None:
        if definition in way or not definition.is_read:
            return
        way[definition] = depth
        for each in code.named_in(definition):
            read(each, depth + 1)

    read(code.definitions[START], 0)
    # A class of plain data has nothing to read.
    return [
        (depth, definition)
        for definition, depth in way.items()
        if isinstance(definition.node, ast.FunctionDef) or any(code.named_in(definition))
    ]


def stays(way: list[tuple[int, Definition]]) -> list[str]:
    return [file for file, _ in groupby(definition.file for _, definition in way)]


if __name__ == "__main__":
    way = walk(Code())
    if "--steps" in sys.argv:
        for depth, definition in way:
            print(f"{'  ' * depth}{definition.file}:{definition.name}")
    files = stays(way)
    entered = len(set(files))
    print(
        f"{len(way)} definitions, {len(files)} stays in {entered} files, "
        f"{len(files) - entered} returns"
    )
