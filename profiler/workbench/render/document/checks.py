"""Tables of ``check``: variants beside the float64 reference; of ``gate``: what a change did."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from workbench.judge.commits import VariantChange
from workbench.judge.comparison import Difference, difference_label
from workbench.judge.findings import sentence
from workbench.render.document.blocks import (
    Block,
    Cell,
    Field,
    Marking,
    Section,
    Table,
    code,
    field,
    figure_cell,
    joined,
    numeric,
    paragraph,
    strong,
    table,
    words,
)
from workbench.render.numbers import factor, number, percent
from workbench.words import ABSENT, NONE, CheckResult, Move, Origin, Status


@dataclass(frozen=True)
class CheckRow:
    """A variant beside the float64 reference at one shape; errors are None where not collected.

    ``bound`` and ``relative_bound`` are the largest that the study allows at that shape.
    ``times_reference`` is the error as a multiple of the primary reference's, on inputs of which
    ``kind``; ``varies``: results differ from run to run. ``output`` is the one of several
    that decided, ``hint`` the way out of what is wrong.
    """

    variant: str
    shape: str
    status: str
    bound: float = dataclasses.field(repr=False)
    relative_bound: float = dataclasses.field(repr=False)
    why: str = ""
    max_abs: float | None = None
    relative: float | None = None
    times_reference: float | None = None
    kind: str = ""
    varies: bool = False
    output: str = ""
    hint: str = ""

    @property
    def wrong(self) -> bool:
        return self.status not in FINE

    @property
    def used(self) -> float | None:
        """The part of the bound that the error takes; of no error at all where none is allowed."""
        if self.max_abs is None or self.bound:
            return None if self.max_abs is None else self.max_abs / self.bound
        return math.inf if self.max_abs else 0.0


@dataclass(frozen=True)
class ErrorBound:
    """Errors of a result, or the largest allowed: of one element, and relative in norm."""

    max_abs: float
    relative: float


@dataclass(frozen=True)
class CheckedStudy:
    """``tolerance`` is what the study allows at the shape; ``lost`` is what failed without a
    record, by variant.
    """

    study: str
    gpu: str
    evidence: Origin
    tolerance: ErrorBound
    checks: tuple[CheckRow, ...]
    lost: dict[str, str] = dataclasses.field(repr=False)
    origin: str = dataclasses.field(default="", repr=False)  # where no GPU here checked them


FINE = (CheckResult.CORRECT, CheckResult.UNSUPPORTED, ABSENT, Status.STALE)
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


TIERS = ("compiler", "counters", "times")
SHOWN = 12  # findings, where not all are asked for
KINDS = {
    Move.FASTER: Marking.KEPT,
    Move.SLOWER: Marking.REJECTED,
    Move.BROKEN: Marking.REJECTED,
    Move.CANNOT_TELL: Marking.INCONCLUSIVE,
}


Moved = tuple[str, Difference]  # of a variant


CHANGES: list[Field[VariantChange]] = [
    field("variant", "variant", lambda c: c.variant),
    field("verdict", "verdict", lambda c: strong(c.verdict) if c.is_bad else words(c.verdict)),
    field("by", "by", lambda c: TIERS[c.tier], rank=2),
    field("cause", "cause", lambda c: c.cause or NONE, rank=1),
    field("why", "why", lambda c: sentence(c.why), rank=1),
]
FINDINGS: list[Field[Moved]] = [
    field("variant", "variant", lambda m: m[0]),
    field("kernel", "kernel", lambda m: m[1].kernel or NONE, rank=3),
    field("what", "what", lambda m: difference_label(m[1].what)),
    numeric("before", "before", lambda m: shown(m[1].before), rank=1),
    numeric("after", "after", lambda m: shown(m[1].after), rank=1),
]


def shown(value: float | str) -> str:
    return value or NONE if isinstance(value, str) else number(value, 4)


def gate(said: str, studies: Mapping[str, Sequence[VariantChange]], *, wide: bool) -> list[Block]:
    """``said`` is the verdict in a line; of what is the same there is a line a study, or all."""
    blocks: list[Block] = [paragraph(strong(said))]
    for study, changes in studies.items():
        blocks.append(Section(study, code(study), tuple(_study(changes, wide))))
    return blocks


def _study(changes: Sequence[VariantChange], wide: bool) -> Iterator[Block]:
    same = [change for change in changes if change.verdict == Move.SAME]
    listed = [change for change in changes if wide or change.verdict != Move.SAME]
    if listed:
        key, kind = (lambda c: c.variant), (lambda c: KINDS.get(c.verdict, Marking.PLAIN))
        yield table("changes", CHANGES, listed, key=key, kind=kind)
    if same and not wide:
        yield paragraph(f"same: {', '.join(change.variant for change in same)}")
    if stale := ", ".join(change.variant for change in same if change.stale):
        why = (
            "evidence belongs to whole files, comments included. `workbench ablate` measures again"
        )
        yield paragraph(f"the recorded evidence of {stale} is stale now: {why}")
    moved = [(c.variant, one) for c in listed for one in c.differences]
    if moved:
        yield table("moved", FINDINGS, moved if wide else moved[:SHOWN], key=lambda m: m[0])
    if len(moved) > SHOWN and not wide:
        yield paragraph(f"and {len(moved) - SHOWN} more: --wide shows all")
    also: dict[str, list[str]] = {}
    for change in listed:
        for found in change.also:
            also.setdefault(sentence(found), []).append(change.variant)
    for text, variants in also.items():
        yield paragraph(joined(list(map(code, variants))), f": {text}")
