"""Kernels that were compiled elsewhere, in an environment that ``benchmarks.carried`` makes.

It is copied there as ``carried.py``, and imported when its Python starts. ``carried.json`` beside
it has what compiled them, and where they are.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

FACTS = Path(__file__).with_name("carried.json")
TORCHS = "triton_"  # how torch.compile begins the names of its kernels: they are not carried


def key_of(source: Any, options: Mapping[str, Any]) -> str:
    """The name of a compiled Triton kernel, the same in every version of Triton."""
    wanted = (
        source.name,
        source.fn.src,
        [(name, str(type_)) for name, type_ in source.signature.items()],
        sorted((str(place), repr(value)) for place, value in source.constants.items()),
        sorted((str(place), repr(value)) for place, value in source.attrs.items() if value),
        [options.get("num_warps"), options.get("num_stages"), options.get("num_ctas", 1)],
    )
    return f"{source.name}-{hashlib.sha256(repr(wanted).encode()).hexdigest()[:16]}"


class TritonFinder(MetaPathFinder):
    """Find Triton's compiler as always, and let it load what is in ``folder``."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = None
        if name == "triton.compiler.compiler":
            spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def executed(module: ModuleType) -> None:
                execute(module)
                load_in(module, self.folder)

            spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


def load_in(compiler: Any, folder: str) -> None:
    by_its_own = compiler.compile

    def compile(source: Any, target: Any = None, options: Any = None, **more: Any) -> Any:
        if source.name.startswith(TORCHS):
            return by_its_own(source, target=target, options=options, **more)
        key = key_of(source, options)
        files = {f"{source.name}.{end}": f"{folder}/{key}.{end}" for end in ("json", "cubin")}
        return compiler.CompiledKernel(source, files, key)

    compiler.compile = compile


def load() -> None:
    facts = json.loads(FACTS.read_text())
    sys.meta_path.insert(0, TritonFinder(facts["triton"]))
    try:
        compiler: Any = import_module("workbench.cuda.compiler")
    except ImportError:  # not a worker
        return

    harness = Path(compiler.__file__).resolve().parents[1]
    made_by = (compiler.KEPT_AS, facts["version"], facts["headers"])
    by_itself = compiler.Source._compile

    def kept_cubin(source: str, *settings: object) -> Path | None:
        builds = os.environ.get(compiler.CUBIN_FOLDER)
        key = hashlib.sha256(f"{source}\0{settings!r}\0{made_by!r}".encode()).hexdigest()
        return Path(builds) / compiler.CUBINS.replace("*", key) if builds else None

    def compile_or_refuse(source: Any, text: str, arch: str) -> Any:
        if harness in source.path.resolve().parents:  # what times kernels: by this machine's NVRTC
            ctypes.CDLL(facts["library"])  # or it would be searched in this environment
            return by_itself(source, text, arch)
        raise compiler.CompileError(f"{source.path.name} was not carried", hint="pack it")

    compiler.compiler_version = lambda: facts["version"]
    compiler.kept_cubin = kept_cubin
    compiler.Source._compile = compile_or_refuse


if FACTS.is_file():
    load()
