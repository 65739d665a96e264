"""One step of a ladder in two stages: a first verdict, and only for a step that is right and close
to the best one more sessions and a profile.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from msgspec import structs

from workbench.app.judge import judged, open_unseen
from workbench.app.measure import Ensured, captured, ensure, measure_unseen, needed
from workbench.app.target import Target
from workbench.judge.open_verdicts import seconds_of
from workbench.judge.rows import Ablation, Row
from workbench.words import Status, Verdict

FIRST_SESSIONS = 3
NEAR = 1.1  # times the best step's time: nothing slower is worth a profile
SETTLED = (Verdict.WRONG, Verdict.INACCURATE)


@dataclass(frozen=True)
class JudgedStep:
    """``provisional``: by the first sessions alone; ``left_s`` of the budget in GPU seconds, None
    without one.
    """

    found: Ablation
    row: Row
    provisional: bool
    left_s: float | None
    failures: dict[str, str] = field(default_factory=dict)


def step(target: Target, fix: str, *, fresh: bool, quick: bool, profile: bool) -> JudgedStep:
    """Raises UsageError for what is no step."""
    target.steps([fix])
    ladder = target.study.ladder
    (known,) = [each for each in ladder.steps if each.variant == fix]
    beside = [fix, known.parent or "", ladder.primary_reference]
    names = list(dict.fromkeys(name for name in beside if name))
    first = ensure(with_sessions(target, FIRST_SESSIONS), names, fresh=fresh, timed=True)
    stepped = _judged(target, fix, first, provisional=True)
    if quick or first.failures or not target.live or not is_near(target, stepped):
        return stepped
    sessions = target.workspace.config.timing.sessions
    timed = ensure(target, names, timed=True, least=sessions)
    if not profile:
        return _judged(target, fix, timed, provisional=False)
    done = ensure(target, needed(target, [fix]), capture=captured(target, [fix]))
    stepped = _judged(target, fix, done, provisional=False)
    if open_unseen([stepped.row]):
        done.failures.update(measure_unseen(target, [fix]))
        stepped = _judged(target, fix, done, provisional=False)
    return stepped


def with_sessions(target: Target, sessions: int) -> Target:
    config = target.workspace.config
    timing = structs.replace(config.timing, sessions=sessions, max_sessions=sessions)
    workspace = replace(target.workspace, config=structs.replace(config, timing=timing))
    return replace(target, workspace=workspace)


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
    return JudgedStep(
        found=found,
        row=row,
        provisional=provisional and row.verdict not in SETTLED and target.live,
        left_s=max(0.0, budget - spent) if budget else None,
        failures={**ensured.failures, **ensured.unsupported},
    )
