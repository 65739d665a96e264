"""What a change did: every variant with its verdict, and what moved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from workbench.judge.commits import VariantChange
from workbench.judge.comparison import Difference
from workbench.render.document.blocks import (
    Block,
    Field,
    Marking,
    Paragraph,
    Section,
    Text,
    code,
    field,
    line,
    strong,
    table,
    words,
)
from workbench.render.document.sentences import difference_label, sentence
from workbench.render.numbers import number
from workbench.words import NONE, Move

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
    field("where", "where", lambda c: _place(c), rank=3),
]
FINDINGS: list[Field[Moved]] = [
    field("variant", "variant", lambda m: m[0]),
    field("kernel", "kernel", lambda m: m[1].kernel or NONE, rank=3),
    field("what", "what", lambda m: difference_label(m[1].what)),
    field("before", "before", lambda m: shown(m[1].before), right=True, rank=1),
    field("after", "after", lambda m: shown(m[1].after), right=True, rank=1),
]


def shown(value: float | str) -> str:
    return value or NONE if isinstance(value, str) else number(value, 4)


def _place(change: VariantChange) -> Text:
    return code(f"{change.spot.file}:{change.spot.line}") if change.spot else words(NONE)


def gate(said: str, studies: Mapping[str, Sequence[VariantChange]], *, wide: bool) -> list[Block]:
    """``said`` is the verdict in a line; of what is the same there is a line a study, or all."""
    told: list[Block] = [Paragraph(strong(said))]
    for study, changes in studies.items():
        told.append(Section(study, code(study), tuple(_study(changes, wide))))
    return told


def _study(changes: Sequence[VariantChange], wide: bool) -> Iterator[Block]:
    same = [change for change in changes if change.verdict == Move.SAME]
    listed = [change for change in changes if wide or change.verdict != Move.SAME]
    if listed:
        key, kind = (lambda c: c.variant), (lambda c: KINDS.get(c.verdict, Marking.PLAIN))
        yield table("changes", CHANGES, listed, key=key, kind=kind)
    if same and not wide:
        yield Paragraph(words(f"same: {', '.join(change.variant for change in same)}"))
    if stale := ", ".join(change.variant for change in same if change.stale):
        why = (
            "evidence belongs to whole files, comments included. `workbench ablate` measures again"
        )
        yield Paragraph(words(f"the recorded evidence of {stale} is stale now: {why}"))
    moved = [(c.variant, one) for c in listed for one in c.differences]
    if moved:
        yield table("moved", FINDINGS, moved if wide else moved[:SHOWN], key=lambda m: m[0])
    if len(moved) > SHOWN and not wide:
        yield Paragraph(words(f"and {len(moved) - SHOWN} more: --wide shows all"))
    for change in listed:
        for found in change.also:
            yield Paragraph(line(code(change.variant), f": {sentence(found)}"))
