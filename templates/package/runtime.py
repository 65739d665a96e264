"""The words that study.py uses: shapes, tolerances and the work of a call."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import cuda

__all__ = ["Shape", "Tolerance", "Work", "cuda"]


class Shape(dict[str, Any]):
    """A shape holds the study's parameters, readable as ``shape.S`` or ``shape["S"]``."""

    def __init__(self, *, profiled: bool = True, captured: bool = True, **parameters: Any) -> None:
        super().__init__(parameters)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"this shape has no parameter '{name}'") from None


class Tolerance(NamedTuple):
    """``absolute`` bounds max |out - ref|; ``relative`` bounds ||out - ref|| / ||ref||."""

    absolute: float
    relative: float


class Work(NamedTuple):
    """``flops`` and ``bytes`` are the least work of a call."""

    flops: float
    bytes: float
    dtype: str
