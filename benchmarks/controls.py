"""How often the A/A controls of all recorded timings differ: the table of docs/measuring.md.

Every timing holds second groups of instances of some variants, which must come out as equal to the
first groups. A 95 % interval of their ratio should exclude 1.0 in one of twenty comparisons. A
timing with added sessions has intervals of 99 %: here all are of 95 %.

python -m benchmarks.controls
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tools.pages import DOCS, ROOT, table, timings, with_part, write

from workbench.derive.speedup import T_975, quantile_of, variance_of
from workbench.judge.times import Control, TimingFacts, timing_facts
from workbench.study.workspace import Workspace, find_workspace

PAGE = DOCS / "measuring.md"
HEAD = ("study", "timings", "controls", "exclude 1.0", "half-width, median", "furthest from 1.0")


def facts_of(workspace: Workspace, study: str) -> Iterator[TimingFacts]:
    """Of all timings of a study, at any shape and on any GPU."""
    reference = workspace.study(study).ladder.primary_reference
    every = timings(workspace.ablations / study / "evidence")
    return filter(None, (timing_facts(each, reference) for each in every))


def half_width(control: Control) -> float:
    """Of the logarithm of its ratio, at 95 %."""
    ratio = control.ratio
    return quantile_of(T_975, ratio.sessions - 1) * math.sqrt(variance_of(ratio))


def excludes_one(control: Control) -> bool:
    """Whether its 95 % interval does."""
    return abs(math.log(control.ratio.ratio)) > half_width(control)


def row(name: str, runs: int, controls: list[Control]) -> tuple[object, ...]:
    off = sum(map(excludes_one, controls))
    share = f"{off} ({100 * off / len(controls):.1f} %)"
    half = median(100 * half_width(control) for control in controls)
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
