"""Which advice is given: three at most, by what it could bring and by how it fared before. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.judge.advice.advise import TOP, Advice
from workbench.judge.advice.record import KindRecord, Record
from workbench.words import Verdict

NO_RECORD = Record()


def trust(known: KindRecord) -> float:
    """How often a kind of change was kept over even odds, by Laplace's rule of succession: 1 where
    it was never tried, at most 2, never 0.
    """
    return 2 * (known.kept + 1) / (known.tried + 2)


def to_try(
    advice: Sequence[Advice] | None, record: Record | None = None, top: int = TOP
) -> tuple[Advice, ...] | None:
    """The first of it; what was tried on the same variant and rejected stands behind all others.
    None stays None: not collected.
    """
    if advice is None:
        return None
    known = record or NO_RECORD
    ranked = sorted(
        advice,
        key=lambda one: (_failed(one), -one.expected * trust(known.of(one.change)), one.id),
    )
    return tuple(ranked[:top])


def _failed(one: Advice) -> bool:
    return any(step.verdict == Verdict.REJECTED for step in one.tried)
