"""Tell what sources show without being run: which front end compiles their kernels, and what they
import and keep.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from workbench.errors import UsageError
from workbench.study.files import readable_text
from workbench.study.python_kernels import decorators, imports_of, parameters


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


def front_end(name: str) -> FrontEnd | None:
    return next((candidate for candidate in FRONT_ENDS if candidate.name == name), None)


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


def _nodes(text: str) -> list[Any]:
    """All nodes of a text in Python, none of another."""
    try:
        return list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return []


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
        if path.suffix == ".py":
            try:
                tree = ast.parse(readable_text(path))
            except (SyntaxError, ValueError, RecursionError):
                continue  # building it says so
            places = dict(sorted(_of(tree)))
            kept += [f"{path.name}:{line}: {what}" for line, what in places.items()]
    return tuple(kept)


def _of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield from _of_function(node)
        elif isinstance(node, ast.ClassDef):
            yield from _made_outside(node.body)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield node.lineno, f"{', '.join(node.names)} outlives a call"
    yield from _made_outside(tree.body)


def _of_function(function: Function) -> Iterator[tuple[int, str]]:
    if any(name.rpartition(".")[2] in CACHES for name in decorators(function)):
        yield function.lineno, f"{function.name}() is cached"
    for default in [*function.args.defaults, *function.args.kw_defaults]:
        if isinstance(default, ast.Dict | ast.List | ast.Set):
            yield function.lineno, f"{function.name}() has a default that can be changed"
    bound = _bound(function)
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Subscript | ast.Attribute)
            and not isinstance(node.ctx, ast.Load)
            and (isinstance(node, ast.Attribute) or _root(node) not in bound)
        ):
            yield node.lineno, f"{ast.unparse(node)} is set"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            root = _root(node.func.value)
            if node.func.attr in CHANGES and root and root not in bound:
                yield node.lineno, f"{ast.unparse(node.func.value)} is changed"
        if isinstance(node, ast.Call) and _last(node.func) == "setattr":
            yield node.lineno, "an attribute is set"


def _bound(function: Function) -> set[str]:
    names = {*parameters(function)}
    names |= {a.arg for a in (function.args.vararg, function.args.kwarg) if a is not None}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


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


def why_no_lines(front_ends: Sequence[str]) -> str:
    """Why a capture has no source lines, with what gives them where that is known."""
    first = next(filter(None, map(front_end, front_ends)), None)
    if first is None:
        return "its kernels were built without line information"
    return f"{first.no_lines}: {first.lines} gives it" if first.lines else first.no_lines
