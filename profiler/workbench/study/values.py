"""Define the values that a study is described with: shapes, tolerances, and the work of a call."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workbench.words import Parameter


class Shape(Mapping[str, Parameter]):
    """A named set of a study's parameters, readable as ``shape.S`` or ``shape["S"]``.

    A shape with ``profiled=False`` is checked for correctness but neither timed nor profiled. One
    with ``captured=False`` is checked and timed where it is asked for, and profiled only by
    ``workbench profile``.
    """

    def __init__(
        self, *, profiled: bool = True, captured: bool = True, **parameters: Parameter
    ) -> None:
        self.profiled = profiled
        self.captured = captured
        self.parameters = dict(parameters)
        for name, value in parameters.items():
            try:
                json.dumps(value)
            except (TypeError, ValueError, RecursionError):
                kind = type(value).__name__
                raise TypeError(
                    f"a shape's parameters are numbers and strings, which '{name}' ({kind}) is not"
                ) from None

    @property
    def always_checked(self) -> bool:
        """Whether a variant is checked there whatever shape is asked for."""
        return self.captured or not self.profiled

    @property
    def size(self) -> float:
        """The product of its whole numbers: larger shapes have more to do."""
        return math.prod(v for v in self.parameters.values() if type(v) is int and v > 0)

    def __getitem__(self, key: str) -> Parameter:
        return self.parameters[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)

    def __getattr__(self, key: str) -> Any:
        try:
            return self.__dict__["parameters"][key]
        except KeyError:
            raise AttributeError(f"this shape has no parameter '{key}'") from None

    def __repr__(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.parameters.items())


CANCELLED = 100.0


@dataclass(frozen=True)
class Tolerance:
    """Largest error allowed against the float64 reference.

    ``absolute`` bounds max |out - ref|; ``relative`` bounds ||out - ref|| / ||ref||. Fewer than 64
    numbers may cancel: then this bounds all calls of a check together, and each CANCELLED times.
    """

    absolute: float
    relative: float

    def rounding(self, unit: float) -> float:
        """The most of a relative error that is too small for a comparison with a reference's: half
        a ``unit`` in the last place of the output, or a 25th of what is allowed, up to 2^-18. Sums
        in float32 whose order differs stay below, and lower precision does not (docs/trust.md).
        """
        return max(unit / 2, min(self.relative / 25, 2.0**-18))


ToleranceRule = Tolerance | Callable[[Shape], Tolerance]


def tolerance_at(rule: ToleranceRule, shape: Shape) -> Tolerance:
    """A study has one tolerance, or a function that gives that of a shape."""
    return rule if isinstance(rule, Tolerance) else rule(shape)


@dataclass(frozen=True)
class Work:
    """The least work of one call.

    ``flops`` are its additions and multiplications (an FMA is two; exponentials, comparisons and
    conversions are none), ``bytes`` the traffic: every input and output once. A capture that did
    less is no capture of this work.
    """

    flops: float
    bytes: float
    dtype: str
