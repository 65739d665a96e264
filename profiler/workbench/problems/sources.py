"""The user's files: read, with those that they import or open, and what ``--vs`` names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from workbench.errors import UsageError
from workbench.problems.problem import STUDY_FILE
from workbench.study.text import no_file, read_text
from workbench.study.workspace import folder_name

_NAMED = re.compile(r"""["']([\w./-]+\.\w+)["']""")
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
TEXT = (".py", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc")
LARGEST = 256 << 20  # bytes of a file that comes along without being asked for


def parsed(path: Path) -> ast.Module:
    """Raises UsageError for what is no file or no Python, with the user's own line."""
    text = read_text(path)
    try:
        return ast.parse(text, filename=str(path))
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise UsageError(
            f"{path}:{error.lineno}: SyntaxError: {error.msg}{f': {line}' if line else ''}",
            hint="mend the line named",
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path} cannot be read as Python: {error}") from None


def together(path: Path, top: Path | None = None) -> dict[str, bytes]:
    """The file and, through what they import, include or name in a string, those beside it.

    By their names below ``top``, the folder of the first one. Raises UsageError for a name that a
    study needs for itself.
    """
    folder = top or path.parent
    found: dict[str, bytes] = {}
    queue = [path.relative_to(folder).as_posix()]
    while queue:
        name = queue.pop(0)
        file = folder / name
        if name in found or no_file(file) or file.stat().st_size > LARGEST:
            continue
        if name == STUDY_FILE:
            raise UsageError(
                f"{file} has a name that a study needs for itself", hint="call the file otherwise"
            )
        found[name] = file.read_bytes()
        if file.suffix in TEXT:
            queue += _named(file, folder, name)
    return found


def _named(file: Path, folder: Path, name: str) -> Iterator[str]:
    text = file.read_text(encoding="utf-8", errors="replace")
    inside = name.rpartition("/")[0]
    if file.suffix != ".py":
        yield from (f"{inside}/{n}" if inside else n for n in _INCLUDE.findall(text))
        return
    yield from (n for n in _NAMED.findall(text) if not n.startswith(("/", "..")))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            modules = [base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names)]
        else:
            continue
        for module in filter(None, modules):
            for prefix in dict.fromkeys(("", f"{inside}/" if inside else "")):
                parts = prefix + module.replace(".", "/")
                yield from (f"{parts}.py", f"{parts}/__init__.py")


def study_name(text: str) -> str:
    """A name that a folder and a table can have."""
    return folder_name([re.sub(r"[^\w]+", "_", text).strip("_").lower() or "kernel"])


def functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Those defined at the top of a file, in their order."""
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def bound(tree: ast.Module) -> set[str]:
    """All names that the top of a file binds: also ``softmax = Softmax.apply``."""
    found = {*functions(tree), *classes(tree)}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        found |= {t.id for t in targets if isinstance(t, ast.Name)}
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def parameters(node: ast.FunctionDef) -> list[str]:
    """Names of the positional and keyword parameters."""
    every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return [argument.arg for argument in every]
