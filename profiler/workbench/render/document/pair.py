"""Two variants, or two launches, side by side: the figures, and what the changed lines cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from workbench.derive.figures import MEMORY_LEVELS, Figure, figure_label
from workbench.derive.matching import LaunchPair
from workbench.derive.source_diff import SourceDiff
from workbench.judge.advice_rules import AdviceRecord
from workbench.judge.comparison import Comparison
from workbench.judge.findings import Finding, sentence, sentences
from workbench.judge.ladder import Row, VariantPair
from workbench.render.document import advice, hunks, launches, limits, variant, why
from workbench.render.document.blocks import (
    Block,
    Bullets,
    Callout,
    Field,
    Fold,
    Paragraph,
    Section,
    Table,
    code,
    field,
    line,
    numeric,
    paragraph,
    table,
    words,
)
from workbench.render.document.launches import Details, PairRead
from workbench.render.document.phrases import with_cycles
from workbench.render.document.timings import regimes_of, time_in
from workbench.render.numbers import times, with_unit
from workbench.words import ABSENT, BETWEEN, NONE, Regime, Status

SOURCE_HINT = "--source shows every hunk with what its lines cost"
Figures = Mapping[str, Figure]
Names = tuple[str, str]


Both = tuple[str, Figure | None, Figure | None]  # a figure on both sides, by its id


def figure_pairs(
    names: Names,
    before: Figures,
    after: Figures,
    keys: Sequence[str] = variant.SHOWN,
    name: str = "figures",
) -> Table:
    """One row a figure; what neither side has is "not collected" on both."""
    rows = [(key, before.get(key), after.get(key)) for key in keys]
    fields: list[Field[Both]] = [
        field("figure", "figure", lambda b: with_unit(*figure_label(b[0]))),
        numeric("before", names[0], lambda b: _value(b[1])),
        numeric("after", names[1], lambda b: _value(b[2])),
        numeric("factor", "factor", lambda b: _factor(*b[1:])),
    ]
    return table(name, fields, rows, key=lambda b: b[0])


def memory(names: Names, before: Figures, after: Figures) -> Fold:
    """Return what went through the memory hierarchy, without what stayed at zero; what was not
    collected is said.
    """
    parts = [key for key in MEMORY_LEVELS if not (_is_zero(key, before) and _is_zero(key, after))]
    shown = figure_pairs(names, before, after, parts, "memory")
    return Fold(words(variant.MEMORY), (shown,))


def _is_zero(key: str, side: Figures) -> bool:
    return key in side and side[key].value == 0


def _value(figure: Figure | None) -> str:
    return variant.figure_value(figure) if figure else ABSENT


def _factor(before: Figure | None, after: Figure | None) -> str:
    return times(before.value, after.value, after.unit) if before and after else NONE


def limiters(names: Names, *sides: Sequence[str]) -> Paragraph:
    """Return what limits the occupancy on either side."""
    parts = (f"{name} {', '.join(side) or ABSENT}" for name, side in zip(names, sides, strict=True))
    return paragraph(f"occupancy limited by: {'; '.join(parts)}")


def _compared(
    names: Names,
    sides: Sequence[Row | Details],
    pair: Comparison | None,
    changes: SourceDiff,
    *,
    source: bool,
) -> list[Block]:
    """Return what moved, and the figures of both; ``source`` leaves the costliest hunks to the
    diff.
    """
    old, new = (side.figures for side in sides)
    parts = [
        *(why.account(pair) if pair else []),
        figure_pairs(names, old, new),
        *variant.marked(old, new),
        memory(names, old, new),
        limiters(names, *(side.occupancy_limiters for side in sides)),
        bottlenecks(names, sides),
    ]
    return parts if source else [*parts, *costliest(changes, names)]


def variants(
    pair: VariantPair, changes: SourceDiff, record: AdviceRecord | None = None, *, source: bool
) -> list[Block]:
    rows, names = (pair.before, pair.after), (pair.before.variant, pair.after.variant)
    blocks: list[Block] = [
        paragraph(f"{names[1]} over {names[0]}, {BETWEEN}: {with_cycles(pair.speedup)}"),
        _times(pair),
        *(_state(row) for row in rows if row.problem or row.status != Status.CURRENT),
        *_compared(names, rows, pair.comparison, changes, source=source),
        *advice.to_try(rows[1].advice, record, names[1]),
    ]
    title = line(code(names[0]), " → ", code(names[1]))
    return [*comparable(pair.warnings), Section("pair", title, tuple(blocks))]


def kernels(launch: LaunchPair, read: PairRead, names: Names, *, source: bool) -> Section:
    """Two launches, as ``variants``."""
    sides = read.before, read.after
    both = " → ".join(dict.fromkeys((launch.before.kernel, launch.after.kernel)))
    parts = [
        *_compared(names, sides, read.comparison, read.lines, source=source),
        *advice.to_try(read.after.advice),
    ]
    title = f"{both}: launch {launch.before.index} → {launch.after.index}"
    return Section("pair", words(title), tuple(parts))


def comparable(warnings: Sequence[Finding]) -> list[Block]:
    """Why two sides are not quite comparable, where there is anything."""
    parts = tuple(map(words, sentences(warnings)))
    return [Callout("Not quite comparable", parts)] if parts else []


def bottlenecks(names: Names, sides: Sequence[Row | Details]) -> Fold:
    """List the bottlenecks of both sides, folded away."""
    blocks: list[Block] = []
    for name, side in zip(names, sides, strict=True):
        blocks.append(paragraph(f"{name}:"))
        if isinstance(side, Details):
            blocks += launches.bottlenecks(side)
        else:
            known = side.bottlenecks
            blocks.append(limits.bullets(known) if known else paragraph(ABSENT))
    return Fold(words("Top bottlenecks of both"), tuple(blocks))


def _state(row: Row) -> Paragraph:
    return paragraph(
        f"{row.variant} is {row.status}: {sentence(row.problem) or 'see workbench list'}"
    )


def _times(pair: VariantPair) -> Table:
    fields: list[Field[Regime]] = [
        field("time", "time", lambda regime: f"Time, {regime.label} (µs)"),
        numeric("before", pair.before.variant, partial(time_in, pair.before)),
        numeric("after", pair.after.variant, partial(time_in, pair.after)),
        numeric("ratio", "ratio", lambda regime: with_cycles(pair.speedups.get(regime))),
    ]
    return table("times", fields, regimes_of(pair.before, pair.after), key=lambda regime: regime)


def costliest(changes: SourceDiff, names: Names) -> list[Block]:
    """The dearest hunks in a line each, or why there are none."""
    if not changes.has_costs:
        return [paragraph(hunks.absences(changes, names))]
    if not changes.hunks:
        return [paragraph("the sources are the same")]
    count = len(changes.hunks)
    text = f"{count} hunk{'s' * (count != 1)}; stall time of the costliest ({SOURCE_HINT}):"
    return [paragraph(text), Bullets(hunks.costliest_lines(changes))]
