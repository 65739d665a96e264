"""What ``check`` found: records of JSON."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from workbench.words import ABSENT, CheckResult, Origin, Status

FINE = (CheckResult.CORRECT, CheckResult.UNSUPPORTED, ABSENT, Status.STALE)


@dataclass(frozen=True)
class CheckRow:
    """A variant beside the float64 reference at one shape; errors are None where not collected.

    ``bound`` and ``relative_bound`` are the largest that the study allows at that shape.
    ``times_reference`` is the error as a multiple of the primary reference's, on inputs of which
    ``kind``; ``varies``: results differ from run to run. ``output`` is the one of several
    that decided, ``hint`` the way out of what is wrong.
    """

    variant: str
    shape: str
    status: str
    bound: float = dataclasses.field(repr=False)
    relative_bound: float = dataclasses.field(repr=False)
    why: str = ""
    max_abs: float | None = None
    relative: float | None = None
    times_reference: float | None = None
    rounding: bool = dataclasses.field(default=False, repr=False)
    kind: str = ""
    varies: bool = False
    output: str = ""
    hint: str = ""

    @property
    def wrong(self) -> bool:
        return self.status not in FINE

    @property
    def used(self) -> float | None:
        """The part of the bound that the error takes; of no error at all where none is allowed."""
        if self.max_abs is None or self.bound:
            return None if self.max_abs is None else self.max_abs / self.bound
        return math.inf if self.max_abs else 0.0


@dataclass(frozen=True)
class ErrorBound:
    """Errors of a result, or the largest allowed: of one element, and relative in norm."""

    max_abs: float
    relative: float


@dataclass(frozen=True)
class CheckedStudy:
    """``tolerance`` is what the study allows at the shape; ``lost`` is what failed without a
    record, by variant.
    """

    study: str
    gpu: str
    evidence: Origin
    tolerance: ErrorBound
    checks: tuple[CheckRow, ...]
    lost: dict[str, str] = dataclasses.field(repr=False)
    origin: str = dataclasses.field(default="", repr=False)  # where no GPU here checked them
