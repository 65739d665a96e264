"""What measuring has cost, and what the budget leaves."""

from __future__ import annotations

from workbench.app.executor import Executor
from workbench.judge.open_verdicts import by_kind, seconds_of
from workbench.render.document.listing import Spending, SpendingLimit
from workbench.study.workspace import Workspace


def spending(executor: Executor, workspace: Workspace) -> Spending:
    entries = executor.ledger(workspace)
    most = workspace.config.budget.max_gpu_seconds
    limit = SpendingLimit("max_gpu_seconds", seconds_of(entries), most or None, "s")
    return Spending(by_kind(entries), [limit])
