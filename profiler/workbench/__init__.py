"""Kernel optimisation with evidence: build, check, time, profile, compare, report.

A study imports ``Shape``, ``Tolerance`` and ``Work`` from here; a variant imports
``workbench.cuda``. Neither import needs a GPU, torch or pandas. The verbs are here too, for
scripts and notebooks, and are loaded when they are first used: ``ablate``, ``profile``, ``read``,
``study`` and ``try_`` (docs/library.md).
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.library import ablate, advise, diff, profile, read, read_all, study, sweep, try_
    from workbench.study.values import Shape, Tolerance, Work

__version__ = "0.1.0"
__all__ = [
    "Shape",
    "Tolerance",
    "Work",
    "__version__",
    "ablate",
    "advise",
    "diff",
    "profile",
    "read",
    "read_all",
    "study",
    "sweep",
    "try_",
]


class _Study(ModuleType):
    """``workbench.study`` is a room of the engine; called, it opens a study."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        from workbench import library

        return library.study(*given, **named)


import_module("workbench.study").__class__ = _Study


if not TYPE_CHECKING:  # to which every name would be known

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'workbench' has no attribute '{name}'")
        if name in ("Shape", "Tolerance", "Work"):
            from workbench.study import model

            return getattr(model, name)
        from workbench import library

        return getattr(library, name)


def __dir__() -> list[str]:
    return sorted(__all__)
