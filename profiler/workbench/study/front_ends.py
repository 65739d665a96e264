"""Tell what sources show without being run: which front end compiles their kernels, what launches
these, and what they import and keep.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from workbench.errors import UsageError
from workbench.study.files import readable_text


@dataclass(frozen=True)
class FrontEnd:
    """``name`` in words, ``package`` its name for pip. It is used where a source imports one of
    ``modules``; torch.compile also where a source names it.

    ``no_lines`` says why its kernels may have no source lines, and ``lines`` what gives them.
    """

    name: str
    package: str
    modules: tuple[str, ...]
    no_lines: str = "it was compiled without line information"
    lines: str = ""


TEXTS = 1024  # of sources that are remembered: all of a workspace
TORCH_COMPILE = "torch.compile"
BEHIND_TORCH_COMPILE = ("torch._dynamo", "torch._inductor.compile_fx")
FRONT_ENDS = (
    FrontEnd("Helion", "helion", ("helion",)),
    FrontEnd(
        "Triton",
        "triton",
        ("triton",),
        lines="take TRITON_DISABLE_LINE_INFO out of the environment",
    ),
    FrontEnd(
        "CuTe DSL",
        "nvidia-cutlass-dsl",
        ("cutlass",),
        lines="CUTE_DSL_LINEINFO=1 is set by the workbench: this version may not know it",
    ),
    FrontEnd("Numba", "numba-cuda", ("numba",), lines="@cuda.jit(lineinfo=True), without debug,"),
    FrontEnd(
        "CuPy",
        "cupy-cuda13x",
        ("cupy", "cupyx"),
        lines='options=("-lineinfo",) of cupy.RawKernel or RawModule',
    ),
    FrontEnd("TileLang", "tilelang", ("tilelang",)),
    FrontEnd(
        "cuTile",
        "cuda-tile",
        ("cuda.tile",),
        no_lines="ncu relates cuTile's code to Python from 2025.4 on",
    ),
    FrontEnd(
        "nvcc", "torch", ("torch.utils.cpp_extension",), lines='extra_cuda_cflags=["-lineinfo"]'
    ),
    FrontEnd(TORCH_COMPILE, "torch", (TORCH_COMPILE,)),
    FrontEnd(
        "torch",
        "torch",
        ("torch",),
        no_lines="torch's own kernels are compiled without line information",
    ),
)
LIBRARY = "torch"  # whose kernels nobody compiles here
NOT_PACKAGES = {*sys.stdlib_module_names, "workbench"}
NO_KERNELS = {*NOT_PACKAGES, "numpy", "torch"}
OWN_STREAMS = frozenset(("CuPy", "Numba"))
COMPILING = frozenset(f.name for f in FRONT_ENDS if f.name != LIBRARY)


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


def front_end(name: str) -> FrontEnd | None:
    return next((candidate for candidate in FRONT_ENDS if candidate.name == name), None)


def why_no_lines(front_ends: Sequence[str]) -> str:
    """Why a capture has no source lines, with what gives them where that is known."""
    first = next(filter(None, map(front_end, front_ends)), None)
    if first is None:
        return "its kernels were built without line information"
    return f"{first.no_lines}: {first.lines} gives it" if first.lines else first.no_lines


# Distributions of what kernels import: pip's name of a module may be another project's.
DISTRIBUTIONS = {
    **{module: front_end.package for front_end in FRONT_ENDS for module in front_end.modules},
    **dict.fromkeys(("einops", "helion", "jax", "jaxtyping", "matplotlib", "msgspec", "ninja"), ""),
    **dict.fromkeys(("numpy", "pandas", "scipy", "tilus", "torchao", "torchvision"), ""),
    **dict.fromkeys(("transformers", "xformers"), ""),
    "causal_conv1d": "causal-conv1d",
    "cuda.bindings": "cuda-bindings",
    "cuda.core": "cuda-core",
    "cv2": "opencv-python",
    "fla": "flash-linear-attention",
    "flash_attn": "flash-attn",
    "flash_attn.cute": "flash-attn-4",
    "flashinfer": "flashinfer-python",
    "liger_kernel": "liger-kernel",
    "mamba_ssm": "mamba-ssm",
    "ml_dtypes": "ml-dtypes",
    "ncu_report": "ncu-report",
    "nvdisasm": "nvidia-cuda-nvdisasm",
    "PIL": "pillow",
    "pynvml": "nvidia-ml-py",
    "quack": "quack-kernels",
    "sgl_kernel": "sgl-kernel",
    "sklearn": "scikit-learn",
    "transformer_engine": "transformer-engine",
    "tvm_ffi": "apache-tvm-ffi",
    "warp": "warp-lang",
    "yaml": "pyyaml",
}


def distribution_of(module: str) -> str | None:
    """Return what pip calls the package of a module; None where that is not known."""
    names = (name for name in DISTRIBUTIONS if _within(module, name))
    name = max(names, key=len, default=None)
    return None if name is None else DISTRIBUTIONS[name] or name


def package_of(module: str) -> str:
    """Return what pip calls the package of a module, else the module's own first name."""
    return distribution_of(module) or module.partition(".")[0]


def how_to_install(module: str) -> str:
    """A hint. It has no command for a module whose distribution is not known: what pip would
    install by that name may be a stranger's.
    """
    if package := distribution_of(module):
        return f"pip install {package}"
    return f"install the package that `{module}` is of: look up pip's name of it"


def front_ends_of(paths: Iterable[Path]) -> tuple[str, ...]:
    """Name the front ends that sources use; torch's own kernels only if no other is used."""
    imported = {name for path in paths for names in _named(path) for name in names}
    others = {name.partition(".")[0] for name in imported} - NO_KERNELS
    used = tuple(
        candidate.name
        for candidate in FRONT_ENDS
        if any(_within(name, module) for name in imported for module in candidate.modules)
    )
    alone = used == (LIBRARY,) and not others
    return used if alone else tuple(name for name in used if name != LIBRARY)


def imported_by(paths: Iterable[Path]) -> tuple[str, ...]:
    """Modules of packages that sources import, and those behind what they call of torch, which
    imports them at the first call. Their own files and what Python brings are not among them.
    """
    named = [_named(path) for path in paths]
    modules = dict.fromkeys(name for modules, _ in named for name in modules)
    packages = [name for name in modules if name.partition(".")[0] not in NOT_PACKAGES]
    compiles = any(TORCH_COMPILE in parts for _, parts in named)
    return (*packages, *(BEHIND_TORCH_COMPILE if compiles else ()))


def is_compiling(paths: Iterable[Path]) -> bool:
    """Whether something compiles kernels of these sources while they run, or are imported."""
    return bool(COMPILING & set(front_ends_of(paths)))


def has_own_streams(paths: Iterable[Path]) -> bool:
    """Whether one of them launches on another stream than torch's current one, unless asked to."""
    return bool(OWN_STREAMS & set(front_ends_of(paths)))


def require_configuration(name: str, text: str) -> None:
    """Raises UsageError for a file with a kernel of Helion that has no fixed configuration."""
    for node in _nodes(text):
        words = decorators(node).get("helion.kernel")
        sets = {word.arg for word in words or ()} & {"config", "configs", None}
        sets |= {word.arg for word in words or () if ast.unparse(word.value) == "'none'"}  # effort
        if words is not None and not sets:
            raise UsageError(
                f"{name}:{node.decorator_list[0].lineno}: helion.kernel is given no configuration, "
                "and would search for one for minutes in every process",
                hint="helion.kernel(config=helion.Config(...)), with what its autotuner chose",
            )


def tuned_in_place(text: str) -> str:
    """The kernel of Triton that adds to its output by atomics and is autotuned without a reset:
    every configuration that is timed adds to it; "" for none.
    """
    for node in _nodes(text):
        for made, words in decorators(node).items():
            resets = {word.arg for word in words} & {"reset_to_zero", "restore_value", "pre_hook"}
            if made.endswith("autotune") and not resets and ".atomic_" in ast.unparse(node):
                return str(getattr(node, "name", ""))
    return ""


def syntax_tree(text: str) -> ast.Module | None:
    """None for what is no Python, or too deeply nested for it."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _nodes(text: str) -> list[Any]:
    """All nodes of a text in Python, none of another."""
    tree = syntax_tree(text)
    return list(ast.walk(tree)) if tree else []


def _within(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def _named(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return imported(path.read_text(errors="replace")) if path.suffix == ".py" else ((), ())


@lru_cache(maxsize=TEXTS)
def imported(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Modules that a text in Python imports, and what is taken out of them, with dots."""
    modules: list[str] = []
    parts: list[str] = []
    nodes = _nodes(text)
    for level, module, names in imports_of(nodes):
        if module and not level:
            modules.append(module)
            parts += [f"{module}.{name}" for name in names]
    attributes = (ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute))
    parts += [name for name in attributes if name == TORCH_COMPILE]  # also as a decorator
    return tuple(modules), tuple(parts)


CACHES = {"cache", "lru_cache", "cached_property"}
MADE = {
    *("arange", "empty", "full", "ones", "rand", "randint", "randn", "tensor", "zeros"),
    *("empty_like", "full_like", "ones_like", "zeros_like", "Event", "Generator", "Stream"),
}
CHANGES = {
    *("add", "append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault"),
    "update",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def kept_between_calls(paths: Iterable[Path]) -> tuple[str, ...]:
    """``FILE:LINE: what`` of every place in some Python files that may outlive a call, by syntax:
    what is named costs a copy of the module for every stream, what were not would be wrong there.
    """
    kept = []
    for path in paths:
        places: list[tuple[int, str]] = []
        # Building it says where it is no Python.
        for node in _nodes(readable_text(path)) if path.suffix == ".py" else ():
            if isinstance(node, Function):
                places += _of_function(node)
            elif isinstance(node, ast.Module | ast.ClassDef):
                places += _made_outside(node.body)
            elif isinstance(node, ast.Global | ast.Nonlocal):
                places.append((node.lineno, f"{', '.join(node.names)} outlives a call"))
        kept += [f"{path.name}:{line}: {what}" for line, what in dict(sorted(places)).items()]
    return tuple(kept)


def _of_function(function: Function) -> Iterator[tuple[int, str]]:
    if any(name.rpartition(".")[2] in CACHES for name in decorators(function)):
        yield function.lineno, f"{function.name}() is cached"
    for default in [*function.args.defaults, *function.args.kw_defaults]:
        if isinstance(default, ast.Dict | ast.List | ast.Set):
            yield function.lineno, f"{function.name}() has a default that can be changed"
    nodes = list(ast.walk(function))
    bound = {n.arg for n in ast.walk(function.args) if isinstance(n, ast.arg)}
    bound |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
            if isinstance(node, ast.Attribute) or _root(node) not in bound:
                yield node.lineno, f"{ast.unparse(node)} is set"
        elif isinstance(node, ast.Call) and _last(node.func) == "setattr":
            yield node.lineno, "an attribute is set"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            root = _root(node.func.value)
            if node.func.attr in CHANGES and root and root not in bound:
                yield node.lineno, f"{ast.unparse(node.func.value)} is changed"


def _made_outside(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
    """Tensors, streams and the like that a module or a class holds."""
    for statement in body:
        if isinstance(statement, Function | ast.ClassDef):
            continue
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call) or _last(node.func) not in MADE:
                continue
            if _root(node.func) in ("torch", "cupy", "cp"):
                yield node.lineno, f"{ast.unparse(node.func)}(...) is made once"


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


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
