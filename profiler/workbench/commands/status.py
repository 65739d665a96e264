"""``workbench status``."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.commands.executor import ledger
from workbench.commands.options import StatusOptions
from workbench.commands.printing import tell
from workbench.evidence.records import SpentEntry
from workbench.judge.spending import by_kind, seconds_of
from workbench.render.document import listing as document
from workbench.study.workspace import Workspace, find_workspace


def limits(workspace: Workspace, entries: Sequence[SpentEntry]) -> list[document.Limit]:
    """Every limit of the budget with what is spent of it; 0 is none."""
    most = workspace.config.budget.max_gpu_seconds
    return [document.Limit("max_gpu_seconds", seconds_of(entries), most, "s")]


def run(options: StatusOptions) -> None:
    workspace = find_workspace(options.project)
    entries = ledger(workspace)
    spent, known = by_kind(entries), limits(workspace, entries)
    tell(
        options,
        lambda: {
            "spent": spent,
            "limits": [
                {"limit": one.name, "spent": one.spent, "most": one.most or None, "left": one.left}
                for one in known
            ],
        },
        lambda: document.status(spent, known),
    )
