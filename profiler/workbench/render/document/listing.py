"""Studies and their variants, with what is recorded of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING

from workbench.render.document.blocks import (
    Block,
    Cell,
    Field,
    Section,
    Table,
    authored,
    code,
    field,
    figure_cell,
    first_clause,
    line,
    numeric,
    paragraph,
    table,
)
from workbench.render.numbers import number
from workbench.study.params import base_name
from workbench.words import NONE, Status
from workbench.words import shown as is_shown

if TYPE_CHECKING:  # `list` judges nothing: it need not import what does
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
    field("parent", "parent", lambda v: "reference" if v.reference else v.parent or NONE, rank=2),
    field("evidence", "evidence", lambda v: summary(v.evidence), rank=1),
    field(
        "change",
        "key change",
        lambda v: Cell(authored(v.key_change), short=first_clause(v.key_change)),
        rank=3,
    ),
]
PLACES: Field[Listed] = field("places", "where", lambda v: _places(v.evidence), rank=9)


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


def _of_modules(variants: Sequence[Listed]) -> list[Listed]:
    """The variant of each module without parameters, else its first, and how many others it has."""
    modules: dict[str, list[Listed]] = {}
    for one in variants:
        modules.setdefault(base_name(one.variant), []).append(one)
    found = []
    for name, every in modules.items():
        first = next((one for one in every if one.variant == name), every[0])
        more = f" (+{len(every) - 1})" if len(every) > 1 else ""
        found.append(replace(first, variant=first.variant + more))
    return found


def listing(listed: ListedStudy, *, wide: bool) -> Section:
    """One study: its shapes, and every variant with the state of its evidence."""
    fields = [*LISTED, PLACES] if wide else LISTED
    variants, default = listed.variants, listed.default_shape
    others = [shape for shape in listed.shapes if shape != default]
    text = ", ".join(others) if wide or len(others) < SHOWN else f"{len(others)} others (--wide)"
    known = f"shapes: {default} (default){', ' * bool(others)}{text}"
    rows = variants if wide else _of_modules(variants)
    shown = table("variants", fields, rows, key=lambda v: v.variant)
    changed = [
        paragraph(f"{v.variant}: changed since its evidence: {', '.join(v.changed)}")
        for v in variants
        if v.changed
    ]
    damaged = [
        paragraph(f"{v.variant} has a damaged capture at {each.shape} ({each.gpu}): {each.why}")
        for v in variants
        for each in v.evidence
        if each.why
    ]
    blocks: tuple[Block, ...] = (paragraph(known), shown, *changed, *damaged)
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
    field("place", "machine", lambda s: s.place, rank=2),
    field("gpu", "GPU", lambda s: s.gpu, rank=1),
    numeric("runs", "runs", lambda s: figure_cell(s.runs, str(s.runs)), rank=1),
    numeric("seconds", "seconds", lambda s: figure_cell(s.seconds)),
    numeric("cost", "cost", lambda s: f"{s.cost:.2f}" if s.cost else NONE, rank=1),
]


SHOWN = 4  # rows of what was spent, and shapes, where not all are asked for


def status(found: Spending, *, wide: bool) -> list[Block]:
    """Ten lines: the dearest rows, and the limit; ``wide`` all."""
    limits = [paragraph(_limit(each)) for each in found.limits]
    if not found.spent:
        return [paragraph("nothing was spent yet"), *limits]
    shown = found.spent if wide else found.spent[:SHOWN]
    left = f"{len(found.spent) - len(shown)} more: --wide"
    more = [paragraph(left)] if len(shown) < len(found.spent) else []
    return [*limits, table("spent", SPENT, shown), *more]


def _limit(found: SpendingLimit) -> str:
    """``120 s of 3600 s spent, 3480 s left (max_gpu_seconds)``."""
    if found.left is None or found.most is None:
        return f"{number(found.spent)} {found.unit} spent, no limit ({found.limit})"
    amounts = [f"{number(value)} {found.unit}" for value in (found.spent, found.most, found.left)]
    return f"{amounts[0]} of {amounts[1]} spent, {amounts[2]} left ({found.limit})"
