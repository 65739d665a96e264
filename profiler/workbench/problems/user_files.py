"""The user's files: read, with those that they import or open, and what ``--vs`` names."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from workbench.errors import EnvironmentLacks, UsageError
from workbench.problems.expressions import read_call
from workbench.problems.problem import STUDY_FILE, Module, Request, calling, require, split
from workbench.study.files import no_file, read_text, stands
from workbench.study.front_ends import how_to_install
from workbench.study.workspace import folder_name

_NAMED = re.compile(r"""["']([\w./-]+\.\w+)["']""")
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
TEXT = (".py", ".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc")
INIT = "__init__.py"
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
            hint="fix this line",
        ) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{path} cannot be read as Python: {error}") from None


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
    """The name of a file among those that come along, and these: see ``together``.

    A file with relative imports, or with imports from its own package, comes as a part of that
    package. An ``__init__.py`` that none of them imports a name from comes empty.
    """
    imports = list(_imports(parsed(path)))
    levels = max((level for level, _, _ in imports), default=0)
    root = package_root(path)
    own = path.relative_to(root).parts[0]
    if not levels and not any(module.partition(".")[0] == own for _, module, _ in imports):
        return path.name, together(path)
    if len(path.relative_to(root).parts) <= levels:
        root = path.parents[levels]
    files = together(path, root)
    for name in list(files):
        for folder in list(Path(name).parents)[:-1]:
            files.setdefault(f"{folder.as_posix()}/{INIT}", b"")
    return path.relative_to(root).as_posix(), files


def together(path: Path, top: Path | None = None) -> dict[str, bytes]:
    """The file and, through what they import, include or name in a string, those beside it.

    By their names below ``top``, the folder of the first one. Raises UsageError for a name that a
    study needs for itself.
    """
    folder = top or path.parent
    found: dict[str, bytes] = {}
    queue = [path.relative_to(folder).as_posix()]
    while queue:
        name = posixpath.normpath(queue.pop(0))
        file = folder / name
        if name in found or name.startswith("..") or no_file(file):
            continue
        if file.stat().st_size > LARGEST:
            continue
        if name == STUDY_FILE:
            raise UsageError(
                f"{file} has a name that a study needs for itself", hint="call the file otherwise"
            )
        found[name] = file.read_bytes()
        if file.suffix in TEXT:
            queue += _named(file, folder, name)
    return found


def _named(file: Path, top: Path, name: str) -> Iterator[str]:
    text = file.read_text(encoding="utf-8", errors="replace")
    inside = name.rpartition("/")[0]
    beside = f"{inside}/" if inside else ""
    if file.suffix != ".py":
        yield from (beside + one for one in _INCLUDE.findall(text))
        return
    for one in _NAMED.findall(text):
        if not one.startswith(("/", "..")):
            yield from dict.fromkeys((one, beside + one))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for level, module, names in _imports(tree):
        up = "../" * (level - 1)
        starts = [beside + up] if level else dict.fromkeys(("", beside))
        for start in starts:
            base = start + module.replace(".", "/")
            modules = [f"{base}/{each}" for each in names]
            yield from (f"{part}.py" for part in (base, *modules))
            yield from (f"{part}/{INIT}" for part in modules)
            if not names or not all(stands(top / f"{m}.py") or stands(top / m) for m in modules):
                yield f"{base}/{INIT}"


def _imports(tree: ast.Module) -> Iterator[tuple[int, str, list[str]]]:
    """Dots before it, module and names of every import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or "", [alias.name for alias in node.names]


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
    every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return [argument.arg for argument in every]


def required_parameters(node: ast.FunctionDef) -> list[str]:
    """Names of those without a default."""
    arguments = node.args
    positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return [
        *positional[: len(positional) - len(arguments.defaults)],
        *(argument.arg for argument, default in named if default is None),
    ]


COMPILE = "compile"  # torch.compile of the format's own reference, or of what is tried


@dataclass(frozen=True)
class Versus:
    """``called`` is how a reader knows it; ``loads`` are lines of a module that calls it, and
    ``expression`` the call of the dict ``inputs`` then. ``name``: of the module, "" for one after
    what it is called.
    """

    called: str
    loads: str
    expression: str
    name: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)

    def module(self, taken: Mapping[str, object] = MappingProxyType({})) -> Module:
        name = self.name or variant_name(self.called, taken)
        return calling(self.called, self.loads, self.expression, name)


def compared_with(
    request: Request, folder: Path, own: Sequence[Versus], compiled: Versus | None = None
) -> list[Versus]:
    """What ``--vs`` names, then the references that a format has of its ``own``. ``compiled`` is
    what ``--vs compile`` means. Raises what ``find_versus`` does.
    """
    if compiled and request.versus == COMPILE:
        return [compiled, *own]
    return [*([find_versus(request, folder)] if request.versus else []), *own]


def modules(references: Sequence[Versus], files: dict[str, bytes]) -> tuple[Module, ...]:
    """Variants of the references, whose files are added to those of a problem. Raises UsageError
    where two different files have one name.
    """
    for one in references:
        for name in one.files.keys() & files.keys():
            if one.files[name] not in (files[name], b"") and files[name]:
                raise UsageError(
                    f"{name} of --vs {one.called} has the name of a file that is tried",
                    hint=f"copy one of them to another name than {Path(name).name}",
                )
        files |= {n: data for n, data in one.files.items() if data or n not in files}
    return tuple(one.module(files) for one in references)


def find_versus(request: Request, folder: Path) -> Versus:
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
            hint=f"{how_to_install(package)}, or name another to compare with",
        )
    loads = f'_versus = given.Dotted("{call.target}")'
    if call.arguments is None:
        return Versus(text, loads, "given.compared(_versus, inputs)")
    return Versus(text, loads, f"_versus({with_inputs(call.arguments)})")


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
    name, files = gathered(path)
    loads = f'_versus = given.File(__file__, "{name}")'
    call = f"given.call(_versus.{function}, inputs)"
    return Versus(f"{path.name}:{function}", loads, call, files=files)


def variant_name(called: str, taken: Mapping[str, object]) -> str:
    """A module's name for a reference, after what it is called; none of ``taken``."""
    if called.startswith("torch.compile of"):
        called = "compiled"
    name = study_name(re.sub(r"\(.*|:.*|\.py$", "", called).removesuffix(".py"))
    while f"{name}.py" in taken or name in ("study", "baseline"):
        name = f"{name}_reference"
    return name
