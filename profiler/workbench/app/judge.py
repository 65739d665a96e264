"""Ladders measured and judged, and one step in two stages, a quick verdict first."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from workbench.app.measure import (
    Ensured,
    Wanted,
    ensure,
    ensure_each,
    first_look,
    measure_unseen,
    profiled_with,
)
from workbench.app.target import Target, in_place
from workbench.derive.source_diff import SourceDiff
from workbench.errors import WorkbenchError
from workbench.judge.findings import Finding
from workbench.judge.gates import FASTER, UNSEEN, for_bug_fix, shows_bug, verdict
from workbench.judge.ladder import Ablation, VariantPair, judge, judge_pair
from workbench.judge.line_costs import pair_sources
from workbench.judge.provenance import file_warnings
from workbench.judge.rows import Row
from workbench.load import LadderEvidence
from workbench.study.model import Step
from workbench.words import GateState, Origin, Status, Verdict


@dataclass(frozen=True)
class VariantResult:
    """Rows of a ladder that were asked for; ``damaged`` says which evidence cannot be read."""

    ladder: Ablation
    rows: tuple[Row, ...]
    damaged: tuple[Finding, ...] = ()

    @property
    def row(self) -> Row:
        return self.rows[0]


@dataclass(frozen=True)
class PairResult:
    """Two variants of a ladder side by side; ``paths`` are those of the second one's files."""

    ladder: Ablation
    pair: VariantPair
    changes: SourceDiff
    paths: Mapping[str, str]


def judged(
    target: Target,
    only: Sequence[str] = (),
    *,
    steps: Sequence[Step] | None = None,
    source: Origin = Origin.RECORDED,
    sources: bool = False,
    everywhere: bool = True,
) -> tuple[Ablation, LadderEvidence]:
    """The whole ladder, ``only`` some of it or up to some ``steps``, judged by the evidence as it
    is, ``everywhere`` or at the target's shape alone.
    """
    evidence = target.load_ladder(steps, sources=sources, only=only)
    config = target.workspace.config
    return judge(evidence, config, source=source, everywhere=everywhere), evidence


def judged_variant(target: Target, name: str) -> VariantResult:
    """One variant by the evidence as it is, and which of that cannot be read."""
    ladder, evidence = judged(target, [name])
    return VariantResult(ladder, (ladder.row(name),), tuple(file_warnings(evidence, [name])))


def compared(target: Target, names: Sequence[str]) -> PairResult:
    """Two variants side by side, with the diff of their sources."""
    ladder, evidence = judged(target, names, sources=True)
    pair = judge_pair(evidence, target.workspace.config, *map(ladder.row, names))
    changes = pair_sources(evidence, *names)
    paths = {file.after: in_place(file.after, target.study) for file in changes.files if file.after}
    return PairResult(ladder, pair, changes, paths)


def named(target: Target, fixes: list[str]) -> list[str]:
    """The steps up to the fixes, as far as they are measured at the shape, what a fix chooses
    among, which says whether it chooses the fastest, and the references.
    """
    ladder = target.study.ladder
    steps = [s.variant for s in ladder.measured_at(target.shape, target.steps(fixes))]
    every = dict.fromkeys([*steps, *ladder.chosen_among(fixes)])
    return [*every, *(r.name for r in ladder.references)]


def open_unseen(rows: Iterable[Row], but: str = "") -> list[str]:
    """Steps that no gate speaks against, ``but`` for one, that were not checked at drawn shapes."""
    states = {row.variant: {gate.name: gate.state for gate in row.gates} for row in rows}
    return [
        variant
        for variant, gates in states.items()
        if gates.get(UNSEEN) == GateState.OPEN
        and GateState.FAILED not in {state for name, state in gates.items() if name != but}
    ]


def _measured(target: Target, fixes: list[str], source: Origin, everywhere: bool) -> Ablation:
    steps = target.steps(fixes)  # as they are after measuring
    return judged(target, steps=steps, source=source, everywhere=everywhere)[0]


def ablate(
    targets: Sequence[Target],
    fixes: list[str],
    *,
    fresh: bool,
    everywhere: bool = True,
    profile: bool = True,
) -> Iterator[tuple[Ablation, dict[str, str]]]:
    """The ladder up to ``fixes``, measured and judged at the shape of each target, and what failed
    of it. ``everywhere``: judged at the other shapes as well. Without ``profile`` nothing is
    captured, and what was before counts.
    """
    every = [Wanted(target, named(target, fixes), profile=profile) for target in targets]
    for target, done in zip(targets, ensure_each(every, fresh=fresh), strict=True):
        ladder = _measured(target, fixes, done.source, everywhere)
        if target.live and (due := open_unseen(ladder.rows)):
            done.failures.update(measure_unseen(target, due))
            ladder = _measured(target, fixes, done.source, everywhere)
        asked = {name: why for name, why in done.unsupported.items() if name in fixes}
        yield ladder, {**done.failures, **asked}


def profile(
    target: Target, names: list[str], *, fresh: bool, timeline: bool = False
) -> tuple[Ablation, dict[str, str]]:
    """Variants measured and judged with what they are compared with, and what failed of it."""
    done = ensure(profiled_with(target, names, timeline=timeline), fresh=fresh)
    return judged(target, names, source=done.source)[0], done.failures


NEAR = 1.1  # times the best step's time: nothing slower is worth a profile
SETTLED = (Verdict.WRONG, Verdict.INACCURATE, Verdict.UNSEEN_SHAPE)


@dataclass(frozen=True)
class JudgedStep:
    """``provisional``: by the first sessions alone. ``seconds`` went by until the first verdict."""

    found: Ablation
    row: Row
    provisional: bool
    failures: dict[str, str] = field(default_factory=dict)
    seconds: float | None = None
    unprofiled: WorkbenchError | None = None


def step(target: Target, fix: str, *, fresh: bool, quick: bool, profile: bool) -> JudgedStep:
    """Raises UsageError for what is no step."""
    began = time.monotonic()
    (fix,) = target.variants([fix])
    target.steps([fix])
    planned = target.study.ladder.step(fix)
    names = [planned.parent, fix] if planned and planned.parent else [fix]
    first = ensure(Wanted(first_look(target), names, timed=True, again=False), fresh=fresh)
    stepped = _judged(target, fix, first, provisional=True)
    stepped = replace(stepped, seconds=time.monotonic() - began)
    if quick or first.failures or not target.live or not is_near(target, stepped):
        return stepped
    # One that is right at the listed shapes alone is to be told so, with a gain or without.
    failed = measure_unseen(target, open_unseen([stepped.row], but=FASTER))
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
    ladder, _ = judged(target, [fix], source=ensured.source)
    row = ladder.row(fix)
    provisional = provisional and row.verdict not in SETTLED and target.live
    return JudgedStep(
        found=ladder,
        row=_by_known_gates(row, target) if provisional else row,
        provisional=provisional,
        failures={**ensured.failures, **ensured.unsupported},
    )


def _by_known_gates(row: Row, target: Target) -> Row:
    """Judge a row by the gates for which the first sessions have evidence."""
    if row.step is None or row.step.parent is None or row.deciding_speedup is None:
        return row
    gates = target.workspace.config.gates
    decided = [gate for gate in row.gates if gate.state != GateState.OPEN]
    limits = for_bug_fix(gates) if shows_bug(row.gates) else gates
    return replace(row, verdict=verdict(decided, row.deciding_speedup, limits))
