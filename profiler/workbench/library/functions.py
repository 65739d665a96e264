"""A function of a script or notebook as a module: its source, and the code it needs around it.

Code is taken along, never values: the top-level statements that bind what the function names, what
those name, and so on. What is not known from code is refused: a closure, a tensor that was
computed, a loop that binds a name, a module that only this script can import.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import linecache
import os
import re
import symtable
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from types import FunctionType, ModuleType
from typing import Any

from workbench.app.executor import Local
from workbench.app.new import added, step_of
from workbench.app.target import find_study, shown_path
from workbench.errors import UsageError
from workbench.study.model import Study
from workbench.study.own_files import write_bytes
from workbench.study.text import read_text

ENTRY = "run"  # what a variant's module is called by
DECORATOR = "variant"
LONGEST = 4096  # of a list, dict or string that is data
PLAIN = (ast.Assign, ast.AnnAssign, ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
PROVENANCE = "# From {function}() of {place} by @workbench.variant: change it there, not here."


@dataclass(frozen=True)
class FunctionModule:
    """The code around a function: one text, its top-level statements, and where it stands."""

    text: str
    body: list[ast.stmt]
    place: str
    folder: Path

    @property
    def futures(self) -> list[ast.ImportFrom]:
        imports = (node for node in self.body if isinstance(node, ast.ImportFrom))
        return [node for node in imports if node.module == "__future__"]

    def source(self, node: ast.stmt) -> str:
        """Of a statement, with its decorators but for ``@variant`` itself."""
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(d.lineno for d in decorators)])
        lines = dict(enumerate(self.text.splitlines(), start=1))
        dropped = {
            number
            for decorator in decorators
            if _is_variant(decorator)
            for number in range(decorator.lineno, (decorator.end_lineno or 0) + 1)
        }
        wanted = (n for n in range(first, (node.end_lineno or first) + 1) if n not in dropped)
        return "\n".join(lines[number] for number in wanted)


def _is_variant(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name == DECORATOR


def module_of(function: Callable[..., Any]) -> str:
    """The text of a module with ``run``. Raises UsageError for what cannot be taken along."""
    plain = plain_function(function)
    around = around_of(plain)
    name = plain.__name__
    statements = needed(around, plain)
    imports = [n for n in statements if isinstance(n, ast.Import | ast.ImportFrom)]
    others = [n for n in statements if n not in imports]
    parts = [
        PROVENANCE.format(function=name, place=around.place),
        "\n".join(around.source(n) for n in [*around.futures, *imports]),
        *(around.source(node) for node in others),
        *([f"{ENTRY} = {name}"] if name != ENTRY else []),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def written_out(function: Callable[..., Any]) -> str:
    """``FILE:FUNCTION`` of a module with the function in the user's cache, the same for the same
    function, so that what was measured of it is found again. Raises UsageError.
    """
    text = module_of(function)
    name = plain_function(function).__name__
    around = around_of(plain_function(function))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(f"{around.folder}/{around.place}:{name}".encode()).hexdigest()[:8]
    file = cache / "workbench" / "functions" / digest / f"{name}.py"
    write_bytes(file, text.encode())
    return f"{file}:{name}"


def plain_function(function: Callable[..., Any]) -> FunctionType:
    """Raises UsageError for what is no function of its own at the top level of a file or cell."""
    found = inspect.unwrap(function)
    found = getattr(found, "_torchdynamo_orig_callable", found)
    if not isinstance(found, FunctionType) or found.__name__ == "<lambda>":
        raise UsageError(
            f"{function!r} is no function with a def", hint="write def, and call the rest in it"
        )
    where = f"{found.__name__}()"
    if found.__closure__:
        names = ", ".join(found.__code__.co_freevars)
        raise UsageError(
            f"{where} uses {names} of the function around it, which is a value, not code",
            hint="make it an input of the study, or a constant at the top of the file",
        )
    if "<locals>" in found.__qualname__:
        raise UsageError(
            f"{where} is defined inside of another function",
            hint="define it at the top level of the file or cell",
        )
    return found


def around_of(function: FunctionType) -> FunctionModule:
    """The file, or the cells of the notebook so far. Raises UsageError where there is no text."""
    cells = sys.modules["__main__"].__dict__.get("In")
    file = function.__code__.co_filename
    if function.__module__ == "__main__" and isinstance(cells, list) and not Path(file).is_file():
        texts, place, folder = list(filter(_parses, cells)), "a notebook", Path.cwd()
    else:
        texts, place, folder = (
            ["".join(linecache.getlines(file))],
            Path(file).name,
            Path(file).parent,
        )
    text = "\n".join(texts)
    if not text.strip():
        raise UsageError(
            f"there is no source of {function.__name__}() to take along",
            hint="define it in a file or in a notebook's cell, not at a prompt or in exec()",
        )
    return FunctionModule(text, ast.parse(text).body, place, folder)


def _parses(cell: str) -> bool:
    try:
        ast.parse(cell)
    except SyntaxError:
        return False
    return True


def needed(around: FunctionModule, function: FunctionType) -> list[ast.stmt]:
    """The statements that bind the function and all that it names, in the order of the text."""
    binders = {name: node for node in around.body for name in bound(node)}  # the last one counts
    queue, found = [function.__name__], set[int]()
    while queue:
        name = queue.pop()
        node = binders.get(name)
        if node is None:
            require_builtin(function, name)
            continue
        if id(node) in found:
            continue
        require_code(around, function, name, node)
        found.add(id(node))
        queue += named("\n".join([*map(around.source, around.futures), around.source(node)]))
    return [node for node in around.body if id(node) in found]


def require_builtin(function: FunctionType, name: str) -> None:
    """Raises UsageError for a name that no statement binds and that is known all the same."""
    if name in function.__globals__ and not name.startswith("__"):
        raise UsageError(
            f"{function.__name__}() needs '{name}', which no statement at the top level binds",
            hint="import it by its name, not by a star, or bind it by a statement of its own",
        )


def bound(node: ast.stmt) -> Iterator[str]:
    """The names that a top-level statement binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    else:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                yield inner.id


def named(source: str) -> set[str]:
    """The names of the module that a statement reads, be it when it runs or when it is called."""
    return set(_globals(symtable.symtable(source, "statement", "exec"), top=True))


def _globals(table: symtable.SymbolTable, *, top: bool = False) -> Iterator[str]:
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (top or symbol.is_global()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _globals(child)


def require_code(around: FunctionModule, function: FunctionType, name: str, node: ast.stmt) -> None:
    """Raises UsageError where a statement could not stand in another file as it does here."""
    where = f"{function.__name__}() needs '{name}'"
    if not isinstance(node, PLAIN):
        raise UsageError(
            f"{where}, which {around.place}:{node.lineno} binds within other code",
            hint="bind it by a statement of its own at the top level",
        )
    value = function.__globals__.get(name)
    if isinstance(node, ast.Assign | ast.AnnAssign) and is_data(value):
        raise UsageError(
            f"{where}, a {type(value).__name__} that was computed: it is data, not code",
            hint="make it an input of the study, so that every variant gets the same",
        )
    home = str(getattr(node, "module", None))
    module = value if isinstance(value, ModuleType) else sys.modules.get(home)
    file = str(getattr(module, "__file__", None) or "")
    imported = isinstance(node, ast.Import | ast.ImportFrom) and file
    if imported and Path(file).resolve().parent == around.folder.resolve():
        raise UsageError(
            f"{where} of {Path(file).name}, which only code in that folder can import",
            hint=f"move what it needs into {around.place}, or install it as a package",
        )


def is_data(value: object) -> bool:
    """Tensors, arrays, tables, models, and long lists or strings."""
    if isinstance(value, type | FunctionType | ModuleType):
        return False
    if any(hasattr(value, mark) for mark in ("__array__", "data_ptr", "state_dict")):
        return True
    return isinstance(value, list | tuple | dict | set | str | bytes) and len(value) > LONGEST


KERNEL = re.compile(r"""\bcuda\.kernel\(\s*["']([^"']+)["']""")
OURS = PROVENANCE.rpartition("} by ")[2]


def write_variant(
    function: Callable[..., Any],
    *,
    name: str,
    parent: str,
    change: str,
    predict: Sequence[str],
    study: str | None,
    project: Path | None,
) -> None:
    """The module, and the step where the ladder has none of that name. Raises UsageError."""
    workspace, found = find_study(Local(), project, study)
    if workspace.packaged:
        raise UsageError(
            "there is no workspace here to write a variant into",
            hint="`workbench init` makes one; or name its folder: @wb.variant(project=...)",
        )
    text = module_of(function)
    require_sources(found, text, around_of(plain_function(function)).folder)
    module = found.folder / f"{name}.py"
    step = found.ladder.step(name)
    if step is None:
        step = step_of(found, name, parent, change, predict, copied=False)
        added(found, step, {module: text.encode()})
        return
    if step.parent != parent:
        raise UsageError(
            f"step '{name}' of {shown_path(found.ladder.path)} builds on '{step.parent}', "
            f"not on '{parent}'",
            hint="change it there, or take another name",
        )
    was = read_text(module)
    if OURS not in was.partition("\n")[0]:
        raise UsageError(
            f"{shown_path(module)} was not written from a function", hint="take another name"
        )
    if was != text:
        write_bytes(module, text.encode())


def require_sources(study: Study, text: str, folder: Path) -> None:
    """Raises UsageError for a kernel that lies beside the script, where no variant finds it."""
    for name in KERNEL.findall(text):
        if (folder / name).is_file() and not (study.folder / name).is_file():
            raise UsageError(
                f"{name} lies beside the script, and a variant's files in {study.folder}",
                hint=f"move it there: mv {quote(str(folder / name))} {quote(str(study.folder))}",
            )
