"""What measuring has cost, and what the budget leaves."""

from __future__ import annotations

from dataclasses import dataclass, field

from workbench.app.executor import Executor
from workbench.judge.open_verdicts import Spent, by_kind, seconds_of
from workbench.study.workspace import Workspace
from workbench.words import shown


@dataclass(frozen=True)
class SpendingLimit:
    """A limit of the budget: ``most`` is None where there is none."""

    limit: str
    spent: float
    most: float | None
    unit: str = field(repr=False)

    @property
    @shown
    def left(self) -> float | None:
        """None where there is no limit."""
        return max(0.0, self.most - self.spent) if self.most else None


@dataclass(frozen=True)
class Spending:
    """The cost of measuring so far, and what the budget leaves."""

    spent: list[Spent]
    limits: list[SpendingLimit]


def spending(executor: Executor, workspace: Workspace) -> Spending:
    entries = executor.ledger(workspace)
    most = workspace.config.budget.max_gpu_seconds
    limit = SpendingLimit("max_gpu_seconds", seconds_of(entries), most or None, "s")
    return Spending(by_kind(entries), [limit])
