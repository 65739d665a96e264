"""The folder of a package: sources and the runtime that they need, cubins, texts, evidence."""

from __future__ import annotations

import ast
import hashlib
import keyword
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import workbench
from workbench.errors import UsageError
from workbench.study.files import read_text, stands
from workbench.study.front_ends import imported, package_of

NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
ENGINE = Path(workbench.__file__).parent
# The modules of the engine that a package carries.
RUNTIME = ("errors.py", "waits.py", "cuda/*.py", "cuda/*.cuh", "shipped/*.py", "study/values.py")
PROVENANCE = "provenance.json"
RUNTIME_PACKAGE = "_runtime"
_IMPORT = re.compile(r"^(\s*)from workbench((?:\.\w+)*) import", re.MULTILINE)
ITS_OWN = ("cuda", "Shape", "Tolerance", "Work")  # of ``workbench``, in a package as well
NEEDED_BY_CUDA = ("cuda-core>=1.0", "cuda-bindings>=12.8", "numpy>=1.26")
TORCH = "torch>=2.8"
COMES_ALONG = ("torch", "triton")  # torch brings it
# What a package imports, and namespaces that torch has for itself.
TAKEN = ("workbench", *COMES_ALONG, "cuda", "numpy", "kernels", "aten", "prim", "prims")


def require_name(name: str) -> tuple[str, str]:
    """What pip and Python call a package. Raises UsageError for what cannot be one."""
    if NAME.fullmatch(name) is None or keyword.iskeyword(name):
        raise UsageError(
            f"'{name}' is no name for a package",
            hint="small letters, digits and '-' or '_' between them, such as attention-h200",
        )
    module = name.replace("-", "_")
    if module in sys.stdlib_module_names or module in TAKEN:
        raise UsageError(f"'{name}' is the name of another package", hint="choose one that is free")
    return module.replace("_", "-"), module


def require_room(folder: Path) -> None:
    """Raises UsageError where something is there."""
    if stands(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            f"{folder} is there already, and is no empty folder",
            hint="name another with --to, or remove it",
        )


def runtime() -> Mapping[str, str]:
    """The modules of the engine that a package carries, by their path in it."""
    found = {}
    for pattern in RUNTIME:
        for path in sorted(ENGINE.glob(pattern)):
            inside = path.relative_to(ENGINE).as_posix()
            text = path.read_text(encoding="utf-8")
            found[f"{RUNTIME_PACKAGE}/{inside}"] = relative(text, inside.count("/"))
    found[f"{RUNTIME_PACKAGE}/study/__init__.py"] = ""
    return found


def relative(text: str, depth: int) -> str:
    """With imports of the engine as those of a module so many folders below the runtime."""

    def put(match: re.Match[str]) -> str:
        dots = "." * (depth + 1)
        return f"{match[1]}from {dots}{match[2].removeprefix('.')} import"

    return _IMPORT.sub(put, text)


def localised(path: Path) -> str:
    """A Python source of a study that imports the package's runtime in place of the workbench.

    Raises UsageError for one that imports more of it than travels.
    """
    text = read_text(path)
    for node in ast.walk(ast.parse(text)):
        for name in _of_workbench(node):
            if name not in ITS_OWN and name.partition(".")[0] != "cuda":
                raise UsageError(
                    f"{path.name}:{getattr(node, 'lineno', 0)} imports {name} of the workbench, "
                    "which does not travel",
                    hint=f"what does: from workbench import {', '.join(ITS_OWN)}",
                )
    return _IMPORT.sub(rf"\1from ...{RUNTIME_PACKAGE}\2 import", text)


def _of_workbench(node: ast.AST) -> Iterator[str]:
    """What a statement imports of it; ``import workbench`` would give all of it."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
        yield from ("itself" for name in names if name.partition(".")[0] == "workbench")
    elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "workbench":
        inside = (node.module or "").removeprefix("workbench").removeprefix(".")
        yield from ([inside] if inside else [alias.name for alias in node.names])


def dependencies(sources: Mapping[str, str], *, kernels: bool) -> list[str]:
    """What pip has to install for these Python sources, by name."""
    found = [TORCH, *(NEEDED_BY_CUDA if kernels else ())]
    others = {*sys.stdlib_module_names, "workbench", "cuda", "numpy"}
    for module in sorted({name for text in sources.values() for name in imported(text)[0]}):
        package = package_of(module)
        known = module.partition(".")[0] in others or package in (*COMES_ALONG, *found)
        found += [] if known else [package]
    return found


def digests(folder: Path) -> dict[str, str]:
    """sha256 of all files in a folder that are the package's own, by their path."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
