"""A finding: a code for programs, its values, and the sentence that people read.

The sentence stands beside the rule that found it, so that code, values and words agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from workbench.words import ABSENT, GateState, shown

Value = bool | int | float | str | tuple[int, ...] | tuple[str, ...]


@dataclass(frozen=True)
class Finding:
    """``code`` is dotted and stays. A value that was not collected is not among ``values``."""

    code: str
    values: Mapping[str, Value | Finding | tuple[Finding, ...]] = field(default_factory=dict)
    message: str = ""

    def __str__(self) -> str:
        return self.message


def finding(
    code: str, message: str, **values: Value | Finding | tuple[Finding, ...] | None
) -> Finding:
    """Make a finding; values that are None or empty are left out."""
    kept = {key: v for key, v in values.items() if v is not None and v not in ("", ())}
    return Finding(code, kept, message)


NOT_COLLECTED = finding("not_collected", ABSENT)


def suffix(shape: str | None) -> str:
    """Name a shape; "" where it is clear which."""
    return f" at {shape}" if shape else ""


def percent(share: float) -> str:
    """A share in whole percent."""
    return "under 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


def change(ratio: float) -> str:
    """The change that a ratio is, in percent, without the sign of percent."""
    return f"{100 * (ratio - 1):+.1f}"


def number_of(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def sentence(of: Finding | None) -> str:
    return of.message if of else ""


def sentences(findings: Iterable[Finding]) -> tuple[str, ...]:
    return tuple(finding.message for finding in findings)


@dataclass(frozen=True)
class Gate:
    """One condition of a verdict, by default without evidence. While it is open, one that is not
    ``binding`` leaves the verdict alone.
    """

    name: str
    state: GateState = field(default=GateState.OPEN, repr=False)
    why: Finding = NOT_COLLECTED
    binding: bool = True

    @property
    @shown
    def passed(self) -> bool | None:
        """None where there is no evidence for it."""
        return None if self.state == GateState.OPEN else self.state == GateState.PASSED

    @property
    def failure(self) -> Finding | None:
        """Why it failed; None where it did not."""
        return self.why if self.state == GateState.FAILED else None


def gate(
    name: str,
    passed: bool | None,
    code: str,
    message: str,
    **values: Value | Finding | tuple[Finding, ...] | None,
) -> Gate:
    """Make a gate with its finding; ``passed`` is None where there is no evidence for it."""
    state = GateState.PASSED if passed else GateState.FAILED
    why = finding(code, message, **values)
    return Gate(name, GateState.OPEN if passed is None else state, why)
