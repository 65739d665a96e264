"""``workbench status``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.commands.options import StatusOptions
from workbench.commands.printing import Output, show_json
from workbench.commands.spending import ledger
from workbench.evidence.records import SpentEntry
from workbench.judge.spending import by_kind, cost_of, seconds_of, without_progress
from workbench.render.document import spending as document
from workbench.study.workspace import Workspace, find_workspace


def limits(workspace: Workspace, entries: Sequence[SpentEntry]) -> list[document.Limit]:
    """Every limit of the budget with what is spent of it; 0 is none."""
    config = workspace.config
    budget = config.budget
    found = [
        document.Limit("max_gpu_seconds", seconds_of(entries), budget.max_gpu_seconds, "s"),
        document.Limit("max_cost", cost_of(entries), budget.max_cost, budget.currency),
    ]
    places = dict.fromkeys((e.study, e.shape, e.gpu) for e in entries if e.best is not None)
    for place in places:
        idle = without_progress(entries, *place, config.gates.min_speedup)
        most = float(budget.stop_after_runs_without_progress)
        name = f"runs without progress: {' at '.join(place[:2])}"
        found.append(document.Limit(name, float(idle), most, ""))
    return found


def run(options: StatusOptions) -> None:
    workspace = find_workspace(options.project)
    entries = ledger(workspace)
    spent, known = by_kind(entries), limits(workspace, entries)
    if options.json:
        show_json(as_data(workspace, spent, known))
    else:
        currency = workspace.config.budget.currency
        Output(options.wide, options.markdown).show(*document.status(spent, known, currency))


def as_data(workspace: Workspace, spent: Any, known: list[document.Limit]) -> dict[str, Any]:
    return {
        "spent": spent,
        "currency": workspace.config.budget.currency,
        "limits": [
            {"limit": one.name, "spent": one.spent, "most": one.most or None, "left": one.left}
            for one in known
        ],
        "stop_when_wrong": workspace.config.budget.stop_when_wrong,
    }
