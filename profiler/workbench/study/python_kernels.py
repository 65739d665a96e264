"""Kernels that a Python file defines, by their decorators, and the function that launches one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

CUTE, TILELANG = "cute.jit", "tilelang.jit"  # called with tensors, but for TileLang's factories
STREAM = re.compile(r"(?<![a-z])stream\b|CUstream")  # in a parameter, with its type
# By decorator: a function of what the kernel takes, which launches it on torch's stream.
LAUNCHES = {
    "triton.jit": """def run({names}, blocks):
        {kernel}[(blocks,)]({names})""",
    "ct.kernel": """def run({names}, blocks):
        ct.launch(torch.cuda.current_stream().cuda_stream, (blocks,), {kernel}, ({names},))""",
    "wp.kernel": """wp.init()
    def run({names}):
        stream = wp.stream_from_torch() if {out}.is_cuda else None
        wp.launch({kernel}, dim={out}.shape, inputs=[{names}], stream=stream)""",
    "cute.kernel": """import cutlass
    @cute.jit
    def run({typed}, blocks, threads: cutlass.Constexpr, stream):
        {kernel}({names}).launch(grid=(blocks, 1, 1), block=(threads, 1, 1), stream=stream)""",
    TILELANG: """def run({names}, {sizes}):
        return {kernel}({sizes})({names})""",
    "cuda.jit": """def run({names}, blocks, threads):
        stream = cuda.external_stream(torch.cuda.current_stream().cuda_stream)
        views = [cuda.as_cuda_array(v, sync=False) if torch.is_tensor(v) else v for v in ({names},)]
        {kernel}[blocks, threads, stream](*views)""",
}
LAUNCHES["jit"] = LAUNCHES["triton.jit"]
LAUNCHED = """add these lines, and try {file}:run with --input for each of its parameters
    import torch
    """


def decorators(node: ast.AST) -> dict[str, Sequence[ast.keyword]]:
    """The decorators of a function or class by their dotted names, with their keywords."""
    marks = getattr(node, "decorator_list", ())
    calls = [m if isinstance(m, ast.Call) else ast.Call(m, [], []) for m in marks]
    return {ast.unparse(call.func): call.keywords for call in calls}


def marked(node: ast.FunctionDef, *marks: str) -> bool:
    return bool({*decorators(node)} & {*marks})


def is_kernel(node: ast.FunctionDef) -> bool:
    """Whether a decorator makes it a kernel, which only a launch can call, or what makes one."""
    has_inner = any(isinstance(inner, ast.FunctionDef) for inner in node.body)
    return marked(node, *LAUNCHES) and (has_inner or not marked(node, TILELANG))


def launched(file: str, kernel: ast.FunctionDef) -> str:
    """Return the function to write for a kernel that none launches."""
    text = next(LAUNCHES[name] for name in decorators(kernel) if name in LAUNCHES)
    inner = [node for node in kernel.body if isinstance(node, ast.FunctionDef)]
    taken = inner[-1].args.args if marked(kernel, TILELANG) else kernel.args.args
    if any(name.endswith("autotune") for name in decorators(kernel)):  # which gives what it tunes
        taken = [
            a for a in taken if not (a.annotation and "constexpr" in ast.unparse(a.annotation))
        ]
    names = [argument.arg for argument in taken]
    arrays = [a.arg for a in taken if a.annotation and "array" in ast.unparse(a.annotation)]
    words = (word for words in decorators(kernel).values() for word in words)
    returned = " ".join(ast.unparse(word.value) for word in words if word.arg == "out_idx")
    places = {int(place) % len(taken) for place in re.findall(r"-?\d+", returned) if taken}
    return LAUNCHED.format(file=file) + text.format(
        kernel=kernel.name,
        names=", ".join(name for place, name in enumerate(names) if place not in places),
        typed=", ".join(map(ast.unparse, taken)),
        out=(arrays or names or ["out"])[-1],
        sizes=", ".join(required_parameters(kernel)),
    )


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    return [argument.arg for argument in every]


def required_parameters(node: ast.FunctionDef) -> list[str]:
    names, arguments = parameters(node), node.args
    positional = len(names) - len(arguments.kwonlyargs)
    named = zip(names[positional:], arguments.kw_defaults, strict=True)
    required = names[: positional - len(arguments.defaults)]
    return [*required, *(name for name, default in named if default is None)]


def imports_of(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str, list[str]]]:
    """Dots before it, module and names of every import."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((0, alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or "", [alias.name for alias in node.names]
