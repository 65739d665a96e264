"""What a user may write in an option: read as Python, and never run before it is known to be safe.

--input  'x=randn(4096, 8192, dtype=float16)'   a tensor, made on the GPU from fresh numbers
--input  'n=1024'                               a plain value, or text: mode=tanh
--vs     'torch.softmax(x, dim=-1)'             a call of inputs and plain values
--launch 'softmax[(rows,), 256](x, out, cols)'  a launch, also as softmax<<<rows, 256>>>(...)
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from workbench.errors import UsageError, nearest
from workbench.words import Parameter

MAKERS = ("randn", "rand", "zeros", "ones", "full", "empty", "arange", "randint", "randperm")
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
_CHEVRONS = re.compile(r"\s*([\w:<>,\s]+?)\s*<<<(.*)>>>\s*(\(.*\))\s*", re.DOTALL)
_ARITHMETIC = (
    *(ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.USub, ast.BinOp, ast.UnaryOp),
    *(ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.Subscript, ast.Attribute, ast.Call),
)
_FUNCTIONS = ("cdiv", "min", "max")
_METHODS = ("numel", "size", "stride", "element_size", "shape")


@dataclass(frozen=True)
class Made:
    """An input of ``--input``: ``call`` is a tensor to be made, in the grammar above, else None.
    ``is_none``: the value is None, which no shape can have as a parameter.
    """

    name: str
    call: str | None
    value: Parameter | None = None
    is_none: bool = False

    @property
    def parameter(self) -> Parameter:
        """What a shape has of it."""
        return self.call or 0 if self.value is None else self.value


def _parsed(text: str, hint: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError(f"'{text}' cannot be read", hint=hint) from None


def _plain(node: ast.expr) -> bool:
    """Whether it is a number, a string, a truth value, None, or a tuple or list of such."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _plain(node.operand)
    if isinstance(node, ast.Tuple | ast.List):
        return all(map(_plain, node.elts))
    return isinstance(node, ast.Constant) and not isinstance(node.value, bytes)


def read_input(text: str) -> Made:
    """Raises UsageError for what is neither a tensor nor a plain value."""
    name, equals, expression = (part.strip() for part in text.partition("="))
    if not equals or not name.isidentifier():
        raise UsageError(f"--input '{text}' gives no name and value", hint=INPUT_HINT)
    node = _parsed(expression, INPUT_HINT)
    if isinstance(node, ast.Constant) and node.value is None:
        return Made(name, None, is_none=True)
    if not isinstance(node, ast.Call):
        return Made(name, None, _value(text, node))
    if not isinstance(node.func, ast.Name) or node.func.id not in MAKERS:
        called = ast.unparse(node.func)
        raise UsageError(
            f"--input '{text}': '{called}' makes no input",
            hint=f"{nearest(called, MAKERS)}; {INPUT_HINT}",
        )
    _dtype(f"--input '{text}'", node)
    if not node.args or not all(map(_plain, node.args)):
        raise UsageError(f"--input '{text}' has sizes that are no numbers", hint=INPUT_HINT)
    return Made(name, ast.unparse(node).replace("torch.", ""))


def _value(text: str, node: ast.expr) -> Parameter:
    is_word = isinstance(node, ast.Name) and node.id not in MAKERS
    value = ast.unparse(node) if is_word else None  # a shell takes the quotes away
    value = ast.literal_eval(node) if _plain(node) else value
    if isinstance(value, bool | int | float | str):
        return value
    raise UsageError(f"--input '{text}' is neither a tensor nor a number", hint=INPUT_HINT)


def _dtype(option: str, node: ast.Call) -> str:
    """That of a call, "" for none. Raises UsageError for one that torch has not, and for any other
    keyword.
    """
    found = ""
    for keyword in node.keywords:
        if keyword.arg != "dtype":
            raise UsageError(f"{option}: '{keyword.arg}' cannot be given", hint="only dtype=")
        found = ast.unparse(keyword.value).removeprefix("torch.").strip("'\"")
        if found not in DTYPES:
            raise UsageError(f"{option}: unknown dtype '{found}'", hint=nearest(found, DTYPES))
    return found


@dataclass(frozen=True)
class Call:
    """``target`` is dotted; ``arguments`` is text, or None where only a name was given."""

    target: str
    arguments: str | None


def read_call(text: str) -> Call:
    """Of ``--vs``. Raises UsageError for anything but a name, or a call of plain arguments."""
    hint = "such as --vs torch.softmax or --vs 'torch.softmax(x, dim=-1)'"
    node = _parsed(text, hint)
    if _dotted(node):
        return Call(ast.unparse(node), None)
    if isinstance(node, ast.Call) and _dotted(node.func):
        values = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg)]
        if len(values) == len(node.args) + len(node.keywords) and all(
            isinstance(value, ast.Name) or _plain(value) for value in values
        ):
            whole = ast.unparse(node)
            return Call(ast.unparse(node.func), whole[len(ast.unparse(node.func)) + 1 : -1])
    raise UsageError(f"--vs '{text}' is neither a name nor a call of inputs", hint=hint)


def _dotted(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


@dataclass(frozen=True)
class LaunchCall:
    """``kernel`` may be an instance of a template. The rest is text of expressions."""

    kernel: str
    extents: str
    arguments: tuple[str, ...]


def read_launch(text: str, names: Collection[str]) -> LaunchCall:
    """Of ``--launch``; ``names`` are the inputs and outputs. Raises UsageError."""
    match = _CHEVRONS.fullmatch(text)
    kernel, rest = ("", text)
    if match:
        kernel, rest = match[1].strip(), f"kernel[{match[2]}]{match[3]}"
    elif "[" in text and "<" in text.partition("[")[0]:
        kernel, _, after = text.partition("[")
        kernel, rest = kernel.strip(), f"kernel[{after}"
    node = _parsed(rest, LAUNCH_HINT)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)) or node.keywords:
        raise UsageError(f"--launch '{text}' is no launch", hint=LAUNCH_HINT)
    extents = node.func.slice
    if not isinstance(extents, ast.Tuple) or len(extents.elts) not in (2, 3):
        raise UsageError(f"--launch '{text}' gives no grid and block", hint=LAUNCH_HINT)
    _check_sizes(f"--launch '{text}'", (*extents.elts, *node.args), names, LAUNCH_HINT)
    kernel = kernel or ast.unparse(node.func.value)
    return LaunchCall(
        kernel=kernel,
        extents=", ".join(map(ast.unparse, extents.elts)),
        arguments=tuple(map(ast.unparse, node.args)),
    )


def read_output(text: str, names: Collection[str]) -> tuple[str, str]:
    """Name and expression of ``--output 'out=empty_like(x)'``. Raises UsageError."""
    hint = "such as --output 'out=empty_like(x)' or --output 'sums=empty(x.shape[0])'"
    name, equals, expression = (part.strip() for part in text.partition("="))
    node = _parsed(expression, hint) if equals and name.isidentifier() else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise UsageError(f"--output '{text}' gives no name and tensor", hint=hint)
    if node.func.id not in LIKE or not node.args:
        raise UsageError(
            f"--output '{text}': '{node.func.id}' makes no output", hint=nearest(node.func.id, LIKE)
        )
    dtype = _dtype(f"--output '{text}'", node)
    _check_sizes(f"--output '{text}'", node.args, names, hint)
    parts = [ast.unparse(part) for part in node.args]
    parts += [f"dtype=torch.{dtype}"] if dtype else []
    parts += [] if node.func.id.endswith("_like") else ["device='cuda'"]
    return name, f"torch.{node.func.id}({', '.join(parts)})"


def _check_sizes(option: str, parts: Iterable[ast.expr], names: Collection[str], hint: str) -> None:
    """Raises UsageError for anything but sizes, numbers, arithmetic and inputs."""
    for node in (node for part in parts for node in ast.walk(part)):
        wrong = ""
        if isinstance(node, ast.Name) and node.id not in {*names, *_FUNCTIONS}:
            wrong = f"'{node.id}' is no input or output; {nearest(node.id, names)}"
        elif not isinstance(node, _ARITHMETIC) or getattr(node, "attr", "shape") not in _METHODS:
            wrong = f"'{ast.unparse(node)}' is no size, number or input"
        if wrong:
            raise UsageError(f"{option}: {wrong}", hint=hint)


def literal(value: object) -> str:
    """As it is written in the modules of a study, with double quotes."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(k)}: {literal(v)}' for k, v in value.items())}}}"
    if isinstance(value, list | tuple):
        parts = ", ".join(map(literal, value))
        one = "," if isinstance(value, tuple) and len(value) == 1 else ""
        return f"[{parts}]" if isinstance(value, list) else f"({parts}{one})"
    return repr(value)
