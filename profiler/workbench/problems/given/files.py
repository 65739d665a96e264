"""The user's files, loaded as modules."""

from __future__ import annotations

import sys
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from workbench.errors import UsageError
from workbench.study.workspace import load_module

OWN = "workbench_"  # what the names of modules begin with that are loaded by path


class File:
    """A user's file ``name`` in the folder of the module ``beside``, loaded at its first use.

    With everything that it imports from its own folder, anew: two variants share no module.
    """

    def __init__(self, beside: str, name: str) -> None:
        self.path = Path(beside).resolve().parent / name

    @cached_property
    def module(self) -> ModuleType:
        return self.loaded()

    def loaded(self) -> ModuleType:
        """Anew."""
        folder = self.path.parent
        sys.path[:] = [str(folder), *(entry for entry in sys.path if entry != str(folder))]
        for name in [name for name in sys.modules if not name.startswith(OWN)]:
            beside = folder / name.partition(".")[0]
            if beside.with_suffix(".py").is_file() or (beside / "__init__.py").is_file():
                del sys.modules[name]
        return load_module(self.path, f"{OWN}given_{self.path.stem}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return getattr(self.module, name)
        except AttributeError:
            raise UsageError(
                f"{self.path.name} defines no '{name}'", hint="is it defined under a condition?"
            ) from None


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
