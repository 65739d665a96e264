"""Read what options of ``try`` say: inputs, outputs, a launch, and what is compared with."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from workbench.errors import EnvironmentLacks, UsageError, nearest
from workbench.problems.problem import (
    DEFAULT_SHAPE,
    GivenShape,
    Module,
    Problem,
    Request,
    calling,
    require,
    split,
)
from workbench.problems.user_files import bound, functions, gathered, literal, parsed, study_name
from workbench.study.front_ends import how_to_install
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


def made_text(made: Sequence[Made]) -> str:
    """Write the inputs of ``--input`` as a dict: tensors made of the shape, values as they are."""
    parts = [
        f"{literal(item.name)}: given.made(shape[{literal(item.name)}], generator)"
        if item.call
        else f"{literal(item.name)}: {None if item.is_none else f'shape[{literal(item.name)}]'}"
        for item in made
    ]
    return f"{{{', '.join(parts)}}}"


def asked_shape(
    made: Iterable[Made], defaults: Mapping[str, Parameter] | None = None
) -> dict[str, GivenShape]:
    """The one shape of a problem whose inputs options give, ``defaults`` among its parameters."""
    parameters = {item.name: item.parameter for item in made if not item.is_none}
    return {DEFAULT_SHAPE: GivenShape({**(defaults or {}), **parameters})}


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
        path, function = split(text)
        is_beside = not path.exists() and (folder / path).exists()
        path = require(folder / path if is_beside else path, "file")
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


def variant_name(called: str, taken: Mapping[str, object]) -> str:
    """A module's name for a reference, after what it is called; none of ``taken``."""
    if called.startswith("torch.compile of"):
        called = "compiled"
    name = study_name(re.sub(r"\(.*|:.*|\.py$", "", called).removesuffix(".py"))
    while f"{name}.py" in taken or name in ("study", "baseline"):
        name = f"{name}_reference"
    return name
