"""Read files that a user names, with those that they import, include or open."""

from __future__ import annotations

import ast
import json
import os
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from workbench import bounds
from workbench.errors import UsageError, unknown
from workbench.problems.problem import STUDY_FILE
from workbench.study.files import no_file, read_text, readable_text, require_readable, stands
from workbench.study.front_ends import imports_of, syntax_tree
from workbench.study.workspace import folder_name


def literal(value: object) -> str:
    """Write a value as the modules of a study do, with double quotes."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(k)}: {literal(v)}' for k, v in value.items())}}}"
    if isinstance(value, list | tuple):
        parts = ", ".join(map(literal, value))
        comma = "," if isinstance(value, tuple) and len(value) == 1 else ""
        return f"[{parts}]" if isinstance(value, list) else f"({parts}{comma})"
    return repr(value)


_NAMED_FILE = re.compile(r"""["']([\w./-]+\.\w+)["']""")
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
TEXT = (".py", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc")
HEADERS = (".h", ".cuh", ".hpp", ".inl")
INIT = "__init__.py"
ABOVE, MOST_FOLDERS = 5, 1000  # that are searched for a header


def parsed(path: Path) -> ast.Module:
    """Raises UsageError for what is no file or no Python, with the user's own line."""
    text = read_text(path, bounds.SOURCE)
    try:
        return ast.parse(text, filename=str(path))
    except SyntaxError as error:
        line = (error.text or "").strip()
        raise UsageError(
            f"{path}:{error.lineno}: SyntaxError: {error.msg}{f': {line[:200]}' if line else ''}",
            hint="fix this line",
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        why = str(error) or "nested too deeply"
        raise UsageError(f"{path} cannot be read as Python: {why}") from None


def package_root(path: Path) -> Path:
    """The folder that the package of a file stands in: the file's own where it is in no package."""
    folder = path.parent
    while (folder / INIT).is_file() and folder != folder.parent:
        folder = folder.parent
    return folder


def dotted(path: Path) -> str:
    """The module's name of a path below the root of its package."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def gathered(path: Path) -> tuple[str, dict[str, bytes]]:
    """The name of a file among those that come along, and these: see ``_together``.

    A file with relative imports, or with imports from its own package, comes as a part of that
    package. An ``__init__.py`` that none of them imports a name from comes empty. A source of C++
    comes with what it includes from the folders above its own.
    """
    folder = path.parent
    if path.suffix != ".py":
        included = _INCLUDE.findall(readable_text(path))
        levels = max((n.count("../") for n in included if n.startswith("../")), default=0)
        folder = path.parents[min(levels, len(path.parents) - 1)]
    else:
        imports = list(imports_of(ast.walk(parsed(path))))
        levels = max((level for level, _, _ in imports), default=0)
        root = package_root(path)
        inside = path.relative_to(root).parts
        if levels or any(module.partition(".")[0] == inside[0] for _, module, _ in imports):
            folder = root if levels < len(inside) else path.parents[levels]
    files = _together(path, folder)
    if path.suffix == ".py" and folder != path.parent:
        for name in list(files):
            for package in list(Path(name).parents)[:-1]:
                files.setdefault(f"{package.as_posix()}/{INIT}", b"")
    return path.relative_to(folder).as_posix(), files


def _together(path: Path, folder: Path) -> dict[str, bytes]:
    """The file and, through what they import, include or name in a string, those below a folder.

    By their names there. A header of another folder comes under the name that it is included by,
    and C++ without what is not UTF-8 in it. Raises UsageError for a name that a study needs for
    itself.
    """
    contents: dict[str, bytes] = {}
    queue = [path.relative_to(folder).as_posix()]
    while queue:
        name = posixpath.normpath(queue.pop(0))
        if name in contents or name.startswith(".."):
            continue
        file = folder / name
        if no_file(file) and file.suffix in HEADERS:
            inside = path.parent.relative_to(folder).as_posix()
            file = header_elsewhere(path, posixpath.relpath(name, inside)) or file
        if no_file(file):
            continue
        if file.suffix in TEXT:
            require_readable(file, bounds.SOURCE)
        elif file.stat().st_size > bounds.BESIDE:
            continue
        if name == STUDY_FILE:
            raise UsageError(
                f"{file} has a name that a study needs for itself", hint="call the file otherwise"
            )
        contents[name] = file.read_bytes()
        if file.suffix in TEXT:
            queue += _named(file, folder, name)
        if file.suffix in TEXT[1:]:
            contents[name] = contents[name].decode("utf-8-sig", "replace").encode()
    return contents


def header_elsewhere(path: Path, name: str) -> Path | None:
    """The one file whose path ends with the name of a header, below the nearest folder above
    ``path`` that has any; in the repository, or three folders up.
    """
    above = list(path.parents)[:ABOVE]
    tops = [place for place, folder in enumerate(above) if (folder / ".git").exists()]
    wanted, seen = name.rpartition("/")[2], 0
    for folder in above[: tops[0] + 1 if tops else 3]:
        fits = []
        for inner, folders, files in os.walk(folder):
            folders[:] = [one for one in folders if not one.startswith(".")]
            fits += [Path(inner, wanted)] if wanted in files else []
            seen += 1
            if seen > MOST_FOLDERS:
                return None
        if exact := [one for one in fits if one.as_posix().endswith(f"/{name}")]:
            return exact[0] if len(exact) == 1 else None
    return None


def _named(file: Path, top: Path, name: str) -> Iterator[str]:
    text = file.read_text(encoding="utf-8", errors="replace")
    inside = name.rpartition("/")[0]
    beside = f"{inside}/" if inside else ""
    if file.suffix != ".py":
        yield from (beside + included for included in _INCLUDE.findall(text))
        return
    for included in _NAMED_FILE.findall(text):
        if not included.startswith(("/", "..")):
            yield from dict.fromkeys((included, beside + included))
    tree = syntax_tree(text)
    for level, module, names in imports_of(ast.walk(tree) if tree else ()):
        up = "../" * (level - 1)
        starts = [beside + up] if level else dict.fromkeys(("", beside))
        for start in starts:
            base = start + module.replace(".", "/")
            modules = [f"{base}/{imported}" for imported in names]
            yield from (f"{stem}.py" for stem in (base, *modules))
            yield from (f"{stem}/{INIT}" for stem in modules)
            if not names or not all(stands(top / f"{m}.py") or stands(top / m) for m in modules):
                yield f"{base}/{INIT}"


def study_name(text: str) -> str:
    """A name that a folder and a table can have."""
    return folder_name([re.sub(r"[^\w]+", "_", text).strip("_").lower() or "kernel"])


def functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def require_defined(path: Path, names: Iterable[str], hint: str) -> None:
    """Raises UsageError for a name that the top of a file does not bind."""
    if missing := [name for name in names if name not in bound(parsed(path))]:
        raise UsageError(f"{path.name} defines no {missing[0]}", hint=hint)


def one_of(path: Path, kind: str, names: Collection[str], wanted: str = "") -> str:
    """The one of the names that is ``wanted``, else the only one. Raises UsageError."""
    if wanted and wanted not in names:
        raise unknown(f"{kind} of {path.name}", wanted, names)
    first = next(iter(names))
    if not wanted and len(names) > 1:
        raise UsageError(
            f"{path.name} has several {kind}s: {', '.join(names)}",
            hint=f"name one: {path.name}:{first}",
        )
    return wanted or first


def classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def bound(tree: ast.Module) -> set[str]:
    """All names that the top of a file binds: also ``softmax = Softmax.apply``."""
    names = {*functions(tree), *classes(tree)}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        names |= {t.id for t in targets if isinstance(t, ast.Name)}
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names
