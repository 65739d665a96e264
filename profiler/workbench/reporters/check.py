"""``check``: variants beside the float64 reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from workbench.app.checked import CheckedStudy, CheckRow
from workbench.render import brief as in_short
from workbench.render.document.blocks import (
    Block,
    Cell,
    Field,
    Marking,
    Table,
    field,
    figure_cell,
    numeric,
    paragraph,
    table,
)
from workbench.render.numbers import factor, number, percent
from workbench.words import ABSENT, NONE, CheckResult, Status


def brief(found: CheckedStudy) -> dict[str, object]:
    """The wrong checks first. No verdict where nothing was checked, or some of it is stale."""
    order = sorted(found.checks, key=lambda one: not one.wrong)
    states = {one.status for one in order}
    if any(one.wrong for one in order):
        verdict = CheckResult.WRONG
    elif CheckResult.CORRECT in states and Status.STALE not in states:
        verdict = CheckResult.CORRECT
    else:
        verdict = None
    return {
        "study": found.study,
        "gpu": found.gpu,
        "evidence": found.evidence,
        "verdict": verdict,
        "failed": [
            {"variant": name, "why": in_short.short(why)} for name, why in found.lost.items()
        ]
        or None,
        "checks": [_check(one) for one in order],
    }


def _check(one: CheckRow) -> dict[str, object]:
    found: dict[str, object] = {"variant": one.variant, "shape": one.shape, "status": one.status}
    if one.max_abs is not None:
        found |= {"max_error": in_short.number(one.max_abs), "allowed": in_short.number(one.bound)}
    if one.wrong:
        found |= {
            "input_kind": one.kind,
            "why": in_short.short(one.why),
            "hint": in_short.short(one.hint),
        }
    return found


def blocks(result: CheckedStudy, options: Any) -> list[Block]:
    head = [paragraph(result.origin)] if result.origin else []
    return [*head, checks(result.checks, wide=options.wide)]


CHECKED: list[Field[CheckRow]] = [
    field("variant", "variant", lambda c: c.variant),
    field("shape", "shape", lambda c: c.shape),
    field("status", "result", lambda c: c.status),
    numeric("error", "max error", lambda c: figure_cell(c.max_abs)),
    numeric("bound", "allowed", lambda c: number(c.bound), rank=1),
    numeric("relative", "relative", lambda c: figure_cell(c.relative), rank=1),
    numeric("relative_bound", "allowed", lambda c: number(c.relative_bound), rank=1),
    numeric("times", "error ÷ reference's", lambda c: _times(c), rank=1),
    field("kind", "inputs", lambda c: c.kind or NONE, rank=3),
    field("why", "why", lambda c: c.why, rank=2),
]
Group = tuple[str, Sequence[CheckRow]]
SUMMARY: list[Field[Group]] = [
    field("variant", "variant", lambda g: g[0]),
    numeric("correct", "correct", lambda g: _correct(g[1]), unit="shapes"),
    numeric("error", "worst error", lambda g: _error(_hardest(g[1]))),
    numeric("used", "of the tolerance", lambda g: _used(_hardest(g[1]))),
    numeric("times", "error ÷ reference's", lambda g: _times(_least_accurate(g[1]))),
    field("wrong", "other results", lambda g: _wrong(g[1]), rank=1),
    field("at", "worst at", lambda g: _place(_hardest(g[1])), rank=2),
    numeric("declined", "unsupported", lambda g: _declined(g[1]), rank=3, unit="shapes"),
]


def checks(found: Sequence[CheckRow], *, wide: bool) -> Table:
    """One row a variant, or ``wide`` one a variant and shape."""
    if wide:
        return table("checks", CHECKED, found, key=lambda c: c.variant, kind=lambda c: _kind([c]))
    groups: dict[str, list[CheckRow]] = {}
    for check in found:
        groups.setdefault(check.variant, []).append(check)
    return table("checks", SUMMARY, groups.items(), key=lambda g: g[0], kind=lambda g: _kind(g[1]))


def reasons(checks: Sequence[CheckRow]) -> list[str]:
    """What is wrong with a variant, each reason once: one that does not compile does so nowhere."""
    shapes: dict[tuple[str, str], list[str]] = {}
    for check in checks:
        if check.wrong:
            shapes.setdefault((check.status, check.why), []).append(check.shape)
    return [
        f"{status} at {'every shape' if len(at) == len(checks) > 1 else ', '.join(at)}: {why}"
        for (status, why), at in shapes.items()
    ]


def _kind(checks: Sequence[CheckRow]) -> Marking:
    return Marking.REJECTED if any(check.wrong for check in checks) else Marking.PLAIN


def _count(checks: Sequence[CheckRow], status: CheckResult) -> int:
    return sum(check.status == status for check in checks)


def _correct(checks: Sequence[CheckRow]) -> str:
    """``6 of 6``: what a variant declines is no part of the whole."""
    whole = len(checks) - _count(checks, CheckResult.UNSUPPORTED)
    return f"{_count(checks, CheckResult.CORRECT)} of {whole}"


def _declined(checks: Sequence[CheckRow]) -> str:
    return str(_count(checks, CheckResult.UNSUPPORTED))


def _hardest(checks: Sequence[CheckRow]) -> CheckRow | None:
    measured = [check for check in checks if check.used is not None]
    return max(measured, key=lambda check: check.used or 0.0, default=None)


def _error(worst: CheckRow | None) -> Cell:
    return figure_cell(worst.max_abs if worst else None)


def _used(worst: CheckRow | None) -> str:
    return f"{percent(worst.used)} of {number(worst.bound)}" if worst else NONE


def _least_accurate(checks: Sequence[CheckRow]) -> CheckRow | None:
    known = [check for check in checks if check.times_reference is not None]
    return max(known, key=lambda check: check.times_reference or 0.0, default=None)


def _times(check: CheckRow | None) -> Cell:
    if check is None or check.times_reference is None:
        return figure_cell(None)
    note = "varies" if check.varies else ""
    return figure_cell(check.times_reference, factor(check.times_reference), note)


def _place(worst: CheckRow | None) -> str:
    return worst.shape if worst else NONE


def _wrong(checks: Sequence[CheckRow]) -> str:
    """By status and reason; those that were not looked at are reported too."""
    parts = reasons(checks)
    missing = Counter(c.status for c in checks if c.status in (ABSENT, Status.STALE))
    parts += [f"{status} at {count}" for status, count in missing.items()]
    return "; ".join(parts) or NONE
