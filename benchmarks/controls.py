"""How often the A/A controls of all recorded timings differ: the table of docs/measuring.md.

Every timing holds second groups of instances of some variants, which must come out as equal to the
first groups. A 95 % interval of their ratio should exclude 1.0 in one of twenty comparisons.

python -m benchmarks.controls
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.pages import DOCS, ROOT, table, timings, with_part, write

from workbench.judge.sessions import Control, TimingFacts, timing_facts
from workbench.study.workspace import Workspace, find_workspace

PAGE = DOCS / "measuring.md"
HEAD = ("study", "timings", "controls", "exclude 1.0", "half-width, median", "furthest from 1.0")


def facts_of(workspace: Workspace, study: str) -> Iterator[TimingFacts]:
    """Of all timings of a study, at any shape and on any GPU."""
    reference = workspace.study(study).ladder.primary_reference
    every = timings(workspace.ablations / study / "evidence")
    return filter(None, (timing_facts(each, reference) for each in every))


def excludes_one(control: Control) -> bool:
    low, high = control.ratio.low, control.ratio.high
    return low is not None and high is not None and not low <= 1 <= high


def row(name: str, runs: int, controls: list[Control]) -> tuple[object, ...]:
    off = sum(map(excludes_one, controls))
    share = f"{off} ({100 * off / len(controls):.1f} %)"
    ends = [(c.ratio.low, c.ratio.high) for c in controls]
    half = median(100 * (high / low - 1) / 2 for low, high in ends if low and high)
    furthest = max(abs(c.ratio.ratio - 1) for c in controls)
    return name, runs, len(controls), share, f"±{half:.2f} %", f"{100 * furthest:.2f} %"


def written() -> dict[Path, str]:
    rows: list[tuple[object, ...]] = []
    workspace, runs, every = find_workspace(ROOT), 0, list[Control]()
    for study in workspace.studies():
        facts = list(facts_of(workspace, study))
        if controls := [control for one in facts for control in one.controls]:
            runs, every = runs + len(facts), every + controls
            rows.append(row(study, len(facts), controls))
    made = table(HEAD, [*rows, row("all", runs, every)])
    return {PAGE: with_part(PAGE.read_text("utf-8"), "controls", f"{made}\n")}


if __name__ == "__main__":
    write(written())
