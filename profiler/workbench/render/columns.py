"""The columns of a ladder: one entry a column, for every output.

A column has one key, one heading, one value and one text. Terminal, pipe, Markdown report and page
print the text. CSV, JSON, ``--brief`` and the DataFrames of the library have the value under the
key. ``where`` says which of them have the column.

To add a column, add an entry to ``COLUMNS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import Any

from workbench.derive.figures import stall_label
from workbench.derive.speedup import Ratio
from workbench.judge.findings import sentence
from workbench.judge.ladder import Ablation, Row
from workbench.render import doc
from workbench.render.document.limits import share, top_stall_of
from workbench.render.document.phrases import (
    figure,
    has_figures,
    key_change,
    kind,
    parent_of,
    short_change,
    verdict_words,
)
from workbench.render.document.timings import INTERVAL, spread, time_words
from workbench.render.numbers import ends, factor, fine, number, percent, shorten
from workbench.study.model import base_name
from workbench.words import ABSENT, NONE, CheckResult, Regime, Role, Verdict


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
        return dict(zip((row.variant for row in self.rows), _short_names(self.rows), strict=True))

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
        cell = doc.as_cell(self.text(row, shown) if self.text else _text(value))
        return replace(cell, sort=_sort(value))

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


def _text(value: Any) -> str:
    """A value without a text of its own."""
    if isinstance(value, Mapping):
        return fine(value["ratio"])
    return value if isinstance(value, str) else number(value)


def _sort(value: Any) -> float | str | None:
    """The number or text by which the page orders rows."""
    first = next(iter(value.values())) if isinstance(value, Mapping) else value
    return first if isinstance(first, int | float | str) else None


# ---- values and texts
def _fields(record: object | None) -> dict[str, object] | None:
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


def _change_text(row: Row, shown: ShownRows) -> doc.Content:
    """The report has the whole change in the block below."""
    return short_change(row) if shown.where == Where.REPORT else key_change(row)


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
        lambda row: _fields(row.over_baseline),
        DETAILS,
        rank=6,
        source=_sessions,
    ),
    LadderColumn(
        "speedup_over_parent",
        "vs parent",
        "how many times faster than its parent",
        lambda row: _fields(_parent(row)),
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
        lambda row: _fields(row.over_reference),
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
        lambda row: _fields(row.accuracy),
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
        lambda row: row.step.key_change if row.step else row.title,
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


def _short_names(rows: Sequence[Row]) -> Iterator[str]:
    above = ""
    for row in rows:
        base, parameters = base_name(row.variant), _parameters(row.variant)
        parent = _parameters(parent_of(row)) if base_name(parent_of(row)) == base else []
        new = [each for each in parameters if each not in parent] or parameters
        inner = f"{'…' if len(new) < len(parameters) else ''}{','.join(new)}"
        if base == above and parameters:
            yield f" {shorten(inner, NAME_WIDTH - 1)}"
        else:
            yield shorten(f"{base} {inner}", NAME_WIDTH)
        above = base


def _parameters(variant: str) -> list[str]:
    return variant.removesuffix("]").partition("[")[2].split(",") if "[" in variant else []
