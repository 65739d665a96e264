"""Which verdicts a timing leaves open, so that further sessions are worth their time. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.derive.speedup import ratio_of, session_times
from workbench.judge.gates import speed_verdict
from workbench.words import Regime, Verdict

if TYPE_CHECKING:
    from workbench.evidence.records import Timing
    from workbench.study.config import Gates
    from workbench.study.model import Ladder


def open_variants(timing: Timing, ladder: Ladder, gates: Gates) -> tuple[str, ...]:
    """The steps of a timing whose interval over the parent spans the gate, with these parents, in
    the order of the ladder; empty where every verdict is clear.

    A step that is judged at another shape than the timing's is none of them, nor is one whose
    parent was not timed beside it: further sessions would not decide about it.
    """
    times = session_times(timing.together)
    found: set[str] = set()
    for step in ladder.steps:
        if step.parent is None or step.shape not in ("", timing.shape):
            continue
        before, after = (
            times.get((name, Regime.CHAINED, False)) for name in (step.parent, step.variant)
        )
        over = ratio_of(before, after, timing.first_planned) if before and after else None
        if over is not None and speed_verdict(over, gates) == Verdict.INCONCLUSIVE:
            found |= {step.variant, step.parent}
    return tuple(step.variant for step in ladder.steps if step.variant in found)
