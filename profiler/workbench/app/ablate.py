"""The ladder up to some fixes, measured and judged; and what each switch of a variant is worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workbench.app.judge import judged
from workbench.app.measure import Wanted, ensure, ensure_each
from workbench.app.target import Target
from workbench.errors import UsageError
from workbench.judge.leave_one_out import LeftOut, Switch, introduced_by, judge_left_out, names_of
from workbench.judge.rows import Ablation
from workbench.judge.snapshot import at_one_shape
from workbench.study.model import Ladder, Study
from workbench.study.params import base_name, declared, find_variant, with_values
from workbench.study.workspace import including


def named(target: Target, fixes: list[str]) -> list[str]:
    """The steps up to the fixes, as far as they are measured at the shape, what a fix chooses
    among, which says whether it chooses the fastest, and the references.
    """
    ladder = target.study.ladder
    steps = [s.variant for s in ladder.measured_at(target.shape, target.steps(fixes))]
    every = dict.fromkeys([*steps, *ladder.chosen_among(fixes)])
    return [*every, *(r.name for r in ladder.references)]


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
        found, _ = judged(
            target,
            steps=target.steps(fixes),  # as they are after measuring
            source=done.source,
            everywhere=everywhere,
            keep=True,
        )
        asked = {name: why for name, why in done.unsupported.items() if name in fixes}
        yield found, {**done.failures, **asked}


def switches_of(study: Study, variant: str, ladder: Ladder) -> tuple[Study, list[Switch]]:
    """Parameters that a variant gives other values than its own, and the study with what is needed
    to put each back. ``ladder`` is the study's as it is written. Raises UsageError where there are
    none.
    """
    found = find_variant(study.folder, variant, study.variants)
    own, given = declared(found.module), dict(found.params)
    base = base_name(variant)
    if not given:
        known = ", ".join(own) or "none is declared (cuda.params)"
        raise UsageError(
            f"'{variant}' has no switches: all its parameters have their own values ({known})",
            hint="name those that are on, such as 'fix11[stagger=1,early=1]'",
        )
    switches = []
    for name, value in given.items():
        rest = {key: other for key, other in given.items() if key != name}
        study, (without,) = including(study, [with_values(base, rest)])
        step, parent = introduced_by(name, value, base, ladder.steps, study.variants)
        switches.append(Switch(name, value, own[name], without, step, parent))
    return study, switches


def leave_one_out(target: Target, name: str, *, fresh: bool) -> tuple[LeftOut, dict[str, str]]:
    ladder = target.study.ladder
    (variant,) = target.variants([name])
    study, switches = switches_of(target.study, variant, ladder)
    target.study, (base,) = including(study, [base_name(variant)])
    wanted = names_of(variant, base, switches)
    reference = [ladder.primary_reference] if ladder.primary_reference else []
    ensured = ensure(target, [*wanted, *reference], fresh=fresh, timed=True)
    found = judge_left_out(
        at_one_shape(target.evidence(), wanted, captures=False),
        variant,
        base,
        switches,
        study=study.name,
        gpu=target.folder.gpu,
        source=ensured.source,
        reference=ladder.primary_reference,
    )
    return found, ensured.failures
