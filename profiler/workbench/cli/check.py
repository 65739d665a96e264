"""``check``: variants beside the float64 reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from workbench.app.check import CheckedStudy, CheckRow, check, check_on_cpu
from workbench.app.target import find_study, of_one_gpu, target_at, tell_passed_over
from workbench.cli.options import CheckOptions
from workbench.cli.streams import executor, note, note_failures, show
from workbench.errors import EnvironmentLacks, UsageError
from workbench.render import doc, in_short
from workbench.render.doc import factor, number, percent
from workbench.study.params import including, profiled_shapes
from workbench.words import ABSENT, NONE, CheckResult, Status, grouped

ON_CPU = "checked on the CPU, at small shapes: no GPU was found here, and nothing is recorded"


def run(options: CheckOptions) -> int:
    if options.all_shapes and options.shape:
        raise UsageError("--shape and --all-shapes exclude each other")
    here = executor(options.on)
    workspace, study = find_study(here, options.project, options.study)
    including(study, options.variants or [])
    tell_passed_over(here, workspace, [study.name])
    picked = profiled_shapes(study, options.shape)
    try:
        targets = of_one_gpu([target_at(here, workspace, each) for each in picked])
    except EnvironmentLacks:
        if here.at_once or options.shape:
            raise
        checked, text = check_on_cpu(here, study, options.variants or []), ON_CPU
    else:
        checked = check(targets, options.variants or [], everywhere=options.all_shapes)
        live = targets[-1].live
        study = targets[-1].study
        text = "" if live else f"recorded evidence ({checked.gpu}): no GPU here to check on"
    checks, lost = checked.checks, checked.lost
    show(options, replace(checked, origin=text))
    of = grouped((one.variant, one) for one in checks)
    declared = {step.variant for step in study.ladder.steps if step.expected}
    wrong = {name for name, every in of.items() if any(one.wrong for one in every)}
    done = {one.variant for one in checks if one.status == CheckResult.CORRECT}
    for name in sorted(declared & done - wrong):
        note(f"error: {name} is declared wrong and is correct: remove `expected` of its step")
    for name in sorted(declared & wrong):
        note(f"{name} is wrong, as declared")
    bad = [name for name in of if name in wrong - declared]
    for name in bad:
        for why in reasons(of[name]):
            note(f"error: {name}: {study.in_place(why)}")
        for hint in dict.fromkeys(one.hint for one in of[name]):
            if hint:
                note(f"hint: {study.in_place(hint)}")
    note_failures(lost, study)
    if bad:
        note("hint: a variant that is wrong is not timed: fix it first")
    failed = bool(bad or lost or declared & done - wrong)
    if not failed:
        states = {name: {one.status for one in every} - {ABSENT} for name, every in of.items()}
        here.require_current([name for name, its in states.items() if its == {Status.STALE}])
    return int(failed)


def brief(checked: CheckedStudy) -> dict[str, object]:
    """The wrong checks first. No verdict where nothing was checked, or some of it is stale."""
    order = sorted(checked.checks, key=lambda one: not one.wrong)
    states = {one.status for one in order}
    if any(one.wrong for one in order):
        verdict = CheckResult.WRONG
    elif CheckResult.CORRECT in states and Status.STALE not in states:
        verdict = CheckResult.CORRECT
    else:
        verdict = None
    named = [one.variant for one in order if one.wrong][:1] or [order[0].variant] if order else []
    verb = "ablate" if verdict == CheckResult.CORRECT else "check"
    return {
        "study": checked.study,
        "gpu": checked.gpu,
        "evidence": checked.evidence,
        "verdict": verdict,
        "failed": in_short.failed(checked.lost),
        "checks": [_check(one) for one in order],
        **in_short.command(checked.study, verb, *dict.fromkeys(named)),
    }


def _check(row: CheckRow) -> dict[str, object]:
    shown: dict[str, object] = {"variant": row.variant, "shape": row.shape, "status": row.status}
    if row.max_abs is not None:
        shown |= {"max_error": row.max_abs, "allowed": float(row.bound)}
    if row.wrong:
        shown |= {
            "input_kind": row.kind,
            "why": in_short.short(row.why),
            "hint": in_short.short(row.hint),
        }
    return shown


def blocks(result: CheckedStudy, _: object) -> list[doc.Block]:
    head = [doc.paragraph(result.origin)] if result.origin else []
    return [*head, checks(result.checks)]


@dataclass(frozen=True)
class VariantChecks:
    """All checks of a variant."""

    variant: str
    checks: Sequence[CheckRow]

    def count(self, status: CheckResult) -> int:
        return sum(check.status == status for check in self.checks)

    @property
    def correct(self) -> str:
        """``6 of 6``: what a variant declines is no part of the whole."""
        return f"{self.count(CheckResult.CORRECT)} of {len(self.checks) - self.declined}"

    @property
    def declined(self) -> int:
        return self.count(CheckResult.UNSUPPORTED)

    @property
    def hardest(self) -> CheckRow | None:
        measured = [check for check in self.checks if check.used is not None]
        return max(measured, key=lambda check: check.used or 0.0, default=None)

    @property
    def wrong(self) -> str:
        """Return variants by status and reason; those that were not looked at are reported too."""
        parts = reasons(self.checks)
        missing = Counter(c.status for c in self.checks if c.status in (ABSENT, Status.STALE))
        parts += [f"{status} at {count}" for status, count in missing.items()]
        return "; ".join(parts) or NONE


SUMMARY: list[doc.Field[VariantChecks]] = [
    doc.Field("variant", "variant", lambda g: g.variant),
    doc.numeric("correct", "correct", lambda g: g.correct, unit="shapes"),
    doc.numeric("error", "worst error", lambda g: number(g.hardest.max_abs if g.hardest else None)),
    doc.numeric("used", "of the tolerance", lambda g: _used(g.hardest)),
    doc.numeric("times", "error ÷ reference's", lambda g: _times(g.checks)),
    doc.Field("wrong", "other results", lambda g: g.wrong, rank=1),
    doc.Field("at", "worst at", lambda g: g.hardest.shape if g.hardest else NONE, rank=2),
    doc.numeric("declined", "unsupported", lambda g: str(g.declined), rank=3, unit="shapes"),
]


def checks(rows: Sequence[CheckRow]) -> doc.Table:
    """One row a variant."""
    groups = [VariantChecks(*each) for each in grouped((c.variant, c) for c in rows).items()]
    wrong = {row.variant: doc.Marking.REJECTED for row in rows if row.wrong}
    return doc.table(
        "checks",
        SUMMARY,
        groups,
        key=lambda g: g.variant,
        kind=lambda g: wrong.get(g.variant, doc.Marking.PLAIN),
    )


def reasons(checks: Sequence[CheckRow]) -> list[str]:
    """Return what is wrong with a variant, each reason once: one that does not compile does so
    nowhere.
    """
    shapes = grouped(((c.status, c.why), c.shape) for c in checks if c.wrong)
    return [
        f"{status} at {'every shape' if len(at) == len(checks) > 1 else ', '.join(at)}: {why}"
        for (status, why), at in shapes.items()
    ]


def _used(worst: CheckRow | None) -> str:
    return f"{percent(worst.used)} of {number(worst.bound)}" if worst else NONE


def _times(checks: Sequence[CheckRow]) -> doc.Content:
    """The error of the least accurate as a multiple of the reference's."""
    compared = [(c.times_reference, c.varies) for c in checks if c.times_reference is not None]
    if not compared:
        return ABSENT
    times, varies = max(compared, key=lambda pair: pair[0])
    return doc.cell(factor(times), note="varies" if varies else "")
