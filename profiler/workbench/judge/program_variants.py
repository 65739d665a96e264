"""A whole program as a study: its variants, each timed by its kernels' durations, and verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from workbench.derive.speedup import Ratio, between_sessions, over_sessions
from workbench.judge.gates import speed_verdict
from workbench.study.config import Gates
from workbench.words import Verdict


@dataclass(frozen=True)
class ProgramVariant:
    """A commit or a build command. ``sessions`` are runs under ncu: the microseconds and kilocycles
    of all kernels together, without kilocycles where ncu saw no clock. ``kernel`` is the one with
    the most time, ``figures`` are its.
    """

    variant: str
    gpu: str
    report: str
    sessions: tuple[tuple[float, float | None], ...]
    kernel: str
    figures: dict[str, float]

    def logarithms(self, which: int) -> list[float]:
        """One number a session; empty where not all have it."""
        values = [session[which] for session in self.sessions]
        return [math.log(value) for value in values if value] if all(values) else []


@dataclass(frozen=True)
class ProgramStudy:
    """``programs/NAME/study.json``; ``check`` is the command that fails for wrong results."""

    command: tuple[str, ...]
    check: str
    variants: tuple[ProgramVariant, ...] = ()
    schema_version: Literal[1] = 1


@dataclass(frozen=True)
class ProgramStep:
    """A variant with its ratio over the one before it."""

    kept: ProgramVariant
    microseconds: float
    speedup_over_parent: Ratio | None
    verdict: Verdict


def steps(study: ProgramStudy, gates: Gates) -> Iterator[ProgramStep]:
    """Judge each variant against the one before it, in the order in which they were kept."""
    for before, after in zip((None, *study.variants), study.variants, strict=False):
        ratio = over(before, after) if before else None
        verdict = Verdict.BASELINE if before is None else Verdict.INCONCLUSIVE
        if ratio and not ratio.differs_in_cycles:
            verdict = speed_verdict(ratio, gates)
        time = over_sessions(after.logarithms(0)).value
        yield ProgramStep(after, time, ratio, verdict)


def over(before: ProgramVariant, after: ProgramVariant) -> Ratio | None:
    """How many times faster ``after`` is, in time and in cycles; None on another GPU."""
    time, cycles = (
        between_sessions(after.logarithms(n), before.logarithms(n))
        if after.logarithms(n) and before.logarithms(n)
        else None
        for n in (0, 1)
    )
    if time is None or before.gpu != after.gpu:
        return None
    return Ratio(time.value, time.low, time.high, time.sessions, cycles)
