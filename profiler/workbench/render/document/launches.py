"""The launches of anyone's report: what a file holds, one launch whole, and two reports paired; and
two variants or launches side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from workbench.derive.figures import Figure, added
from workbench.derive.matching import MATCHED, LaunchGroup, LaunchPair, Matching, PairGroup
from workbench.derive.source_diff import SourceDiff
from workbench.judge.advice_rules import Advice, Spot
from workbench.judge.bottlenecks import Bottleneck
from workbench.judge.comparison import Comparison
from workbench.judge.findings import sentence, sentences
from workbench.judge.ladder import VariantPair
from workbench.judge.program_variants import ProgramStep
from workbench.judge.rows import Row
from workbench.ncu.catalog import figure_label
from workbench.ncu.report_file import Launch, Report
from workbench.render import doc
from workbench.render.doc import microseconds, number, percent, times, with_cycles, with_mark
from workbench.render.document import advice, hunks, variant
from workbench.render.document.variant import regimes_of, time_in
from workbench.words import ABSENT, BETWEEN, Regime, Status, grouped

KERNEL_WIDTH = 60
TITLE_WIDTH = 200
INDICES = 6
SIDES = ("before", "after")  # the names of files are too long to head a column
DETAILED = 3  # kernels shown in full where none was chosen


@dataclass(frozen=True)
class Details:
    """One launch read whole. ``rules_collected`` is false where ncu ran without its rules.
    ``nan`` of so many metrics are no number, counted where figures are missing.
    """

    launch: Launch
    figures: Mapping[str, Figure]
    stalls: Mapping[str, float]
    occupancy_limiters: tuple[str, ...]
    bottlenecks: tuple[Bottleneck, ...]
    rules_collected: bool
    advice: tuple[Advice, ...] | None = None
    hottest: Spot | None = field(default=None, repr=False)
    nan: tuple[int, int] = field(default=(0, 0), repr=False)


@dataclass(frozen=True)
class PairRead:
    """Two launches read whole, and compared."""

    before: Details
    after: Details
    comparison: Comparison
    lines: SourceDiff


def left_out(what: str, way: str) -> doc.Paragraph:
    return doc.paragraph(f"the {DETAILED} kernels with the most time are {what}; {way}")


def kernel(launch: Launch, width: int = KERNEL_WIDTH) -> str:
    """The signature where it is short, else the function's name."""
    text = launch.signature if len(launch.signature) <= width else launch.kernel
    shown = text if len(text) <= width else text[: width - 1] + "…"
    return shown if launch.kind == "kernel" else f"{shown} ({launch.kind})"


def extent(dimensions: tuple[int, ...] | None) -> str:
    """``256x8``: (x, y, z) without the ones at its end."""
    if dimensions is None:
        return ABSENT
    kept = list(dimensions)
    while len(kept) > 1 and kept[-1] == 1:
        kept.pop()
    return "x".join(map(str, kept))


def about(report: Report, side: str = "") -> doc.Paragraph:
    """One line: file, GPU, ncu, options, number of launches; ``side`` of a pair before it."""
    gpu = ", ".join(report.gpus) or f"GPU {ABSENT}"
    number = report.compute_capability
    capability = f" (compute capability {number})" if number else ""
    options = " ".join(f"{k} {v}" for k, v in report.ncu_options.items())
    count = len(report.launches)
    return doc.paragraph(
        f"{side and f'{side}: '}{report.name}: {gpu}{capability}, ncu {report.ncu or ABSENT}"
        f"{', ' + options if options else ''}; {count} launch{'es' * (count != 1)}"
    )


def indices(launches: Sequence[Launch]) -> str:
    shown = ", ".join(str(x.index) for x in launches[:INDICES])
    return shown + (f", ... ({len(launches)})" if len(launches) > INDICES else "")


def program(name: str, groups: Sequence[LaunchGroup], *, is_cut: bool) -> doc.Paragraph:
    """One line: how many kernels a program launched, and their time together."""
    count = len([launch for group in groups for launch in group.launches])
    kernels = len({group.typical.signature for group in groups})
    return doc.paragraph(
        f"{name}: {kernels} kernel{'s' * (kernels != 1)}, {count:,} launch{'es' * (count != 1)}, "
        f"{microseconds(total_of(groups))} on the GPU under ncu, which runs one kernel at a time"
        + "; later launches are not listed"
        * is_cut
    )


def total_of(groups: Sequence[LaunchGroup]) -> float:
    """The time of all launches that were timed."""
    return added(time for group in groups if (time := group.microseconds) is not None)


def group_table(
    groups: Sequence[LaunchGroup], every: Sequence[LaunchGroup] | None = None
) -> doc.Table:
    """One row per kernel and launch shape; ``time`` is of all its launches that were timed, and its
    share is of ``every`` group's.
    """
    total = total_of(every or groups)
    fields: list[doc.Field[LaunchGroup]] = [
        doc.Field("launch", "launch", lambda g: indices(g.launches), rank=1),
        doc.Field("kernel", "kernel", lambda g: kernel(g.typical)),
        doc.Field("grid", "grid", lambda g: extent(g.typical.grid), rank=4),
        doc.Field("block", "block", lambda g: extent(g.typical.block), rank=4),
        doc.numeric("median", "median (µs)", lambda g: number(g.typical.microseconds), rank=3),
        doc.numeric("time", "time (µs)", lambda g: number(g.microseconds), rank=2),
        doc.numeric("share", "share", lambda g: _share(g.microseconds, total), rank=2),
    ]
    return doc.table("kernels", fields, groups)


def program_ladder(steps: Sequence[ProgramStep]) -> doc.Table:
    """One row per variant of a program, with counters of its kernel with the most time."""

    def counter(key: str, label: str) -> doc.Field[ProgramStep]:
        return doc.numeric(key, label, lambda s: number(s.kept.figures.get(key)), rank=4)

    fields: list[doc.Field[ProgramStep]] = [
        doc.Field("variant", "variant", lambda s: s.kept.variant),
        doc.numeric("time", "kernels (µs)", lambda s: number(s.microseconds), rank=1),
        doc.Field("ratio", "speedup", lambda s: with_cycles(s.speedup_over_parent), rank=1),
        doc.Field("verdict", "verdict", lambda s: s.verdict.label),
        doc.Field("kernel", "first kernel", lambda s: s.kept.kernel[:KERNEL_WIDTH], rank=3),
        counter("memory_pct", "memory (%)"),
        counter("compute_pct", "compute (%)"),
        counter("achieved_occupancy", "occupancy (%)"),
        counter("registers", "registers"),
        doc.Field("report", "report", lambda s: s.kept.report, rank=5),
    ]
    return doc.table("variants", fields, steps)


def of_all(group: LaunchGroup, groups: Sequence[LaunchGroup]) -> str:
    """The time of its launches, and their share of all that were timed."""
    share = _share(group.microseconds, total_of(groups))
    return f", {microseconds(group.microseconds)}, {share} of the time"


def untimed(groups: Sequence[LaunchGroup]) -> list[doc.Block]:
    """Return which launches the times and shares of ``group_table`` do not count."""
    lost = [x for group in groups for x in group.launches if x.microseconds is None]
    text = f"duration {ABSENT} of launch {indices(lost)}: times and shares are of the others"
    return [doc.paragraph(text)] if lost else []


def _share(time: float | None, total: float | None) -> str:
    return percent(time / total) if time is not None and total else ABSENT


LOST = 0.1  # of a launch's metrics that are NaN, from which on that is no single counter's


def details(read: Details, launches: int = 1, *, short: bool = False) -> doc.Section:
    """Figures with their metrics, stalls and bottlenecks of one launch, of so many alike; in
    ``short`` what limits it, and what to try. Where many metrics are NaN: how many, and why.
    """
    launch, (count, every) = read.launch, read.nan
    parts: list[doc.Block] = []
    if count > LOST * every:
        why = "the launch failed under ncu, or another profiler had the counters: profile it again"
        parts.append(doc.paragraph(f"{count} of {every} metrics are NaN: {why}"))
    parts += advice.first_look(read.advice, read.hottest)
    title = kernel(launch, TITLE_WIDTH)
    if not short:
        if launch.signature not in (launch.kernel, title):
            parts.append(doc.paragraph(f"signature: {launch.signature}"))
        parts += variant.profile(read.figures, read.stalls, read.occupancy_limiters)
        parts.append(doc.paragraph("Top bottlenecks:"))
        if not read.rules_collected:
            stand_in = "; the top stalls instead:" if read.bottlenecks else ""
            parts.append(doc.paragraph(f"ncu's rules: {ABSENT}{stand_in}"))
        elif not read.bottlenecks:
            parts.append(doc.paragraph("no rule advises a change"))
        if read.bottlenecks:
            parts.append(variant.bottlenecks(read.bottlenecks))
        if launches > 1:
            parts.append(doc.paragraph(f"one of {launches} launches: the one of median duration"))
    heading = doc.line(f"launch {launch.index}: ", doc.code(title))
    return doc.section(f"launch-{launch.index}", heading, *parts)


PAIRS: list[doc.Field[PairGroup]] = [
    doc.Field("launch", "launch", lambda g: _launches(g), rank=2),
    doc.Field("kernel", "kernel", lambda g: _either(g, kernel)),
    doc.Field("shape", "grid / block", lambda g: _either(g, _shape), rank=4),
    doc.numeric("before", "before (µs)", lambda g: number(g.typical.before.microseconds), rank=1),
    doc.numeric("after", "after (µs)", lambda g: number(g.typical.after.microseconds), rank=1),
    doc.numeric("factor", "factor", lambda g: _factor(g), rank=1),
    doc.Field("how", "matched by", lambda g: MATCHED[g.typical.how], rank=3),
]


def _launches(group: PairGroup) -> str:
    sides = ([p.before for p in group.pairs], [p.after for p in group.pairs])
    return " → ".join(map(indices, sides))


def _either(group: PairGroup, of: Callable[[Launch], str]) -> str:
    """Once where both sides are alike."""
    pair = group.typical
    return " → ".join(dict.fromkeys((of(pair.before), of(pair.after))))


def _shape(launch: Launch) -> str:
    return f"{extent(launch.grid)} / {extent(launch.block)}"


def _factor(group: PairGroup) -> str:
    pair = group.typical
    return times(pair.before.microseconds, pair.after.microseconds)


def unmatched(matching: Matching, names: tuple[str, str]) -> list[doc.Block]:
    """Sentences naming the launches that only one report has."""
    blocks: list[doc.Block] = []
    for name, launches in zip(names, (matching.only_before, matching.only_after), strict=True):
        kinds = grouped((f"{kernel(launch)} ({_shape(launch)})", launch) for launch in launches)
        blocks += [
            doc.paragraph(f"only in {name}: {text}, launch {indices(members)}")
            for text, members in kinds.items()
        ]
    return blocks


SOURCE_HINT = "--source shows every hunk with what its lines cost"
Figures = Mapping[str, Figure]
Names = tuple[str, str]


def figure_pairs(names: Names, before: Figures, after: Figures) -> doc.Table:
    """One row a figure; what neither side has is "not collected" on both."""
    pairs = variant.figure_pairs(before, after)
    for key in variant.SHOWN:
        label, unit = figure_label(key)
        pairs.setdefault(key, variant.FigurePair(label, None, None, unit, ""))
    shown = [pairs[key] for key in variant.SHOWN]
    return variant.counter_table(shown, names, "figures", with_mark)


def limiters(names: Names, *sides: Sequence[str]) -> doc.Paragraph:
    """Return what limits the occupancy on either side."""
    parts = (f"{name} {', '.join(side) or ABSENT}" for name, side in zip(names, sides, strict=True))
    return doc.paragraph(f"occupancy limited by: {'; '.join(parts)}")


def _compared(
    names: Names,
    sides: Sequence[Row | Details],
    pair: Comparison | None,
    changes: SourceDiff,
    *,
    source: bool,
) -> list[doc.Block]:
    """Return what moved, and the figures of both; ``source`` leaves the costliest hunks to the
    diff.
    """
    old, new = (side.figures for side in sides)
    parts = [
        *(variant.account(pair) if pair else []),
        figure_pairs(names, old, new),
        *variant.marked(old, new),
        limiters(names, *(side.occupancy_limiters for side in sides)),
    ]
    if source:
        return parts
    if not changes.has_costs:
        return [*parts, doc.paragraph(hunks.absences(changes, names))]
    if not changes.hunks:
        return [*parts, doc.paragraph("the sources are the same")]
    count = len(changes.hunks)
    text = f"{count} hunk{'s' * (count != 1)}; stall time of the costliest ({SOURCE_HINT}):"
    return [*parts, doc.paragraph(text), doc.bullets(hunks.costliest_lines(changes))]


def variants(pair: VariantPair, changes: SourceDiff, *, source: bool) -> list[doc.Block]:
    rows, names = (pair.before, pair.after), (pair.before.variant, pair.after.variant)
    blocks: list[doc.Block] = [
        doc.paragraph(f"{names[1]} over {names[0]}, {BETWEEN}: {with_cycles(pair.speedup)}"),
        _times(pair),
        *(
            doc.paragraph(
                f"{r.variant} is {r.status}: {sentence(r.problem) or 'see workbench list'}"
            )
            for r in rows
            if r.problem or r.status != Status.CURRENT
        ),
        *_compared(names, rows, pair.comparison, changes, source=source),
        advice.to_try(rows[1].advice, names[1]),
    ]
    title = doc.line(doc.code(names[0]), " → ", doc.code(names[1]))
    return [*doc.warned(sentences(pair.warnings)), doc.section("pair", title, *blocks)]


def kernels(launch: LaunchPair, read: PairRead, names: Names, *, source: bool) -> doc.Section:
    """Two launches, as ``variants``."""
    sides = read.before, read.after
    both = " → ".join(dict.fromkeys((launch.before.kernel, launch.after.kernel)))
    parts = [
        *_compared(names, sides, read.comparison, read.lines, source=source),
        advice.to_try(read.after.advice),
    ]
    title = f"{both}: launch {launch.before.index} → {launch.after.index}"
    return doc.section("pair", title, *parts)


def _times(pair: VariantPair) -> doc.Table:
    fields: list[doc.Field[Regime]] = [
        doc.Field("time", "time", lambda regime: f"Time, {regime.label} (µs)"),
        doc.numeric("before", pair.before.variant, partial(time_in, pair.before)),
        doc.numeric("after", pair.after.variant, partial(time_in, pair.after)),
        doc.numeric("ratio", "ratio", lambda regime: with_cycles(pair.speedups.get(regime))),
    ]
    return doc.table("times", fields, regimes_of(pair.before, pair.after))
