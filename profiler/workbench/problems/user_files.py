"""Read what a user names: files, with those that they import or open, and what options say
of them.
"""

from __future__ import annotations

import ast
import json
import os
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from workbench import bounds
from workbench.errors import EnvironmentLacks, UsageError, nearest, unknown
from workbench.problems.problem import STUDY_FILE, Module, Problem, Request, calling, require, split
from workbench.study.files import no_file, read_text, readable_text, require_readable, stands
from workbench.study.front_ends import how_to_install, imports_of, syntax_tree
from workbench.study.workspace import folder_name
from workbench.words import Parameter

MAKERS = ("randn", "rand", "zeros", "ones", "full", "empty", "arange", "randint", "randperm")
INTEGER_MAKERS = ("arange", "randint", "randperm")
DTYPES = (
    *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"),
    *("int64", "int32", "int16", "int8", "uint8", "bool"),
)
LIKE = ("empty_like", "zeros_like", "empty", "zeros")
INPUT_HINT = (
    "such as --input 'x=randn(4096,8192)', --input 'i=randint(0,100,(4096,),dtype=int32)' "
    "or --input 'n=1024'"
)
LAUNCH_HINT = (
    "such as --launch 'softmax[(rows,), 256](x, out, cols)': grid, block and, if it needs any, "
    "bytes of shared memory, in terms of inputs, x.shape[0], x.numel() and cdiv(a, b)"
)
_LAUNCH = re.compile(r"\s*([\w:<>,\s]+?)\s*(?:<<<(.*)>>>|\[(.*?)\])\s*(\(.*\))\s*", re.DOTALL)
_ARITHMETIC = (
    *(ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub, ast.BinOp, ast.UnaryOp),
    *(ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.Subscript, ast.Attribute, ast.Call),
)
_FUNCTIONS = ("cdiv", "min", "max")
_METHODS = ("numel", "size", "stride", "element_size", "shape")


@dataclass(frozen=True)
class Made:
    """An input of ``--input``, or an output: ``call`` is a tensor to be made, of ``dtype`` where
    that is known, else None. Without any the value is None, which no shape can have as a parameter.
    """

    name: str
    call: str | None
    value: Parameter | None = None
    dtype: str = ""

    @property
    def is_none(self) -> bool:
        return self.call is None and self.value is None

    @property
    def parameter(self) -> Parameter:
        return self.call or 0 if self.value is None else self.value


def _parsed(text: str, hint: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError(f"'{text}' cannot be read", hint=hint) from None


def is_plain(node: ast.expr) -> bool:
    """Whether it is a number, a string, a truth value, None, or a tuple or list of such."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return is_plain(node.operand)
    if isinstance(node, ast.Tuple | ast.List):
        return all(map(is_plain, node.elts))
    return isinstance(node, ast.Constant) and not isinstance(node.value, bytes)


def read_input(text: str) -> Made:
    """Raises UsageError for what is neither a tensor nor a plain value."""
    name, equals, expression = (piece.strip() for piece in text.partition("="))
    if not equals or not name.isidentifier():
        raise UsageError(f"--input '{text}' gives no name and value", hint=INPUT_HINT)
    node = _parsed(expression, INPUT_HINT)
    if not isinstance(node, ast.Call):
        is_word = isinstance(node, ast.Name) and node.id not in MAKERS
        value = ast.unparse(node) if is_word else plain_value(node)  # a shell takes quotes away
        if value is None and not (isinstance(node, ast.Constant) and node.value is None):
            raise UsageError(f"--input '{text}' is neither a tensor nor a number", hint=INPUT_HINT)
        return Made(name, None, value)
    if not isinstance(node.func, ast.Name) or node.func.id not in MAKERS:
        called = ast.unparse(node.func)
        raise UsageError(
            f"--input '{text}': '{called}' makes no input",
            hint=f"{nearest(called, MAKERS)}; {INPUT_HINT}",
        )
    dtype = _dtype(f"--input '{text}'", node)
    if not node.args or not all(map(is_plain, node.args)):
        raise UsageError(f"--input '{text}' has sizes that are no numbers", hint=INPUT_HINT)
    dtype = dtype or ("int64" if node.func.id in INTEGER_MAKERS else "float32")
    return Made(name, ast.unparse(node).replace("torch.", ""), dtype=dtype)


def plain_value(node: ast.AST | None) -> Parameter | None:
    """The value of a number, a string or a truth value, None of anything else."""
    value = ast.literal_eval(node) if isinstance(node, ast.expr) and is_plain(node) else None
    return value if isinstance(value, bool | int | float | str) else None


def _dtype(option: str, node: ast.Call) -> str:
    """Return the dtype of a call, "" for none. Raises UsageError for any other keyword or type."""
    name = ""
    for keyword in node.keywords:
        if keyword.arg != "dtype":
            raise UsageError(f"{option}: '{keyword.arg}' cannot be given", hint="only dtype=")
        name = ast.unparse(keyword.value).removeprefix("torch.").strip("'\"")
        if name not in DTYPES:
            raise UsageError(f"{option}: unknown dtype '{name}'", hint=nearest(name, DTYPES))
    return name


def read_call(text: str) -> tuple[str, str | None]:
    """Read the value of ``--vs``: a dotted name and its plain arguments, as text of the dict
    ``inputs``; None for a name alone. Raises UsageError.
    """
    hint = "such as --vs torch.softmax or --vs 'torch.softmax(x, dim=-1)'"
    node = _parsed(text, hint)
    if _dotted(node):
        return ast.unparse(node), None
    if isinstance(node, ast.Call) and _dotted(node.func):
        words = [("", one) for one in node.args]
        words += [(f"{one.arg or '**'}=", one.value) for one in node.keywords]
        if all((isinstance(v, ast.Name) or is_plain(v)) and word != "**=" for word, v in words):
            texts = (
                f"{word}given.one(inputs, {value.id!r})"
                if isinstance(value, ast.Name)
                else f"{word}{ast.unparse(value)}"
                for word, value in words
            )
            return ast.unparse(node.func), ", ".join(texts)
    raise UsageError(f"--vs '{text}' is neither a name nor a call of inputs", hint=hint)


def _dotted(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def read_launch(text: str, names: Collection[str]) -> tuple[str, str, list[str]]:
    """Read the value of ``--launch``: a kernel, which may be an instance of a template, the text of
    its extents and of each argument. ``names`` are the inputs and outputs. Raises UsageError.
    """
    match = _LAUNCH.fullmatch(text)
    node = _parsed(f"_[{match[2] or match[3]}]{match[4]}" if match else text, LAUNCH_HINT)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)) or node.keywords:
        raise UsageError(f"--launch '{text}' is no launch", hint=LAUNCH_HINT)
    extents = node.func.slice
    if not isinstance(extents, ast.Tuple) or len(extents.elts) not in (2, 3):
        raise UsageError(f"--launch '{text}' gives no grid and block", hint=LAUNCH_HINT)
    _check_sizes(f"--launch '{text}'", (*extents.elts, *node.args), names, LAUNCH_HINT)
    kernel = match[1].strip() if match else ast.unparse(node.func.value)
    return kernel, ", ".join(map(ast.unparse, extents.elts)), [*map(ast.unparse, node.args)]


def read_output(text: str, made: Mapping[str, Made]) -> Made:
    """Read ``--output 'out=empty_like(x)'``, in terms of what is ``made``. Raises UsageError."""
    hint = "such as --output 'out=empty_like(x)' or --output 'sums=empty(x.shape[0])'"
    name, equals, expression = (piece.strip() for piece in text.partition("="))
    node = _parsed(expression, hint) if equals and name.isidentifier() else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise UsageError(f"--output '{text}' gives no name and tensor", hint=hint)
    if node.func.id not in LIKE or not node.args:
        raise UsageError(
            f"--output '{text}': '{node.func.id}' makes no output", hint=nearest(node.func.id, LIKE)
        )
    dtype = _dtype(f"--output '{text}'", node)
    _check_sizes(f"--output '{text}'", node.args, made, hint)
    parts = [ast.unparse(piece) for piece in node.args]
    parts += [f"dtype=torch.{dtype}"] if dtype else []
    default = "float32"
    if node.func.id.endswith("_like"):
        named = (n.id for n in ast.walk(node.args[0]) if isinstance(n, ast.Name))
        default = next((made[like].dtype for like in named if like in made), "")
    else:
        parts.append("device='cuda'")
    return Made(name, f"torch.{node.func.id}({', '.join(parts)})", dtype=dtype or default)


def _check_sizes(option: str, parts: Iterable[ast.expr], names: Collection[str], hint: str) -> None:
    """Raises UsageError for anything but sizes, numbers, arithmetic and inputs."""
    for node in (node for expression in parts for node in ast.walk(expression)):
        wrong = ""
        if isinstance(node, ast.Name) and node.id not in {*names, *_FUNCTIONS}:
            wrong = f"'{node.id}' is no input or output; {nearest(node.id, names)}"
        elif not isinstance(node, _ARITHMETIC) or getattr(node, "attr", "shape") not in _METHODS:
            wrong = f"'{ast.unparse(node)}' is no size, number or input"
        if wrong:
            raise UsageError(f"{option}: {wrong}", hint=hint)


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


def made_text(made: Sequence[Made]) -> str:
    """Write the inputs of ``--input`` as a dict: tensors made of the shape, values as they are."""
    parts = [
        f"{literal(item.name)}: given.made(shape[{literal(item.name)}], generator)"
        if item.call
        else f"{literal(item.name)}: {None if item.is_none else f'shape[{literal(item.name)}]'}"
        for item in made
    ]
    return f"{{{', '.join(parts)}}}"


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


COMPILE = "compile"  # torch.compile of the format's own reference, or of what is tried


def with_references(
    problem: Problem,
    request: Request,
    theirs: Sequence[Module] = (),
    compiled: Module | None = None,
) -> Problem:
    """Add the variants of what ``--vs`` names, and of ``theirs``, the references of the format;
    ``compiled`` is what ``--vs compile`` means. The first one is the reference of a problem that
    names none, but for ``compiled`` and for ranges.

    Raises what ``find_versus`` does, and UsageError where two different files have one name.
    """
    references, files = list(theirs), dict(problem.files)
    if request.versus:
        is_compiled = request.versus == COMPILE
        references.insert(0, compiled if is_compiled and compiled else find_versus(request))
    for reference in references:
        for name in reference.files.keys() & files.keys():
            if reference.files[name] not in (files[name], b"") and files[name]:
                raise UsageError(
                    f"{name} of --vs {reference.called} has the name of a file that is tried",
                    hint=f"copy one of them to another name than {Path(name).name}",
                )
        files |= {n: data for n, data in reference.files.items() if data or n not in files}
    named = (replace(r, name=r.name or variant_name(r.called, files)) for r in references)
    problem = replace(problem, files=files, references=tuple(named))
    if problem.against or not references or (problem.ranges and not request.versus):
        return problem
    first = references[0]
    if first is not compiled:
        more = "" if first.loads in problem.loads else first.loads
        loads = f"{problem.loads}\n{more}".strip()
        problem = replace(problem, loads=loads, expression=first.expression, itself=False)
    return replace(problem, against=first.called)


def find_versus(request: Request) -> Module:
    """Raises UsageError for what names nothing, EnvironmentLacks for a package that is missing. A
    file beside the problem's needs no path.
    """
    source = request.source
    folder = source if source.is_dir() else source.parent
    text = request.versus
    file = text.partition(":")[0]
    if file.endswith(".py") or "/" in file:
        return _of_file(text, folder)
    target, arguments = read_call(text)
    package = target.partition(".")[0]
    if package == target:
        raise UsageError(
            f"--vs '{text}' names no package and no file",
            hint=f"such as --vs torch.softmax or --vs FILE:{target}",
        )
    if not request.elsewhere and find_spec(package) is None:
        raise EnvironmentLacks(
            f"--vs {text}: the Python package '{package}' is not installed here",
            hint=f"{how_to_install(package)}, or name another to compare with",
        )
    loads = f'_versus = given.Dotted("{target}")'
    call = "given.compared(_versus, inputs)" if arguments is None else f"_versus({arguments})"
    return calling(text, loads, call, name="")


def _of_file(text: str, folder: Path) -> Module:
    path, function = split(text)
    if not path.exists() and (folder / path).exists():
        path = folder / path
    path = require(path, "file")
    tree = parsed(path)
    candidates = [name for name in functions(tree) if not name.startswith("_")]
    if not function and len(candidates) == 1:
        function = candidates[0]
    if not function or function not in bound(tree):
        functions_listed = ", ".join(candidates) or "none"
        raise UsageError(
            f"--vs {text} names no function of {path.name}",
            hint=f"write --vs {path.name}:FUNCTION, one of: {functions_listed}",
        )
    name, files = gathered(path)
    loads = f'_versus = given.File(__file__, "{name}")'
    call = f"given.call(_versus.{function}, inputs, some=True)"
    return replace(calling(f"{path.name}:{function}", loads, call, name=""), files=files)


def variant_name(called: str, taken: Mapping[str, object]) -> str:
    """A module's name for a reference, after what it is called; none of ``taken``."""
    if called.startswith("torch.compile of"):
        called = "compiled"
    name = study_name(re.sub(r"\(.*|:.*|\.py$", "", called).removesuffix(".py"))
    while f"{name}.py" in taken or name in ("study", "baseline"):
        name = f"{name}_reference"
    return name
