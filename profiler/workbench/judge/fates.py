"""How far a combination of parameters came, and why no further. Pure."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

from workbench.judge.gates import accuracy_gate, compiler_gate, first_line
from workbench.study.config import Gates
from workbench.words import ABSENT, CheckResult, GateState

if TYPE_CHECKING:
    from workbench.evidence.records import Build
    from workbench.judge.inputs import VariantEvidence

COMPILER_ERROR = re.compile(r"\(\d+\): (?:catastrophic )?error\b")


class Fate(StrEnum):
    """How far a combination came."""

    TIMED = "timed"
    UNBUILT = "not built"
    REFUSED = "refused"  # by the compiler gate
    UNSUPPORTED = "unsupported"
    FAILED = "failed"
    INACCURATE = "inaccurate"  # correct, and with a larger error than the gate allows
    MISSING = "not measured"


def fate_of(evidence: VariantEvidence, shape: str, gates: Gates) -> tuple[Fate, str]:
    """Of one that was not timed, and why."""
    build, check = evidence.build, evidence.checks.get(shape)
    if build is not None and build.error:
        return Fate.UNBUILT, compiler_error(build.error)
    if why := refusal(build, gates):
        return Fate.REFUSED, why
    if check is not None and check.status == CheckResult.UNSUPPORTED:
        return Fate.UNSUPPORTED, check.why
    wrong = next(
        (
            (name, each)
            for name, each in evidence.checks.items()
            if each.status not in (CheckResult.CORRECT, CheckResult.UNSUPPORTED)
        ),
        None,
    )
    if wrong is not None:
        name, each = wrong
        at = f" at {name}" if name != shape else ""
        return Fate.FAILED, f"{each.status}{at}: {first_line(each.why or ABSENT)}"
    if why := imprecision(evidence, gates):
        return Fate.INACCURATE, why
    return Fate.MISSING, ""


def imprecision(evidence: VariantEvidence, gates: Gates) -> str:
    """Why its error is too large beside the primary reference's; "" where it is not."""
    gate = accuracy_gate(evidence.checks, gates, "the reference")
    return gate.why if gate.state == GateState.FAILED else ""


def compiler_error(message: str) -> str:
    """The compiler's own first error, where it is in a message; else the first line."""
    found = (line for line in message.splitlines() if COMPILER_ERROR.search(line))
    return next(found, first_line(message))


def refusal(build: Build | None, gates: Gates) -> str:
    """Why the compiler gate does not let a build pass; "" where it does, or there is none."""
    gate = compiler_gate(build, gates)
    return gate.why if gate.state == GateState.FAILED else ""
