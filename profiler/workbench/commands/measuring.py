"""Measures what is missing or stale of a target's evidence, where this machine can."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from workbench.commands import executor
from workbench.commands.progress import with_hint
from workbench.commands.streams import note
from workbench.commands.target import Target
from workbench.evidence.recorded import Evidence
from workbench.evidence.records import Build
from workbench.judge.open_verdicts import Deciding
from workbench.remote.target import Task
from workbench.run.plan import Measured, Plan
from workbench.study.config import for_study
from workbench.study.model import Study
from workbench.words import CheckResult, Origin

SEVERAL = 2  # sessions, from which on a time has an interval


@dataclass(frozen=True)
class Ensured:
    """``source`` is ``measured`` where anything was measured just now, else ``recorded``; ``timed``
    are the variants that were, here.
    """

    source: Origin
    timed: tuple[str, ...] = ()
    failures: dict[str, str] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)


def settled(evidence: Evidence, variant: str) -> bool:
    """Known not to work as it is now: measuring it again would say the same."""
    check, build = evidence.check(variant).current, evidence.build(variant).current
    wrong = check is not None and check.status != CheckResult.CORRECT
    return wrong or wrong_elsewhere(evidence, variant) or (build is not None and bool(build.error))


def wrong_elsewhere(evidence: Evidence, variant: str) -> bool:
    """Whether it is wrong at another of the shapes that it is checked at: it is not timed then."""
    others = [name for name, shape in evidence.study.shapes.items() if shape.always_checked]
    checks = [evidence.check(variant, name).current for name in others if name != evidence.shape]
    return any(check is not None and check.status == CheckResult.WRONG for check in checks)


def judged_at(evidence: Evidence) -> set[str]:
    """The steps that are judged at a shape other than the study's own, and their parents."""
    steps = [s for s in evidence.study.ladder.steps if s.shape == evidence.shape]
    return {name for step in steps for name in (step.variant, step.parent) if name}


@cache
def tell_missing(variant: str, package: str) -> None:
    note(f"{variant} is not collected: {package} is not installed here")


def collectable(study: Study, variants: list[str]) -> list[str]:
    """Those of which all that they need is installed; of others is told, once."""
    found = []
    for name in variants:
        needs = study.variants[name].needs
        if needs and executor.package_version(needs) is None:
            tell_missing(name, needs)
        else:
            found.append(name)
    return found


def plan(
    evidence: Evidence,
    variants: list[str],
    *,
    fresh: bool,
    capture: Collection[str] = (),
    least: int = 1,
) -> Plan:
    """All variants are timed together when any lacks a current chained time beside the others, in
    ``least`` sessions.

    At a shape that is not captured by itself, nothing is profiled but ``capture``, the steps that
    are judged there, and their parents.
    """
    usable = [v for v in variants if fresh or not settled(evidence, v)]
    file = evidence.timing(usable)
    held = (
        set(evidence.chained(file.timing)) if file and len(file.timing.together) >= least else set()
    )
    checked = all(evidence.check(v).current and evidence.build(v).current for v in usable)
    timed = usable if fresh or not checked or not set(usable) <= held else []
    every = evidence.study.shapes[evidence.shape].captured
    wanted = judged_at(evidence) | set(capture)
    captured = [
        v
        for v in usable
        if (every or v in wanted) and (fresh or not evidence.capture_index(v).current)
    ]
    return Plan(evidence.shape, timed=tuple(timed), captured=tuple(captured))


def sessions_needed(target: Target) -> int:
    """That a time on record must have, to be enough."""
    return min(SEVERAL, target.workspace.config.timing.sessions)


def ensure(
    target: Target, variants: list[str], *, fresh: bool = False, capture: Collection[str] = ()
) -> Ensured:
    """Measure what is needed; without a GPU, nothing. Ctrl-C keeps what was finished."""
    evidence = target.evidence()
    if not target.live:
        if fresh:
            note("nothing is measured here: no GPU or no ncu; showing the recorded evidence")
        return Ensured(Origin.RECORDED)
    known = collectable(target.study, variants)
    least = sessions_needed(target)
    todo = plan(evidence, known, fresh=fresh, capture=capture, least=least)
    if not todo.variants:
        return Ensured(Origin.RECORDED)
    return carry_out(target, todo, Deciding(steps=True))


@dataclass(frozen=True)
class Wanted:
    """Variants of a target that are to be measured with others, and which to ``capture``."""

    target: Target
    variants: list[str]
    capture: Collection[str] = ()


def ensure_each(every: Sequence[Wanted], *, fresh: bool, timed: bool = False) -> Iterator[Ensured]:
    """Of each in its turn; on a remote target all of them together, before the first.

    ``timed``: as ``ensure_timed``, else as ``ensure``. Ctrl-C leaves with 130.
    """
    if executor.REMOTE.get() is not None:
        yield from _together(every, fresh=fresh, timed=timed)
        return
    checked: set[str] = set()  # at the shapes where every variant always is
    for one in every:
        if timed:
            done = ensure_timed(one.target, one.variants, fresh=fresh, checked=checked)
        else:
            done = ensure(one.target, one.variants, fresh=fresh, capture=one.capture)
        checked |= set(done.timed) - done.failures.keys()
        yield done


def _together(every: Sequence[Wanted], *, fresh: bool, timed: bool) -> list[Ensured]:
    tasks, found = [], [Ensured(Origin.RECORDED)] * len(every)
    places = []
    for i, one in enumerate(every):
        known = collectable(one.target.study, one.variants)
        least = sessions_needed(one.target)
        evidence = one.target.evidence()
        todo = plan(evidence, known, fresh=fresh, capture=one.capture, least=least)
        todo = replace(todo, captured=()) if timed else todo
        if todo.variants:
            places.append(i)
            tasks.append(task(one.target, todo, Deciding(steps=not timed)))
    if tasks:
        for i, measured in zip(places, executor.carry_out(tasks), strict=True):
            found[i] = ensured(measured)
    return found


def ensure_timed(
    target: Target,
    variants: list[str],
    *,
    fresh: bool = False,
    refused: Callable[[Build], str] | None = None,
    checked: Collection[str] = (),
) -> Ensured:
    """Build, check and time what is needed, and profile nothing. What ``refused`` says a word of is
    only built. Where all of it is ``checked``, it is not checked again but at the target's shape.
    """
    if not target.live:
        return ensure(target, variants, fresh=fresh)
    evidence, known = target.evidence(), collectable(target.study, variants)
    if refused is not None and not fresh:
        builds = {name: evidence.build(name).current for name in known}
        known = [name for name, build in builds.items() if build is None or not refused(build)]
    todo = plan(evidence, known, fresh=fresh, least=sessions_needed(target))
    todo = replace(todo, captured=(), here=set(todo.timed) <= set(checked))
    if not todo.timed:
        return Ensured(Origin.RECORDED)
    return carry_out(target, todo, Deciding(refusing=refused is not None))


def task(target: Target, todo: Plan, deciding: Deciding) -> Task:
    config = for_study(target.workspace.config, target.study.ladder)
    given = (target.workspace, target.study, config, target.folder)
    return Task(*given, todo, deciding)


def carry_out(target: Target, todo: Plan, deciding: Deciding) -> Ensured:
    """Measure what a plan says."""
    (result,) = executor.carry_out([task(target, todo, deciding)])
    return replace(ensured(result), timed=todo.timed)


def ensured(result: Measured) -> Ensured:
    failures = {n: with_hint(why, result.hints.get(n, "")) for n, why in result.failures.items()}
    return Ensured(Origin.MEASURED, failures=failures, unsupported=result.unsupported)
