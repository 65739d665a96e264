"""How large a variant's error is beside the primary reference's, and what a step gives up. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.judge.gates import Gate
from workbench.study.config import Gates
from workbench.words import ABSENT, CheckResult, GateState

if TYPE_CHECKING:
    from workbench.evidence.records import Check

ACCURATE = "accurate"


@dataclass(frozen=True)
class Accuracy:
    """The largest error as a multiple of the primary reference's on the same inputs, where it is,
    and on inputs of which ``kind`` (empty: the plain ones). ``varies`` are the shapes at which the
    same inputs gave other bits.
    """

    times_reference: float
    shape: str
    kind: str = ""
    varies: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The shape, and the kind of inputs where they are not the plain ones."""
        return f"{self.shape}, {self.kind}" if self.kind else self.shape


def accuracy_of(checks: Mapping[str, Check]) -> Accuracy | None:
    """Over all shapes and kinds of inputs; None where it was not collected at any."""
    known = {
        shape: float(check.times_reference)
        for shape, check in checks.items()
        if check.times_reference is not None
    }
    if not known:
        return None
    worst = max(known, key=known.__getitem__)
    return Accuracy(
        times_reference=known[worst],
        shape=worst,
        kind=checks[worst].kind,
        varies=tuple(shape for shape, check in checks.items() if check.varies),
    )


def accuracy_gate(checks: Mapping[str, Check], gates: Gates, reference: str) -> Gate:
    """The error may be so many times the reference's; what was not collected fails nothing."""
    found = accuracy_of(checks)
    varies = [shape for shape, check in checks.items() if check.varies]
    unsteady = f"; results differ from run to run at {', '.join(varies)}" if varies else ""
    if found is None:
        return Gate(ACCURATE, GateState.OPEN, f"{ABSENT}{unsteady}", binding=False)
    passed = found.times_reference <= gates.max_error
    output = checks[found.shape].output
    of = f" in '{output}'" if output else ""
    why = (
        f"{found.times_reference:.3g}x the error of {reference} at {found.where}{of} "
        f"{'≤' if passed else '>'} {gates.max_error:g}x{_unknown(checks)}{unsteady}"
    )
    return Gate(ACCURATE, GateState.PASSED if passed else GateState.FAILED, why)


def _unknown(checks: Mapping[str, Check]) -> str:
    """Shapes at which the step is correct and no multiple is known: the reference is exact there,
    or does not support them.
    """
    shapes = [
        shape
        for shape, check in checks.items()
        if check.status == CheckResult.CORRECT and check.times_reference is None
    ]
    return f"; {ABSENT} at {', '.join(shapes)}" if shapes else ""


def given_up(checks: Mapping[str, Check], parents: Mapping[str, Check]) -> tuple[str, ...]:
    """Shapes at which the parent is correct and the step says that it does not support them."""
    return tuple(
        shape
        for shape, check in checks.items()
        if check.status == CheckResult.UNSUPPORTED
        and shape in parents
        and parents[shape].status == CheckResult.CORRECT
    )
