"""Studies and their variants, with what is recorded of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING

from workbench.render.document.blocks import (
    Block,
    Field,
    Paragraph,
    Section,
    Table,
    authored,
    code,
    field,
    figure_cell,
    line,
    table,
    words,
)
from workbench.render.numbers import number
from workbench.words import NONE, Status
from workbench.words import shown as is_shown

if TYPE_CHECKING:
    from workbench.judge.open_verdicts import Spent


@dataclass(frozen=True)
class EvidenceState:
    """The state of a variant's evidence at a shape on a GPU: all kinds in one word, and of each.
    ``why`` says what is wrong with a capture that is damaged.
    """

    gpu: str
    shape: str
    state: str
    build: Status
    check: Status
    timing: Status
    capture: Status
    why: str = ""


@dataclass(frozen=True)
class Listed:
    """A variant as ``list`` shows it; ``changed`` are files that are newer than its evidence."""

    variant: str
    parent: str | None
    key_change: str
    reference: bool
    evidence: tuple[EvidenceState, ...]
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListedStudy:
    """A study as ``list`` shows it."""

    study: str
    title: str
    shapes: tuple[str, ...]
    default_shape: str
    variants: tuple[Listed, ...]


LISTED: list[Field[Listed]] = [
    field("variant", "variant", lambda v: v.variant),
    field("parent", "parent", lambda v: _role(v), rank=2),
    field("evidence", "evidence", lambda v: summary(v.evidence), rank=1),
    field("change", "key change", lambda v: authored(v.key_change), rank=3),
]
PLACES: Field[Listed] = field("places", "where", lambda v: _places(v.evidence), rank=9)


def _role(listed: Listed) -> str:
    return "reference" if listed.reference else listed.parent or NONE


def summary(evidence: Sequence[EvidenceState]) -> str:
    """``4 timed, 2 profiled``: at so many shapes; what is stale or damaged is reported too."""
    counts = {
        "timed": sum(each.timing == Status.CURRENT for each in evidence),
        "profiled": sum(each.capture == Status.CURRENT for each in evidence),
        "stale": sum(each.state == Status.STALE for each in evidence),
        "damaged": sum(each.capture == Status.DAMAGED for each in evidence),
    }
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "none"


def _places(evidence: Sequence[EvidenceState]) -> str:
    return "; ".join(f"{each.state} ({each.gpu}, {each.shape})" for each in evidence)


def listing(listed: ListedStudy, *, wide: bool) -> Section:
    """One study: its shapes, and every variant with the state of its evidence."""
    fields = [*LISTED, PLACES] if wide else LISTED
    variants, default = listed.variants, listed.default_shape
    others = ", ".join(shape for shape in listed.shapes if shape != default)
    known = f"shapes: {default} (default){', ' * bool(others)}{others}"
    shown = table("variants", fields, variants, key=lambda v: v.variant)
    changed = [
        Paragraph(words(f"{v.variant}: changed since its evidence: {', '.join(v.changed)}"))
        for v in variants
        if v.changed
    ]
    damaged = [
        Paragraph(
            words(f"{v.variant} has a damaged capture at {each.shape} ({each.gpu}): {each.why}")
        )
        for v in variants
        for each in v.evidence
        if each.why
    ]
    blocks: tuple[Block, ...] = (Paragraph(words(known)), shown, *changed, *damaged)
    return Section(listed.study, line(code(listed.study), f": {listed.title}"), blocks)


@dataclass(frozen=True)
class ListedStudies:
    studies: list[ListedStudy]


def states(known: Mapping[str, Mapping[str, Status]]) -> Table:
    """Every variant with the state of each kind of its evidence."""
    fields: list[Field[str]] = [
        field("variant", "variant", lambda name: name),
        field("build", "build", lambda name: known[name]["build"]),
        field("check", "check", lambda name: known[name]["check"]),
        field("timing", "timing", lambda name: known[name]["timing"]),
        field("capture", "capture", lambda name: known[name]["capture"]),
    ]
    return table("states", fields, known, key=lambda name: name)


@dataclass(frozen=True)
class SpendingLimit:
    """A limit of the budget: ``most`` is None where there is none."""

    limit: str
    spent: float
    most: float | None
    unit: str = dataclass_field(repr=False)

    @property
    @is_shown
    def left(self) -> float | None:
        """None where there is no limit."""
        return max(0.0, self.most - self.spent) if self.most else None


@dataclass(frozen=True)
class Spending:
    """What measuring has cost so far, and what the budget leaves."""

    spent: list[Spent]
    limits: list[SpendingLimit]


SPENT: list[Field[Spent]] = [
    field("verb", "verb", lambda s: s.verb),
    field("study", "study", lambda s: s.study),
    field("place", "place", lambda s: s.place, rank=2),
    field("gpu", "GPU", lambda s: s.gpu, rank=1),
    field("runs", "runs", lambda s: figure_cell(s.runs, str(s.runs)), right=True, rank=1),
    field("seconds", "GPU time", lambda s: figure_cell(s.seconds), unit="s", right=True),
    field("cost", "cost", lambda s: _money(s.cost), right=True, rank=1),
]


LIMITS: list[Field[SpendingLimit]] = [
    field("limit", "limit", lambda x: x.limit),
    field("spent", "spent", lambda x: _amount(x.spent, x.unit), right=True),
    field("most", "most", lambda x: _amount(x.most, x.unit) if x.most else NONE, right=True),
    field(
        "left", "left", lambda x: NONE if x.left is None else _amount(x.left, x.unit), right=True
    ),
]


def _money(cost: float) -> str:
    return f"{cost:.2f}" if cost else NONE


def _amount(value: float, unit: str) -> str:
    return f"{number(value)} {unit}".strip()


def status(found: Spending) -> list[Block]:
    limits = table("limits", LIMITS, found.limits)
    if not found.spent:
        return [Paragraph(words("nothing was spent yet")), limits]
    return [table("spent", SPENT, found.spent), limits]
