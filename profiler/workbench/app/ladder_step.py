"""One step of a ladder in two stages: a first verdict, and only for a step that is right and close
to the best one unseen shapes, more sessions and a profile.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from workbench.app.judge import judged, open_unseen
from workbench.app.measure import Ensured, Wanted, ensure, first_look, measure_unseen, profiled_with
from workbench.app.target import Target
from workbench.judge.gates import for_bug_fix, shows_bug, verdict
from workbench.judge.open_verdicts import seconds_of
from workbench.judge.rows import Ablation, Row
from workbench.words import GateState, Status, Verdict

NEAR = 1.1  # times the best step's time: nothing slower is worth a profile
SETTLED = (Verdict.WRONG, Verdict.INACCURATE, Verdict.UNSEEN_SHAPE)


@dataclass(frozen=True)
class JudgedStep:
    """``provisional``: by the first sessions alone; ``left_s`` of the budget in GPU seconds, None
    without one. ``seconds`` went by until the first verdict.
    """

    found: Ablation
    row: Row
    provisional: bool
    left_s: float | None
    failures: dict[str, str] = field(default_factory=dict)
    seconds: float | None = None


def step(target: Target, fix: str, *, fresh: bool, quick: bool, profile: bool) -> JudgedStep:
    """Raises UsageError for what is no step."""
    began = time.monotonic()
    (fix,) = target.variants([fix])
    target.steps([fix])
    known = target.study.ladder.step(fix)
    names = [known.parent, fix] if known and known.parent else [fix]
    first = ensure(Wanted(first_look(target), names, timed=True, again=False), fresh=fresh)
    stepped = _judged(target, fix, first, provisional=True)
    stepped = replace(stepped, seconds=time.monotonic() - began)
    if quick or first.failures or not target.live or not is_near(target, stepped):
        return stepped
    failed = measure_unseen(target, open_unseen([stepped.row]))
    again = _judged(target, fix, first, provisional=True)
    if not failed and again.row.verdict not in SETTLED:
        least = target.workspace.config.timing.sessions
        wanted = profiled_with(target, [fix])
        done = ensure(replace(wanted, profile=profile, least=least, again=False))
        again, failed = _judged(target, fix, done, provisional=False), done.failures
        if due := open_unseen([again.row]):  # the first sessions had no gain
            failed |= measure_unseen(target, due)
            again = _judged(target, fix, done, provisional=False)
    return replace(again, failures={**again.failures, **failed}, seconds=stepped.seconds)


def is_near(target: Target, stepped: JudgedStep) -> bool:
    """Whether the step is right, and no slower than the best one by more than ``NEAR``."""
    row = stepped.row
    if row.time is None or row.status == Status.FAILED or row.verdict in SETTLED:
        return False
    ladder, _ = judged(target, everywhere=False)
    best = ladder.best
    return best is None or best.time is None or row.time.value <= NEAR * best.time.value


def _judged(target: Target, fix: str, ensured: Ensured, *, provisional: bool) -> JudgedStep:
    found, _ = judged(target, [fix], source=ensured.source)
    budget = target.workspace.config.budget.max_gpu_seconds
    spent = seconds_of(target.executor.ledger(target.workspace)) if budget else 0.0
    row = found.row(fix)
    provisional = provisional and row.verdict not in SETTLED and target.live
    return JudgedStep(
        found=found,
        row=_by_known_gates(row, target) if provisional else row,
        provisional=provisional,
        left_s=max(0.0, budget - spent) if budget else None,
        failures={**ensured.failures, **ensured.unsupported},
    )


def _by_known_gates(row: Row, target: Target) -> Row:
    """With the verdict of the gates for which the first sessions have evidence."""
    if row.step is None or row.step.parent is None or row.deciding_speedup is None:
        return row
    gates = target.workspace.config.gates
    known = [gate for gate in row.gates if gate.state != GateState.OPEN]
    limits = for_bug_fix(gates) if shows_bug(row.gates) else gates
    return replace(row, verdict=verdict(known, row.deciding_speedup, limits))
