"""A limit, and a kind of change that may lift it: what a rule proposes, before they are ranked."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.derive.figures import STALL
from workbench.judge.advice.subject import AdvisedKernel
from workbench.judge.findings import Finding
from workbench.ncu.catalog import STALL_PREFIX
from workbench.words import Change, Stage

LEAST = 0.03  # of the duration: less is not worth a step, see the gate
NAMED, ONE_WAY = 1.0, 0.5  # the evidence names the cause; it leaves several ways open


@dataclass(frozen=True)
class Limit:
    """``what`` of the stage it is (a level, a pipe, a stall reason), and its ``share`` of the
    duration. ``metric`` shows it with ``value`` in ``unit``; lines are found by ``counters``.
    """

    stage: Stage
    what: str
    share: float
    metric: str
    value: float
    unit: str = ""
    counters: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Stable: ``latency.long_scoreboard``."""
        return f"{self.stage}.{self.what}" if self.what else str(self.stage)


@dataclass(frozen=True)
class Candidate:
    """``saved`` is the share of the duration that the change could take away, before the next limit
    is looked at; ``sure`` how far the evidence names this way. ``why`` says where ``saved`` comes
    from; ``relieved`` are the resources that the change asks less of.
    """

    limit: Limit
    change: Change
    saved: float
    sure: float
    why: Finding
    relieved: frozenset[str] = frozenset()


def waiting(subject: AdvisedKernel, what: str, *others: str) -> Limit:
    """Warps that wait for a reason, or for several that have one cause; named after the first."""
    return Limit(
        stage=Stage.LATENCY,
        what=what,
        share=subject.waits(what, *others),
        metric=STALL_PREFIX + what,
        value=subject.value(STALL + what) or 0.0,
        unit="% of samples",
        counters=(what, *others),
    )
