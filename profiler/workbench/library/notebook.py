"""A function of a notebook as a file: ``try`` calls a source in a process of its own."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from types import ModuleType
from typing import Any

from workbench.app.try_ import cache
from workbench.errors import UsageError
from workbench.study.files import write_bytes

PLAIN = (bool, int, float, complex, str, bytes, type(None))


def source_of(function: Callable[..., Any]) -> str:
    """Return ``FILE:FUNCTION`` for a function: its own file, or for one that was typed into a
    notebook a file with it and all that it names there, written into the user's cache.

    Raises UsageError for what has no source, and for a value that cannot be written down.
    """
    plain = inspect.unwrap(getattr(function, "fn", function))
    name = getattr(plain, "__qualname__", "")
    if not name.isidentifier():
        raise UsageError(
            f"{name or function!r} is no function of a module", hint="define it with def, outermost"
        )
    module = inspect.getmodule(plain)
    if module is not None and module.__name__ != "__main__" and module.__file__:
        return f"{module.__file__}:{name}"
    text = _Cells(plain.__globals__).text_of(plain)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    path = cache() / "notebook" / f"{name}-{digest}" / f"{name}.py"
    write_bytes(path, text.encode())
    return f"{path}:{name}"


class _Cells:
    """Collects definitions of a notebook, each after those that it names."""

    def __init__(self, names: dict[str, object]) -> None:
        self.names = names
        self.imports: dict[str, None] = {}
        self.definitions: dict[str, str] = {}

    def text_of(self, function: Any) -> str:
        self._define(function.__name__, function)
        return "\n".join([*self.imports, "", "", *self.definitions.values()])

    def _define(self, name: str, value: Any) -> None:
        try:
            text = textwrap.dedent(inspect.getsource(getattr(value, "fn", value)))
        except (OSError, TypeError) as error:
            raise UsageError(
                f"{name} has no source: {error}", hint="write it to a file: %%writefile"
            ) from error
        self.definitions[name] = ""  # which may name itself
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Name) and node.id in self.names:
                self._need(node.id, self.names[node.id])
        del self.definitions[name]
        self.definitions[name] = f"{text}\n"

    def _need(self, name: str, value: Any) -> None:
        if name in self.definitions:
            return
        module = getattr(value, "__module__", None)
        if isinstance(value, ModuleType):
            self.imports[f"import {value.__name__} as {name}"] = None
        elif isinstance(value, PLAIN):
            self.definitions[name] = f"{name} = {value!r}\n"
        elif repr(value).startswith("torch."):  # a dtype or a layout
            self.imports["import torch"] = None
            self.definitions[name] = f"{name} = {value!r}\n"
        elif hasattr(value, "__qualname__") and module and module != "__main__":
            self.imports[f"from {module} import {value.__qualname__} as {name}"] = None
        elif hasattr(value, "__name__") and module == "__main__":
            self._define(name, value)
        else:
            raise UsageError(
                f"{name} is a value of type {type(value).__name__}, which no file can hold",
                hint="make it inside of the function, or pass it as an input",
            )
