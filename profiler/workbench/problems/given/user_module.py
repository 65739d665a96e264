"""The user's files and names as modules: loaded at their first use, and anew for each variant."""

from __future__ import annotations

import ast
import importlib
import random
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from workbench.errors import GateFailed, UsageError, unknown
from workbench.problems.user_files import INIT, dotted, functions, package_root
from workbench.study.users_code import in_words, line_in
from workbench.study.workspace import load_module


class Dotted:
    """``torch.nn.functional.softmax``, looked up at its first call.

    Raises UsageError where it is none, or cannot be called.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *given: Any, **keywords: Any) -> Any:
        return _copied_view(self.function(*given, **keywords), (*given, *keywords.values()))

    @cached_property
    def function(self) -> Callable[..., Any]:
        parts = self.name.split(".")
        found: Any = importlib.import_module(parts[0])
        for at, part in enumerate(parts[1:], start=1):
            try:
                found = getattr(found, part)
            except AttributeError:
                try:
                    found = importlib.import_module(".".join(parts[: at + 1]))
                except ImportError:
                    raise unknown(f"name in {'.'.join(parts[:at])}", part, dir(found)) from None
        if not callable(found):
            raise UsageError(f"{self.name} cannot be called", hint="--vs names a function")
        function: Callable[..., Any] = found
        return function


def _copied_view(out: Any, given: Iterable[Any]) -> Any:
    """A view of an argument, such as torch.t gives, in memory of its own: it is to be compared with
    a kernel that writes a result.
    """
    import torch

    tensors = [one for one in given if isinstance(one, torch.Tensor)]
    if not isinstance(out, torch.Tensor) or any(out is one for one in tensors):
        return out
    memory = out.untyped_storage().data_ptr()
    is_view = any(one.untyped_storage().data_ptr() == memory for one in tensors)
    return out.clone(memory_format=torch.contiguous_format) if is_view else out


class WithoutRuns(SourceFileLoader):
    """Loads a script without the calls of its own tests and benchmarks, and what it profiles or
    prints: they would run again in every process, and only one profiler can be at work.
    """

    def source_to_code(  # type: ignore[override]
        self, data: Any, path: Any, *, _optimize: int = -1
    ) -> Any:
        tree = ast.parse(data, path)
        own, lost, kept = functions(tree), set[str](), []
        for node in tree.body:
            if _profiles(node):
                lost |= _stored(node)
            elif not _runs(node, own, lost):
                kept.append(node)
        tree.body = kept
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)


_SCRIPT = re.compile(r"(run_)?(test|bench|main|profile|time_)")
_BENCHMARKS = ("perf_report", "analyze.kernel")  # decorators of Triton and of nsight-python


def _profiles(node: ast.stmt) -> bool:
    """Whether it is ``with torch.profiler.profile(...) as prof:``."""
    return isinstance(node, ast.With) and any(
        re.search(r"\bprofiler?\b", ast.unparse(item.context_expr)) for item in node.items
    )


def _stored(node: ast.stmt) -> set[str]:
    found = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return {n.id for n in found if isinstance(n.ctx, ast.Store)}


def _runs(node: ast.stmt, own: Mapping[str, ast.FunctionDef], lost: Collection[str]) -> bool:
    """Whether it only prints, uses names that are ``lost``, or calls one of its ``own`` functions
    that is a test or a benchmark.
    """
    if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        return False
    name = ast.unparse(node.value.func).partition(".")[0]
    if name == "print" or any(n.id in lost for n in ast.walk(node) if isinstance(n, ast.Name)):
        return True
    marks = [ast.unparse(mark) for mark in own[name].decorator_list] if name in own else []
    return name in own and (
        _SCRIPT.match(name) is not None or any(b in m for b in _BENCHMARKS for m in marks)
    )


OWN = "workbench_"  # what the names of modules begin with that are loaded by path
_packages: dict[str, dict[str, ModuleType]] = {}  # of each variant, by the path of its module


SEED = 20261


@contextmanager
def same_draws() -> Iterator[None]:
    """Weights that a module draws while it is loaded inside are those of every other load of it,
    with values even where inputs are drawn without. Afterwards generators go on as if nothing had
    been drawn.
    """
    import numpy
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    plain, numpys = random.getstate(), numpy.random.get_state()
    with _disable_current_modes(), torch.random.fork_rng(devices):
        torch.manual_seed(SEED)
        random.seed(SEED)
        numpy.random.seed(SEED)
        try:
            yield
        finally:
            random.setstate(plain)
            numpy.random.set_state(numpys)


class File:
    """A user's file ``name`` in the folder of the module ``beside``, loaded at its first use.

    With everything that it imports from its own folder, anew: two variants share no module. The
    rest of its package is loaded once for each of them: some have a hundred modules.
    """

    def __init__(self, beside: str, name: str) -> None:
        self.beside = beside
        self.path = Path(beside).resolve().parent / name

    @cached_property
    def module(self) -> ModuleType:
        """Raises GateFailed for an AttributeError, which would look like a missing attribute of
        this class.
        """
        try:
            with same_draws():
                return self.loaded()
        except AttributeError as error:
            where = f"{self.path.name}{line_in(self.path, error)}"
            raise GateFailed(
                f"{where} fails while it is imported: {in_words(error)}", hint="fix this line"
            ) from error

    def loaded(self) -> ModuleType:
        """Anew; as a part of its package where its folder has an ``__init__.py``."""
        folder = package_root(self.path)
        sys.path[:] = [str(folder), *(entry for entry in sys.path if entry != str(folder))]
        for name in _below(folder):
            del sys.modules[name]
        if folder != self.path.parent:
            package = _packages.setdefault(self.beside, {})
            own = dotted(self.path.relative_to(folder))
            sys.modules.update({n: module for n, module in package.items() if n != own})
            importlib.invalidate_caches()
            module = importlib.import_module(own)
            package.update(_below(folder))
            return module
        name = f"{OWN}given_{self.path.stem}"
        return load_module(self.path, name, WithoutRuns(name, str(self.path)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return getattr(self.module, name)
        except AttributeError:
            raise UsageError(
                f"{self.path.name} defines no '{name}'", hint="is it defined under a condition?"
            ) from None


def _below(folder: Path) -> dict[str, ModuleType]:
    """The modules that are loaded from a folder, by name."""
    files = (p for p in folder.iterdir() if p.suffix == ".py" or (p / INIT).is_file())
    own = {path.stem for path in files}
    found = {name: m for name, m in sys.modules.items() if name.partition(".")[0] in own}
    return {name: module for name, module in found.items() if not name.startswith(OWN)}


class Extension(File):
    """Sources in C++ or CUDA, compiled by torch at their first use."""

    def __init__(self, beside: str, name: str, sources: list[str]) -> None:
        super().__init__(beside, sources[0])
        self.name, self.sources = name, sources

    @cached_property
    def module(self) -> ModuleType:
        from torch.utils.cpp_extension import load

        folder = self.path.parents[len(Path(self.sources[0]).parts) - 1]
        found: ModuleType = load(
            name=self.name,
            sources=[str(folder / name) for name in self.sources],
            extra_include_paths=[str(folder)],
            extra_cuda_cflags=["-lineinfo"],
        )
        return found


def compiled(file: File, name: str) -> Callable[..., Any]:
    import torch

    known = vars(file).setdefault("compiled", {})
    if name not in known:
        known[name] = torch.compile(getattr(file, name))
    found: Callable[..., Any] = known[name]
    return found
