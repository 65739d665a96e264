"""``workbench status``."""

from __future__ import annotations

from workbench.cli.options import StatusOptions
from workbench.cli.printing import tell
from workbench.cli.streams import executor
from workbench.judge.open_verdicts import by_kind, seconds_of
from workbench.render.document import listing as document
from workbench.study.workspace import find_workspace


def run(options: StatusOptions) -> None:
    workspace = find_workspace(options.project)
    entries = executor("status").ledger(workspace)
    most, spent = workspace.config.budget.max_gpu_seconds, by_kind(entries)
    limit = document.SpendingLimit("max_gpu_seconds", seconds_of(entries), most or None, "s")
    found = document.Spending(spent, [limit])
    tell(options, lambda: found, lambda: document.status(found, wide=options.wide))
