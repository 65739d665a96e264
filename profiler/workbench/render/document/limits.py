"""What limits a variant, the metric and line behind it, and why a step is faster or slower."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from workbench.derive.factors import SpeedupFactors
from workbench.derive.figures import (
    ISSUING,
    SAMPLES,
    UNSAMPLED,
    Figure,
    StallTime,
    TopStall,
    added,
    stall_label,
    standard_error,
    top_stall,
)
from workbench.judge.bottlenecks import ROOF, Bottleneck
from workbench.judge.comparison import Comparison
from workbench.judge.findings import Finding, sentence
from workbench.judge.ladder import Row
from workbench.render import doc
from workbench.render.numbers import (
    factor,
    number,
    percent,
    quantity,
    signed,
    times,
    unit_shown,
    with_unit,
    within,
)
from workbench.words import ABSENT, shown

SCOPES = {"global": "of the runtime", "local": "of the part that the rule covers"}


def of_several(limit: Bottleneck) -> doc.Text:
    """Return which kernel, where a call has several."""
    if limit.part >= 1:
        return ()
    return doc.line(" in ", doc.code(limit.kernel), f", {percent(limit.part)} of the durations")


def hot_line(limit: Bottleneck) -> doc.Text:
    """``; hottest line``, its place and share; empty where a rule names none."""
    hot = limit.hot_line
    if hot is None:
        return ()
    counter = "stall" if hot.counter == "stalls" else hot.counter.replace("_", " ")
    counted = counter if counter.startswith("excess") else f"{counter} samples"
    place = doc.code(f"{hot.file.rsplit('/', 1)[-1]}:{hot.line}")
    return doc.line("; hottest line ", place, f", {percent(hot.share)} of its {counted}")


def brief(limit: Bottleneck) -> doc.Text:
    """One line: the rule, its metric, NVIDIA's estimate and of what, and the hottest line."""
    if limit.scope == ROOF:
        text = f"at {percent(limit.value / 100)} of its peak ({limit.metric})"
        return doc.line(doc.strong(limit.title), f" {text}")
    is_rated = math.isfinite(limit.estimated_speedup_pct)
    text = f"NVIDIA estimates {limit.estimated_speedup_pct:.0f} % {SCOPES.get(limit.scope, '')}"
    value = f" = {number(limit.value)}" if math.isfinite(limit.value) else ""
    return doc.line(
        doc.strong(limit.title),
        of_several(limit),
        f": {limit.metric}{value}; {text if is_rated else 'no estimate'}",
        hot_line(limit),
    )


def bullets(limits: Sequence[Bottleneck]) -> doc.Bullets:
    return doc.bullets(map(brief, limits), ordered=True)


def no_lines(why_none: Finding | None) -> list[doc.Block]:
    """Why no line is named, where a capture has none."""
    why = sentence(why_none)
    return [doc.paragraph(f"{why[0].upper()}{why[1:]}.")] if why else []


GUIDE = "https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html"
LEAST_MEANT = 0.005  # of all samples
MEANINGS = {
    "barrier": "waits for other warps at a barrier",
    "branch_resolving": "waits for the target of a jump",
    "dispatch_stall": "is held back by the dispatcher",
    "drain": "waits for its stores before it ends",
    "imc_miss": "waits for constants that are not in the constant cache",
    "lg_throttle": "waits for room in the queue of global memory instructions",
    "long_scoreboard": "waits for data from global memory: L1, L2 or DRAM",
    "math_pipe_throttle": "waits for a busy arithmetic unit",
    "membar": "waits at a memory fence",
    "mio_throttle": "waits for room in the queue of shared memory instructions",
    "no_instructions": "waits for its next instruction to be fetched",
    "not_selected": "could go on, but another warp was chosen",
    "short_scoreboard": "waits for shared memory or the special function units",
    "wait": "waits a fixed number of cycles for the instruction before",
    "warpgroup_arrive": "waits for the registers of a matrix product (wgmma)",
}


def meanings(every: Iterable[Mapping[str, float]]) -> Iterator[doc.Block]:
    """The stall reasons of some variants in plain words, by their shares."""
    large = {name for stalls in every for name, share in stalls.items() if share >= LEAST_MEANT}
    if names := large & MEANINGS.keys():
        link = (doc.Span("Nsight Compute's guide", href=GUIDE),)
        yield doc.paragraph(
            "The stall reasons in plain words, after ", link, ". A warp that has one:"
        )
        yield doc.bullets(f"{stall_label(n)}: {MEANINGS[n]}" for n in sorted(names))


LEAST = 0.05  # points of a standard error that are shown


def samples(figures: Mapping[str, Figure]) -> float | None:
    """Warp state samples of a capture; None where not collected."""
    return figures[SAMPLES].value if SAMPLES in figures else None


def top_stall_of(row: Row) -> TopStall | None:
    """The reason with the largest share of all samples."""
    return top_stall(row.stalls, samples(row.figures))


def stall_words(name: str) -> str:
    if name == UNSAMPLED:
        return "not sampled"
    return "issuing, not stalled" if name == ISSUING else stall_label(name)


def share(value: float, error: float | None) -> str:
    """``13.8 ± 1.5 %``; without an error that is no tenth of a point."""
    if error is None or 100 * error < LEAST:
        return percent(value)
    return f"{100 * value:.1f} ± {100 * error:.1f} %"


def marked(value: float | None, unit: str) -> str:
    """A quantity without its unit; a share that cannot be has a mark."""
    return quantity(value, unit) + " *" * is_impossible(value, unit)


def figure_value(figure: Figure | None) -> str:
    return marked(figure.value, figure.unit) if figure else ABSENT


def figure_text(figure: Figure | None) -> str:
    return f"{figure_value(figure)} {unit_shown(figure.unit)}".strip() if figure else ABSENT


def is_impossible(value: float | None, unit: str) -> bool:
    return value is not None and unit == "%" and value >= 100.5


IMPOSSIBLE = "* over 100 %: ncu counted hits and lookups in different passes, which differ"


def share_of(value: float, figures: Mapping[str, Figure]) -> str:
    """A share of all samples of a capture, with its standard error."""
    return share(value, standard_error(value, samples(figures)))


UNCHANGED = 0.005  # a factor nearer to one than this is called the same
# Of a factor: its name above one, and below one.
WORDS = {
    "instructions": ("fewer instructions", "more instructions"),
    "issue_rate": ("higher issue rate", "lower issue rate"),
    "balance": ("more SMs", "fewer SMs"),
    "busiest": ("shorter start and end", "longer start and end"),
    "active": ("more time active", "less time active"),
    "clock": ("higher clock", "lower clock"),
}
STALLS_SHOWN = 6
UNITS_TOLD = ("%", "kB")  # others are in the label: "blocks 64 to 256 block" helps nobody


def equation(parts: SpeedupFactors) -> str:
    """Write the factors without what stayed as it was: ``4.65x = 1.22x (fewer instructions) × 3.87x
    (...)``.
    """
    changed = [part for part in parts.factors if abs(part.gain - 1) >= UNCHANGED]
    lines = [f"{factor(part.gain)} ({WORDS[part.id][part.gain < 1]})" for part in changed]
    why = f" = {' × '.join(lines)}" if lines else ", no factor of it beyond 0.5 %"
    return f"{factor(parts.ratio)}{why}"


def durations(parts: SpeedupFactors) -> str:
    return f"{number(parts.microseconds_before)} to {number(parts.microseconds_after)} µs under ncu"


def _sum(name: str, times: Sequence[StallTime]) -> StallTime:
    return StallTime(name, added(t.before for t in times), added(t.after for t in times))


def stall_table(pair: Comparison) -> doc.Table | None:
    """Return what the warps did: the reasons that changed most, the rest as one, and the duration,
    so that the columns add up; None without samples on both sides.
    """
    times = pair.stall_microseconds
    if not times:
        return None
    top, rest = times[:STALLS_SHOWN], times[STALLS_SHOWN:]
    rows = [*top, *[_sum("other", rest)] * bool(rest), _sum("", times)]
    fields: list[doc.Field[StallTime]] = [
        doc.Field("reason", "warp state", lambda t: _reason(t.reason)),
        doc.numeric("before", pair.before, lambda t: number(t.before), unit="µs"),
        doc.numeric("after", pair.after, lambda t: number(t.after), unit="µs"),
        doc.numeric("change", "change", lambda t: signed(t.change), unit="µs"),
    ]
    return doc.table("stall-times", fields, rows, key=lambda t: t.reason)


def _reason(name: str) -> str:
    return stall_words(name) if name else "all (the duration)"


MOST_COUNTERS, LEAST_COUNTERS = 5, 3
LARGE = 0.1  # of the logarithm of a factor that has a counter of its own


@dataclass(frozen=True)
class FigurePair:
    """None on a side that has not collected it."""

    label: str = field(repr=False)
    before: float | None
    after: float | None
    unit: str
    metric: str

    @property
    @shown
    def factor(self) -> float | None:
        """After over before; None from zero."""
        return self.after / self.before if self.before and self.after is not None else None


def figure_pairs(
    before: Mapping[str, Figure], after: Mapping[str, Figure]
) -> dict[str, FigurePair]:
    """Return pairs by the id of the figure."""
    pairs = {}
    for key, figure in {**after, **before}.items():
        old, new = (side[key].value if key in side else None for side in (before, after))
        pairs[key] = FigurePair(figure.label, old, new, figure.unit, figure.metric)
    return pairs


def counters(pair: Comparison) -> list[FigurePair]:
    """Return those that explain the largest factors: figures by their part in the change, then
    factors that none of them speaks of. Where little moved, what stayed as it was says so.
    """
    top = pair.largest_changes.figures[:MOST_COUNTERS]
    shown = [FigurePair(f.label, f.before, f.after, f.unit, f.metric) for f in top]
    factors = pair.decomposition.factors if pair.decomposition else ()
    for moved in sorted(factors, key=lambda moved: -abs(math.log(moved.gain))):
        metric = moved.metric.partition(" / (")[0]  # of an average scheduler
        new = all(counter.metric != metric for counter in shown)
        large = abs(math.log(moved.gain)) >= LARGE
        if new and (large or len(shown) < LEAST_COUNTERS):
            shown.append(FigurePair(moved.label, moved.before, moved.after, moved.unit, metric))
    return shown


def counter_table(
    shown: Sequence[FigurePair],
    names: tuple[str, str],
    name: str = "counters",
    text: Callable[[float | None, str], str] = quantity,
) -> doc.Table:
    """Figures before and after, with ncu's names; ``text`` makes one of a value and its unit."""
    fields: list[doc.Field[FigurePair]] = [
        doc.Field("figure", "under ncu", lambda c: with_unit(c.label, c.unit)),
        doc.numeric("before", names[0], lambda c: text(c.before, c.unit)),
        doc.numeric("after", names[1], lambda c: text(c.after, c.unit)),
        doc.numeric("factor", "factor", lambda c: times(c.before, c.after, c.unit)),
        doc.Field("metric", "metric", lambda c: doc.code(c.metric), rank=6),
    ]
    return doc.table(name, fields, shown)


def launch(pair: Comparison) -> str:
    """The launch parameters that changed, in a line."""
    return ", ".join(
        f"{within(m.label)} {_exact(m.before)} to {_exact(m.after)}"
        f"{f' {m.unit}' if m.unit in UNITS_TOLD else ''}"
        for m in pair.largest_changes.launch
    )


def _exact(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else number(value)


def account(pair: Comparison) -> list[doc.Block]:
    """All of a comparison, for a terminal."""
    blocks: list[doc.Block] = []
    if pair.decomposition:
        factors = pair.decomposition
        blocks.append(
            doc.paragraph(f"Against {pair.before}: {equation(factors)}, {durations(factors)}")
        )
    if times := stall_table(pair):
        blocks.append(times)
    blocks.append(counter_table(counters(pair), (pair.before, pair.after)))
    if pair.largest_changes.launch:
        blocks.append(doc.paragraph(f"Launch: {launch(pair)}."))
    return blocks
