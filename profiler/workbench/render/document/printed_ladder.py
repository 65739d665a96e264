"""The ladder: ``screen`` and ``whole`` as ``ablate`` prints it, the columns of its table for every
output, and what is said of a row and of a shape wherever one is named.

A column has one key, one heading, one value and one text. Terminal, pipe, Markdown report and page
print the text. CSV, JSON, ``--brief`` and the DataFrames of the library have the value under the
key. ``where`` says which of them have the column. To add a column, add an entry to ``COLUMNS``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import Any

from workbench.derive.factors import SpeedupFactors
from workbench.derive.figures import Figure, TopStall, stall_label, top_stall
from workbench.derive.speedup import Ratio
from workbench.judge.across import AtShape
from workbench.judge.findings import Gate, sentence, sentences
from workbench.judge.gates import ACCURATE, CORRECT, FASTER, PARENT_UNTIMED, RECORDINGS, shows_bug
from workbench.judge.ladder import Ablation
from workbench.judge.predictions import Score
from workbench.judge.rows import Row
from workbench.judge.session_checks import TimingFacts
from workbench.judge.time_checks import KERNELS
from workbench.ncu.catalog import SAMPLES
from workbench.render import doc
from workbench.render.doc import (
    INTERVAL,
    at_level,
    ends,
    factor,
    fine,
    interval,
    number,
    percent,
    ratio,
    share,
    spread,
    time_words,
    took,
    with_cycles,
)
from workbench.render.text import shorten
from workbench.study.model import base_name
from workbench.words import (
    ABSENT,
    BETWEEN,
    NONE,
    WITHOUT,
    CheckResult,
    GateState,
    NodeKind,
    Origin,
    Regime,
    Role,
    Status,
    Verdict,
    grouped,
)

MOST_SIZES = 6  # of a screen


def screen(ablation: Ablation, named: Sequence[str] = ()) -> list[doc.Block]:
    """The answer, the rows that lead to it and the ``named`` ones, other sizes if they are few, and
    the references.
    """
    rows = ablation.rows_with(named)
    above = [doc.paragraph(answer(ablation)), *doc.warned(sentences(ablation.damage))]
    table = ladder_table(ablation, Where.SCREEN, rows)
    few = ablation.across is not None and len(ablation.across.shapes) <= MOST_SIZES
    sizes = sizes_table(ablation) if few else []
    references = ", ".join(f"{name} {number(us)}" for us, name in by_time(ablation.references))
    lines = [f"references (µs): {references}"] * bool(references)
    counts = {"more step": len(ablation.rows) - len(rows), "warning": len(warnings(ablation))}
    more = [f"{n} {what}{'s' * (n != 1)}" for what, n in counts.items() if n]
    lines += [f"{', '.join(more)}: --all"] * bool(more)
    return [*above, table, *sizes, doc.CodeBlock("\n".join(lines))]


def whole(ablation: Ablation) -> list[doc.Block]:
    """All rows and columns, how the ladder multiplies out, how its predictions came out, and the
    controls; warnings at the end.
    """
    blocks: list[doc.Block] = [doc.paragraph(answer(ablation)), origin(ablation)]
    blocks.append(ladder_table(ablation))
    if ablation.whole and ablation.whole.decomposition:
        both = f"{ablation.whole.before} to {ablation.whole.after} under ncu"
        blocks.append(doc.paragraph(f"{both}: {equation(ablation.whole.decomposition)}"))
    if ablation.score.total:
        blocks.append(doc.paragraph(f"predictions: {results(ablation.score)}"))
    if checks := controls(ablation.timing):
        blocks.append(doc.paragraph(checks))
    return [*blocks, *map(doc.paragraph, calls(ablation)), *doc.warned(warnings(ablation))]


NAMES = (
    "One Two Three Four Five Six Seven Eight Nine Ten Eleven Twelve Thirteen Fourteen Fifteen "
    "Sixteen Seventeen Eighteen Nineteen Twenty"
)
COUNTS = dict(enumerate(NAMES.split(), start=1))


def answer(ablation: Ablation) -> doc.Text:
    """The fastest kept step beside the references and the baseline, and where it was measured."""
    best, first = ablation.best, ablation.rows[0] if ablation.rows else None
    if best is None or first is None:
        return doc.line("No variant has a current time that counts: there is no result yet.")
    opening = doc.line(doc.code(best.variant), f" takes {took(best.time)} per call")
    if best.variant == first.variant:
        opening = doc.line("No step was kept: ", opening)
    speeds = list(_speeds(ablation, best, first))
    result = doc.strong(doc.line(opening, ": " * bool(speeds), doc.joined(speeds), "."))
    parts: list[str | doc.Text] = [result, *over_sizes(ablation)]
    reference, error = doc.code(ablation.reference), best.accuracy
    if error is not None:
        parts += [f" Its largest error is {factor(error.times_reference)} that of ", reference, "."]
    elif any(g.name == CORRECT and g.why.values.get("max_error") == 0 for g in best.gates):
        parts.append(" Its results are exact.")
    elif ablation.reference:
        parts += [" Its error beside that of ", reference, f" is {ABSENT}."]
    parts += [_at_power_limit(best), _claim(ablation), " Study ", doc.code(ablation.study)]
    when = "measured" if ablation.source == Origin.MEASURED else "recorded"
    count = ablation.recordings.total
    runs = f", {count} timing run{'s' * (count != 1)}" if count else ""
    date = ablation.date or "on an unknown date"
    return doc.line(*parts, f" at {table_size(ablation)}, {ablation.gpu}, {when} {date}{runs}.")


def _speeds(ablation: Ablation, best: Row, first: Row) -> Iterator[str]:
    """Over the fastest reference with its interval, the primary one and the baseline."""
    rows = {row.variant: row for row in (*ablation.references, first)}
    over = {best.chained.fastest or ablation.reference: best.over_fastest}
    over.setdefault(ablation.reference, best.over_reference)
    over.setdefault(first.variant, best.over_baseline)
    for n, (name, value) in enumerate(over.items()):
        if name in ("", best.variant) or name not in rows:
            continue
        row = rows[name]
        if value is None and row.time is None:
            continue
        what = row.title if row.is_reference and row.title else name
        if value is None:
            yield f"its speed relative to {what} ({took(row.time)}) is {ABSENT}"
            continue
        shown = f"{with_cycles(value)} the speed of" if n == 0 else f"{ratio(value)} that of"
        yield f"{shown} {what} ({took(row.time)})"


def over_sizes(ablation: Ablation) -> Iterator[str | doc.Text]:
    """From the largest to the smallest speed at the other sizes, and which that is."""
    across = ablation.across
    every = across.shapes if across else ()
    others = [each for each in every if each.claimed and each.shape != ablation.shape]
    ranked = sorted(others, key=lambda each: -each.claimed.ratio if each.claimed else 0.0)
    if across is None or not ranked:
        return
    most, least = ranked[0], ranked[-1]
    count = len(ranked)
    sizes = COUNTS.get(count, str(count)) + f" other size{'s' * (count > 1)}"
    yield f" {sizes}"
    if ablation.best is None or across.variant != ablation.best.variant:
        yield doc.line(", by ", doc.code(across.variant))
    first = f"{ratio(most.claimed)} to " if count > 1 else ""
    where = shape_name(least.shape, ablation)
    yield f": {first}{ratio(least.claimed)} the fastest reference's speed ({where})."


def _at_power_limit(best: Row) -> str:
    """``1.16x, also without other kernels``; both where they differ, of which the smaller
    counts. Empty where it was not timed alone.
    """
    in_turn, alone, claimed = best.over_fastest, best.alone.speedup_over_fastest, best.claimed
    if in_turn is None or alone is None or claimed is None:
        return ""
    both = f"{fine(in_turn.ratio)} {BETWEEN}, {interval(alone)} {WITHOUT}"
    both += f"; {fine(claimed.ratio)} counts"
    if fine(in_turn.ratio) == fine(alone.ratio):
        absent = " (that figure has no interval)" if alone.low is None else ""
        both = f"{fine(alone.ratio)}, also {WITHOUT}{absent}"
    return f" The GPU was at its power limit: {both}."


def _claim(ablation: Ablation) -> str:
    """Return what another run is expected to show of the first of these ratios."""
    claimed = ablation.claimed
    if claimed is None:
        return ""
    if claimed.between is None:
        return " The interval covers this run only."
    later = interval(Ratio(claimed.ratio, claimed.later_low, claimed.later_high))
    is_one = claimed.recordings == 1
    basis = "this run" if is_one else f"{claimed.recordings} runs on {claimed.gpus} GPUs"
    if is_one or claimed.between_of:
        basis += (
            f" and the spread of others{f' on {claimed.between_of}' * bool(claimed.between_of)}"
        )
    return f" Expected of another run: {later}, by {basis}."


def origin(ablation: Ablation) -> doc.Paragraph:
    """Return where the figures come from: the first thing a reader must know."""
    ncu = ablation.environment.ncu
    shape = " ".join(f"{k}={v}" for k, v in ablation.parameters.items())
    return doc.paragraph(
        f"{ablation.source} evidence: {ablation.gpu}, {ablation.date or 'no date'}, ncu {ncu}; "
        f"{ablation.study} at {ablation.shape}{f' ({shape})' if shape else ''}"
    )


def controls(facts: TimingFacts | None) -> str:
    """Whether variants disturb each other, and ``A/A controls: baseline 1.003 (0.994 to 1.011)``;
    empty without either.
    """
    if facts is None:
        return ""
    shown = []
    for control in facts.controls:
        ratio, ends = control.ratio, ABSENT
        if ratio.low is not None and ratio.high is not None:
            ends = f"{number(ratio.low, 4)} to {number(ratio.high, 4)}{at_level(ratio)}"
        if control.regime == Regime.CHAINED:
            shown.append(f"{control.variant} {number(ratio.ratio, 4)} ({ends})")
    parts = [sentence(facts.interference.said())] if facts.interference else []
    return "; ".join([*parts, *[f"A/A controls: {', '.join(shown)}"] * bool(shown)])


def results(score: Score) -> str:
    """All that count, by result, and those written before the first measurement."""
    again = f"; {score.restated} that restate another do not count" if score.restated else ""
    return (
        f"{score.confirmed} confirmed, {score.refuted} refuted, {score.not_measurable} not "
        f"measurable (of {score.before} written before the first measurement, "
        f"{score.confirmed_before} confirmed{again})"
    )


UNCHANGED = 0.005  # a factor nearer to one than this is called the same
# Of a factor: its name above one, and below one.
FACTOR_WORDS = {
    "instructions": ("fewer instructions", "more instructions"),
    "issue_rate": ("higher issue rate", "lower issue rate"),
    "balance": ("more SMs", "fewer SMs"),
    "busiest": ("shorter start and end", "longer start and end"),
    "active": ("more time active", "less time active"),
    "clock": ("higher clock", "lower clock"),
}


def equation(parts: SpeedupFactors) -> str:
    """Write the factors without what stayed as it was: ``4.65x = 1.22x (fewer instructions) × 3.87x
    (...)``.
    """
    changed = [part for part in parts.factors if abs(part.gain - 1) >= UNCHANGED]
    lines = [f"{factor(part.gain)} ({FACTOR_WORDS[part.id][part.gain < 1]})" for part in changed]
    why = f" = {' × '.join(lines)}" if lines else ", no factor of it beyond 0.5 %"
    return f"{factor(parts.ratio)}{why}"


def durations(parts: SpeedupFactors) -> str:
    return f"{number(parts.microseconds_before)} to {number(parts.microseconds_after)} µs under ncu"


def calls(ablation: Ablation) -> tuple[doc.Text, ...]:
    """Return which references are more than a kernel, in one sentence each kind of call."""
    calls = ((call, row.variant) for row in ablation.references if (call := call_of(row)))
    return tuple(
        doc.line("A call of ", doc.codes(of, " or "), f" is {call}.")
        for call, of in grouped(calls).items()
    )


def call_of(row: Row) -> str:
    """``a memset and a kernel``: what one call is made of, where it is more than one kernel; else
    empty.
    """
    kinds = [node.kind for node in row.call]
    if not kinds or kinds == [NodeKind.KERNEL]:
        return ""
    counts = Counter(kinds)
    named = [f"a {kind}" if n == 1 else f"{n} {kind}s" for kind, n in counts.items()]
    return " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))


def warnings(ablation: Ablation) -> tuple[doc.Text, ...]:
    untimed = ablation.across.untimed.items() if ablation.across else ()
    return (
        *(doc.line(sentence(warning)) for warning in ablation.warnings),
        *(
            doc.line(doc.code(name), " was not timed at ", doc.codes(at), ".")
            for name, at in untimed
        ),
        *stale(ablation),
    )


def stale(ablation: Ablation) -> Iterator[doc.Text]:
    stale = [row.variant for row in ablation.everything if row.status == Status.STALE]
    if stale:
        why = " (sources changed since their measurement)"
        yield doc.line("stale, not shown: ", doc.codes(stale), why)


def sizes_table(ablation: Ablation) -> list[doc.Block]:
    """The last step at every shape where it was timed, if those are several; its rate is of bytes
    where those count, and of both where shapes differ in that.
    """
    if not ablation.across or not ablation.has_sizes:
        return []
    results = ablation.across.shapes
    counts = {result.is_traffic for result in results}
    common = {
        key: value
        for key, value in results[0].parameters.items()
        if value is not False and all(each.parameters.get(key) == value for each in results)
    }
    shape = f"shape ({shape_words(common)})" if common else "shape"

    def size(at: AtShape) -> str:
        """The parameters of a shape, behind its name where that says more."""
        named = "" if shape_name(at.shape, ablation) != at.shape else f"{at.shape}: "
        return named + shape_words({k: v for k, v in at.parameters.items() if k not in common})

    fields: list[doc.Field[AtShape]] = [
        doc.Field("shape", shape, size),
        doc.numeric("time", "time", lambda s: number(s.microseconds.value), unit="µs"),
        doc.numeric("rate", "TFLOP/s", lambda s: number(s.flops_per_second / 1e12)),
        doc.numeric("traffic", "TB/s", lambda s: number(s.terabytes_per_second)),
        doc.Field("reference", "fastest reference", _reference, unit="µs"),
        doc.numeric("ratio", "vs it [95 % interval]", _over),
        doc.numeric("error", "error ÷ reference's", _error),
    ]
    absent = {
        "rate": counts == {True},
        "traffic": True not in counts,
        "error": all(result.accuracy is None for result in results),
    }
    columns = [field for field in fields if not absent.get(field.key)]
    limited = any(result.alone for result in results)
    return [doc.table("shapes", columns, results), *[doc.paragraph(ALONE)] * limited]


def _reference(at: AtShape) -> str:
    time = at.reference_microseconds
    return f"{at.fastest} {number(time.value)}" if time else ABSENT


def _over(at: AtShape) -> str:
    """The claimed ratio, and that it was measured alone."""
    is_alone = at.claimed is not None and at.claimed is not at.speedup_over_fastest
    return interval(at.claimed) + " alone" * is_alone


def _error(at: AtShape) -> str:
    return ABSENT if at.accuracy is None else factor(at.accuracy)


ALONE = (
    "Alone: measured without other kernels, which is done at the power limit. The smaller of both "
    "ratios counts."
)


def by_time(rows: Iterable[Row]) -> list[tuple[float, str]]:
    """The times of the rows that were timed, with their names, the shortest first."""
    return sorted((row.time.value, row.variant) for row in rows if row.time)


class Where(StrEnum):
    """An output, or a part of one, that has a ladder."""

    SCREEN = "terminal, pipe"
    REPORT = "report"
    PAGE = "page, --all"
    TRY = "try"
    CSV = "CSV, DataFrame"
    JSON = "JSON"
    BRIEF = "--brief"
    BRIEF_VARIANT = "--brief of one variant"


TEXT = frozenset({Where.SCREEN, Where.REPORT, Where.PAGE, Where.TRY})
DATA = frozenset({Where.CSV, Where.JSON})
EVERYWHERE = frozenset(Where)
LADDERS = EVERYWHERE - {Where.TRY}
DETAILS = DATA | {Where.PAGE}
WHOLE = 60  # of a text that is never cut
NAME_WIDTH = 14  # of a name that stands below its module's
STALLS = "smsp__pcsamp_warps_issue_stalled_*, share of their sum"
OF_REFERENCES = ("speedup_over_reference", "speedup_over_fastest", "accuracy")


@dataclass(frozen=True)
class ShownRows:
    """The rows of a table, and what its cells and headings take from all of them."""

    ablation: Ablation
    rows: Sequence[Row]
    where: Where = Where.PAGE

    @cached_property
    def short_names(self) -> Mapping[str, str]:
        """Names for a narrow column: a variant below another of its module by its parameters."""
        names, above = {}, ""
        for row in self.rows:
            base, parent = base_name(row.variant), parent_of(row)
            parameters = _parameters(row.variant)
            inherited = _parameters(parent) if base_name(parent) == base else []
            new = [each for each in parameters if each not in inherited] or parameters
            inner = f"{'…' if len(new) < len(parameters) else ''}{','.join(new)}"
            names[row.variant] = shorten(f"{base} {inner}", NAME_WIDTH)
            if base == above and parameters:
                names[row.variant] = f" {shorten(inner, NAME_WIDTH - 1)}"
            above = base
        return names

    @cached_property
    def fastest(self) -> str:
        """The fastest reference where it is the same one for all rows."""
        names = {row.chained.fastest for row in self.rows} - {""}
        return names.pop() if len(names) == 1 else "fastest reference"


@dataclass(frozen=True)
class LadderColumn:
    """A column of the ladder.

    ``value`` is what data formats have of a row, None where it was not collected. ``text`` makes
    the cell; without it the cell is the value. ``rank`` orders columns by how much a reader needs
    them, 0 first: in a narrow terminal the highest go. Of a row without current evidence a
    ``measured`` column has a dash. ``source`` names the metric or the file.
    """

    key: str
    heading: str
    explanation: str
    value: Callable[[Row], Any]
    where: frozenset[Where]
    rank: int = 9
    unit: str = ""
    text: Callable[[Row, ShownRows], doc.Content] | None = None
    is_number: bool = True
    measured: bool = True
    note: str = ""
    least: int = 16
    source: Callable[[Ablation], str] = lambda _: ""

    def cell(self, shown: ShownRows, row: Row) -> doc.Cell:
        if self.measured and not has_figures(row):
            return doc.cell(NONE)
        value = self.value(row)
        content: doc.Content
        if self.text:
            content = self.text(row, shown)
        elif isinstance(value, Mapping):
            content = fine(value["ratio"])
        else:
            content = value if isinstance(value, str) else number(value)
        first = next(iter(value.values())) if isinstance(value, Mapping) else value
        sort = first if isinstance(first, int | float | str) else None
        return replace(doc.as_cell(content), sort=sort)

    def field(self, shown: ShownRows) -> doc.Field[Row]:
        """As a column of a table; its tooltip on the page is the explanation and the source."""
        names = {"reference": shown.ablation.reference, "fastest": shown.fastest}
        source = self.source(shown.ablation)
        return doc.Field(
            self.key,
            self.heading.format(**names),
            partial(self.cell, shown),
            self.unit,
            self.is_number,
            self.rank,
            source=f"{self.explanation} ({source})" if source else self.explanation,
            note=self.note,
            least=self.least,
        )


# ---- values and texts
def _values(record: object | None) -> dict[str, object] | None:
    return None if record is None else vars(record)


def _time(row: Row) -> dict[str, object] | None:
    return {k: v for k, v in vars(row.time).items() if k != "unchecked"} if row.time else None


def _has_parent(row: Row) -> bool:
    return row.verdict != Verdict.BASELINE and not row.is_reference and row.role != Role.START


def _parent(row: Row) -> Ratio | None:
    return row.over_parent if _has_parent(row) else None


def _parent_text(row: Row, _: ShownRows) -> doc.Content:
    if not _has_parent(row):
        return NONE
    over = _parent(row)
    return doc.cell(fine(over.ratio), note=ends(over)) if over else ABSENT


def _cycles(row: Row) -> float | None:
    over = _parent(row)
    return over.cycles.value if over and over.cycles and over.differs_in_cycles else None


def _fastest(row: Row) -> dict[str, object] | None:
    """The claimed ratio: at the power limit the smaller one of in turn and alone."""
    over = row.claimed
    if over is None:
        return None
    regime = Regime.CHAINED if over is row.over_fastest else Regime.ALONE
    return {**vars(over), "of": row.chained.fastest, "regime": regime}


def _fastest_text(row: Row, shown: ShownRows) -> doc.Content:
    over = row.claimed
    if over is None:
        return ABSENT
    alone = "" if over is row.over_fastest else " alone"
    named = "" if row.chained.fastest == shown.fastest else f" ({row.chained.fastest})"
    return doc.cell(f"{fine(over.ratio)}{alone}", note=f"{ends(over)}{named}")


def _error_text(row: Row, _: ShownRows) -> doc.Content:
    if row.accuracy is None:
        return ABSENT
    varies = "varies" if row.accuracy.varies else ""
    return doc.cell(factor(row.accuracy.times_reference), note=varies)


def _cold(row: Row) -> float | None:
    cold = row.regimes.get(Regime.COLD)
    return cold.microseconds.value if cold and cold.microseconds else None


def _memory(row: Row) -> dict[str, object] | None:
    """Behind neighbours that have just written the inputs, DRAM has nothing to do: L2 has."""
    level = row.roofline.memory if row.roofline else None
    if level is None:
        return None
    return {
        "gb_per_s": level.bytes_per_second / 1e9,
        "pct_of_peak": 100 * level.share_of_bandwidth,
        "level": level.name,
    }


def _memory_text(row: Row, _: ShownRows) -> doc.Content:
    level = row.roofline.memory if row.roofline else None
    if level is None:
        return ABSENT
    rate = f"({number(level.bytes_per_second / 1e9)} GB/s)"
    text = f"{percent(level.share_of_bandwidth)} of {level.name.upper()}"
    return doc.cell(text, note=rate)


def _stall(row: Row) -> dict[str, object] | None:
    top = top_stall_of(row)
    return {"share": top.share, "error": top.error, "reason": top.reason} if top else None


def _stall_text(row: Row, _: ShownRows) -> str:
    top = top_stall_of(row)
    return f"{stall_label(top.reason)} {share(top.share, top.error)}" if top else ABSENT


def _verdict(row: Row) -> Verdict | None:
    """None for what is not judged; a wrong baseline is no baseline."""
    wrong = any(check.status == CheckResult.WRONG for check in row.checks.values())
    return Verdict.WRONG if wrong else row.verdict


def key_change(row: Row) -> str:
    """What a step changes; of a reference what it is."""
    return row.step.key_change if row.step else row.title


def _change_text(row: Row, shown: ShownRows) -> doc.Content:
    """The report has the whole change in the block below."""
    if shown.where == Where.REPORT:
        return short_change(row)
    return doc.Cell(doc.authored(key_change(row)), short=short_change(row))


def _metric(ablation: Ablation) -> str:
    """The ncu metrics behind the occupancy of all variants."""
    name = "achieved_occupancy"
    every = (row.figures[name].metric for row in ablation.everything if name in row.figures)
    return "; ".join(dict.fromkeys(every)) or ABSENT


def _sessions(ablation: Ablation) -> str:
    return f"sessions of {ablation.timing_file or ABSENT}"


COLUMNS: tuple[LadderColumn, ...] = (
    LadderColumn(
        "variant",
        "variant",
        "name of the variant or of the reference",
        lambda row: row.variant,
        EVERYWHERE,
        rank=0,
        text=lambda row, shown: doc.cell(row.variant, short=shown.short_names[row.variant]),
        is_number=False,
        measured=False,
        least=8,
    ),
    LadderColumn(
        "microseconds",
        "time",
        "time per call inside a CUDA graph, between two other kernels",
        _time,
        EVERYWHERE,
        rank=2,
        unit="µs",
        text=lambda row, _: time_words(row.time),
        source=_sessions,
    ),
    LadderColumn(
        "time_interval",
        "95 % interval",
        "interval of the time",
        lambda row: [row.time.low, row.time.high] if row.time else None,
        frozenset({Where.TRY}),
        unit="µs",
        text=lambda row, _: spread(row.time),
    ),
    LadderColumn(
        "speedup_over_baseline",
        "vs baseline",
        "how many times faster than the first variant",
        lambda row: _values(row.over_baseline),
        DETAILS,
        rank=6,
        source=_sessions,
    ),
    LadderColumn(
        "speedup_over_parent",
        "vs parent",
        "how many times faster than its parent",
        lambda row: _values(_parent(row)),
        LADDERS,
        rank=3,
        text=_parent_text,
        note=INTERVAL,
        source=_sessions,
    ),
    LadderColumn(
        "cycles",
        "vs parent in cycles",
        "the same in SM cycles, where the clock is a part of the ratio",
        _cycles,
        frozenset({Where.PAGE, Where.CSV}),
        text=lambda row, _: fine(cycles) if (cycles := _cycles(row)) else NONE,
    ),
    LadderColumn(
        "speedup_over_reference",
        "vs {reference}",
        "how many times faster than the primary reference",
        lambda row: _values(row.over_reference),
        DETAILS | {Where.TRY},
        rank=8,
        source=_sessions,
    ),
    LadderColumn(
        "speedup_over_fastest",
        "vs {fastest}",
        "how many times faster than the fastest reference; at the power limit the smaller one of "
        "that between two other kernels and that without",
        _fastest,
        LADDERS - {Where.BRIEF},
        rank=5,
        text=_fastest_text,
        note=INTERVAL,
        source=_sessions,
    ),
    LadderColumn(
        "accuracy",
        "error ÷ {reference}'s",
        "largest error at any shape, as a multiple of the primary reference's on the same inputs",
        lambda row: _values(row.accuracy),
        EVERYWHERE - {Where.SCREEN, Where.REPORT, Where.BRIEF},
        rank=6,
        text=_error_text,
        source=lambda _: "checks against the float64 reference",
    ),
    LadderColumn(
        "cold",
        "cold",
        "time per call with L2 flushed",
        _cold,
        frozenset({Where.PAGE, Where.CSV}),
        rank=10,
        unit="µs",
    ),
    LadderColumn(
        "memory",
        "memory % of peak",
        "memory throughput under ncu, of DRAM or L2, whichever is nearer to its peak",
        _memory,
        EVERYWHERE - {Where.BRIEF},
        rank=7,
        text=_memory_text,
        note="(GB/s)",
    ),
    LadderColumn(
        "achieved_occupancy_pct",
        "occupancy %",
        "achieved occupancy",
        lambda row: figure(row, "achieved_occupancy"),
        LADDERS - {Where.BRIEF},
        rank=8,
        source=_metric,
    ),
    LadderColumn(
        "top_stall",
        "top stall",
        "the stall reason with the most samples, with the standard error of its share",
        _stall,
        LADDERS - {Where.BRIEF, Where.BRIEF_VARIANT},
        rank=8,
        text=_stall_text,
        is_number=False,
        source=lambda _: STALLS,
    ),
    LadderColumn(
        "verdict",
        "verdict",
        "the verdict with its reason; the shape is named where the step is judged at another",
        _verdict,
        LADDERS,
        rank=1,
        text=lambda row, shown: verdict_words(row, shown.ablation),
        is_number=False,
        measured=False,
        least=WHOLE,
    ),
    LadderColumn(
        "key_change",
        "what changed",
        "the change against the parent, as in ablation.toml",
        key_change,
        TEXT | DATA,
        rank=4,
        text=_change_text,
        is_number=False,
        measured=False,
        least=12,
    ),
    LadderColumn(
        "status",
        "status",
        "state of the evidence",
        lambda row: row.status,
        frozenset({Where.CSV}),
        measured=False,
    ),
    LadderColumn(
        "problem",
        "problem",
        "why there is no current evidence",
        lambda row: sentence(row.problem),
        frozenset({Where.CSV}),
        measured=False,
    ),
)


def columns(ablation: Ablation, where: Where) -> list[LadderColumn]:
    """The columns of an output; of references only where the study has any."""
    absent = () if ablation.reference else OF_REFERENCES
    return [each for each in COLUMNS if where in each.where and each.key not in absent]


def ladder_table(
    ablation: Ablation,
    where: Where = Where.PAGE,
    rows: Sequence[Row] | None = None,
    name: str = "ladder",
    only: Sequence[str] = (),
) -> doc.Table:
    """Rows of a ladder with the columns of an output, or ``only`` some of them, without columns in
    which no row has a value.
    """
    shown = ShownRows(ablation, ablation.everything if rows is None else rows, where)
    fields = [c.field(shown) for c in columns(ablation, where) if not only or c.key in only]
    table = doc.table(name, fields, shown.rows, key=lambda row: row.variant, kind=kind)
    texts = {f.key: {doc.plain(row.cells[f.key].text) for row in table.rows} for f in fields}
    filled = [key for key, text in texts.items() if text not in ({ABSENT}, {ABSENT, NONE})]
    return doc.only(table, filled)


def data(ablation: Ablation, row: Row, where: Where) -> dict[str, object]:
    """The values of a row by the keys of their columns; of a row without evidence None."""
    return {
        c.key: c.value(row) if has_figures(row) or not c.measured else None
        for c in columns(ablation, where)
    }


def _parameters(variant: str) -> list[str]:
    return variant.removesuffix("]").partition("[")[2].split(",") if "[" in variant else []


def samples(figures: Mapping[str, Figure]) -> float | None:
    """Warp state samples of a capture; None where not collected."""
    return figures[SAMPLES].value if SAMPLES in figures else None


def top_stall_of(row: Row) -> TopStall | None:
    """The reason with the largest share of all samples."""
    return top_stall(row.stalls, samples(row.figures))


REASON_WIDTH, SHAPE_WIDTH = 70, 20
SAME_SPEED = 0.01  # a bug fix whose ratio is nearer to one than this has its parent's speed
WRONG = CheckResult.WRONG
NOT_JUDGED = "not judged"  # of a row at a shape at which others start from it


def has_figures(row: Row) -> bool:
    return row.status == Status.CURRENT


def reason(row: Row) -> str:
    """Why a row has no figures, in one short phrase."""
    if row.status == Status.MISSING:
        return f"needs {row.needs}" if row.needs else "not measured"
    if row.status == Status.FAILED:
        return shorten(f"failed: {sentence(row.problem).partition(', ')[0]}", REASON_WIDTH)
    return row.status if row.status != Status.CURRENT else ABSENT


def has_verdict(row: Row) -> bool:
    """Whether its verdict rests on evidence of the present sources."""
    is_shown = bool(row.judged_at) or row.status in (Status.CURRENT, Status.FAILED)
    return is_shown and row.verdict is not None


def verdict(row: Row) -> str:
    """The verdict at the shape where it is judged, or what stands in its place."""
    if row.is_unsupported and not row.judged_at:
        return CheckResult.UNSUPPORTED.value
    if row.verdict and has_verdict(row):
        failed_baseline = row.status == Status.FAILED and row.verdict == Verdict.BASELINE
        return (Verdict.WRONG if failed_baseline else row.verdict).label
    if row.status != Status.CURRENT:
        failed = row.status == Status.FAILED  # the reason stands elsewhere
        return ABSENT if row.needs else row.status if failed else reason(row)
    if row.is_reference:
        return "reference"
    return NOT_JUDGED if row.role == Role.START else ABSENT


def verdict_words(row: Row, ablation: Ablation) -> str:
    """The verdict with its reason, so that it never seems to contradict the row's ratios:
    ``kept at S=2048: 1.18x``, ``bug fix, same speed``, ``inaccurate: 130x sdpa's error``.
    """
    word, over = verdict(row), row.deciding_speedup or row.over_parent
    if row.verdict in (None, Verdict.BASELINE) or not has_verdict(row):
        return word
    where = at_shape(row.judged_at, ablation)
    if row.verdict == Verdict.KEPT and shows_bug(row.gates):
        if not has_same_speed(over):
            return f"bug fix{where}" + (f": {fine(over.ratio)}" if over else "")
        return f"bug fix{'' if has_same_speed(row.over_parent) else where}, same speed"
    if why := _why_not(row, row.judged_at or ablation.shape):
        return f"{word}{where}: {why}"
    return f"{word}{where}: {fine(over.ratio)}" if where and over else word + where


def has_same_speed(over: Ratio | None) -> bool:
    return over is not None and abs(over.ratio - 1) < SAME_SPEED


def _why_not(row: Row, shape: str) -> str:
    """The first gate that failed, or that is open, in a few words; empty where the ratio says why.
    ``shape`` is where the step is judged.
    """
    over, wrong = row.deciding_speedup, [c for c in row.checks.values() if c.status == WRONG]
    if row.verdict == Verdict.WRONG and wrong:
        here = row.checks.get(shape)
        error = (here if here in wrong else wrong[0]).max_abs
        return "" if error is None else f"error {number(float(error))}"
    if row.verdict not in (Verdict.WRONG, Verdict.INACCURATE, Verdict.INCONCLUSIVE):
        return ""
    for gate in row.gates:
        values = gate.why.values
        if gate.state == GateState.FAILED and gate.name == ACCURATE and row.accuracy:
            return f"{factor(row.accuracy.times_reference)} {values['reference']}'s error"
        if gate.state == GateState.FAILED and row.verdict == Verdict.WRONG:
            return gate_name(gate)
        if gate.why.code == RECORDINGS:
            return f"{fine(float(str(values['low'])))} in {values['recordings']} runs"
        if gate.state == GateState.OPEN and gate.binding:
            return "not profiled" if gate.name == KERNELS else f"{gate_name(gate)} not collected"
    if row.judged_at or over is None or over.low is None or over.high is None:
        return ""
    return f"{fine(over.low)} to {fine(over.high)}"


def gate_name(gate: Gate) -> str:
    """The name of a gate; of a bug fix, which need not be faster, the speed gate says so."""
    least = gate.why.values.get("least")
    is_loose = gate.why.code == PARENT_UNTIMED or (isinstance(least, float) and least < 1)
    return "not slower" if gate.name == FASTER and is_loose else gate.name


def kind(row: Row) -> doc.Marking:
    if row.is_reference:
        return doc.Marking.REFERENCE
    if row.verdict is None or not has_verdict(row):
        return doc.Marking.PLAIN
    return doc.Marking.REJECTED if row.verdict.is_rejected else doc.Marking(row.verdict)


def short_change(row: Row) -> str:
    """The label of a step; of one without the first clause of its change."""
    return doc.first_clause((row.step.label or row.step.key_change) if row.step else row.title)


def figure(row: Row, name: str) -> float | None:
    collected = row.figures.get(name)
    return collected.value if collected else None


def parent_of(row: Row) -> str:
    return (row.step.parent if row.step else None) or ""


def anchor(variant: str) -> str:
    return "step-" + re.sub(r"[^a-z0-9]+", "-", variant.lower()).strip("-")


def compared(row: Row, ablation: Ablation) -> tuple[str, str]:
    """The names of a step's parent and of itself, with the shape of their captures if another."""
    place = at_shape(row.against_parent_at, ablation)
    return f"{parent_of(row)}{place}", f"{row.variant}{place}"


def shape_words(parameters: Mapping[str, object]) -> str:
    """``B=2 H=8 causal``: a flag by its name alone, one that is off not at all."""
    return " ".join(
        key if value is True else f"{key}={value}"
        for key, value in parameters.items()
        if value is not False
    )


def table_size(ablation: Ablation) -> str:
    """The parameters of the table's shape, or its name where it has none."""
    return shape_words(ablation.parameters) or ablation.shape


def shape_name(shape: str, ablation: Ablation) -> str:
    """``B=4 H=16 S=2048 D=128 causal`` of a name that is nothing but its parameters, without the
    data type where that is the table's; every other name as it is.
    """
    parameters = ablation.shapes.get(shape, {})
    numbers = [str(v) for v in parameters.values() if not isinstance(v, str | bool)]
    if len(numbers) < 2 or not all(text in shape for text in numbers):
        return shape
    usual = "dtype", ablation.parameters.get("dtype")
    return shape_words(dict(item for item in parameters.items() if item != usual))


def at_shape(shape: str, ablation: Ablation) -> str:
    """`` at S=2048``, of a shape that is not the table's; empty without one."""
    return f" at {brief_shape(shape, ablation)}" if shape else ""


def brief_shape(shape: str, ablation: Ablation) -> str:
    """``S=2048``: the parameters in which a shape differs from the table's, without leading ones
    that follow from the others; its name where that says more, or where they are too long.
    """
    if shape_name(shape, ablation) == shape:
        return shape
    parameters = ablation.shapes.get(shape, {})
    alike = [p for p in ablation.shapes.values() if p.keys() == parameters.keys()]
    same = {k: v for k, v in parameters.items() if ablation.parameters.get(k) == v}
    new = {k: v for k, v in parameters.items() if k not in same}
    while len(new) > 1:
        rest = dict(list(new.items())[1:])
        if len([p for p in alike if (same | rest).items() <= p.items()]) > 1:
            break
        new = rest
    text = shape_words(new)
    return text if text and len(text) <= SHAPE_WIDTH else shape
