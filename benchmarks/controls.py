"""How often the A/A controls of all recorded timings differ: the table of docs/measuring.md.

Every timing holds second groups of instances of some variants, which must come out as equal to the
first groups. A 95 % interval of their ratio should exclude 1.0 in one of twenty comparisons.

python -m benchmarks.controls
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from benchmarks.pages import DOCS, ROOT, table, with_part

from workbench.evidence import store
from workbench.evidence.timing import Timing
from workbench.judge.known_evidence import TimedTogether
from workbench.judge.sessions import Control, TimingFacts, timing_facts
from workbench.study.workspace import Workspace, find_workspace

PAGE = DOCS / "measuring.md"
HEAD = ("study", "timings", "controls", "exclude 1.0", "half-width, median", "furthest from 1.0")


def timings(workspace: Workspace, study: str) -> Iterator[TimingFacts]:
    """All that are recorded of a study, at any shape and on any GPU."""
    reference = workspace.study(study).ladder.primary_reference
    for path in sorted((ROOT / "ablations" / study).glob("evidence/*/*/timings/*")):
        timing = store.read(path, Timing)
        together = TimedTogether(path.name, frozenset(timing.fingerprints), timing)
        if (facts := timing_facts(together, reference)) is not None:
            yield facts


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


def page(text: str, workspace: Workspace) -> str:
    rows: list[tuple[object, ...]] = []
    runs, every = 0, list[Control]()
    for study in workspace.studies():
        facts = list(timings(workspace, study))
        if controls := [control for one in facts for control in one.controls]:
            runs, every = runs + len(facts), every + controls
            rows.append(row(study, len(facts), controls))
    return with_part(text, "controls", table(HEAD, [*rows, row("all", runs, every)]) + "\n")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8"), find_workspace(ROOT)), "utf-8")
