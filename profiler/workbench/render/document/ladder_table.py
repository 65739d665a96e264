"""The ladder as a table. A column of it is one entry of ``fields``, for every output and JSON."""

from __future__ import annotations

from collections.abc import Callable

from workbench.derive.intervals import Ratio
from workbench.judge.rows import Ablation, Row
from workbench.render.document.blocks import Cell, Table, Text, words
from workbench.render.document.fields import Field, field, figure_cell, table
from workbench.render.document.phrases import (
    figure,
    has_figures,
    in_cycles,
    key_change,
    kind,
    otherwise,
    verdict,
    what_it_is,
)
from workbench.render.document.stalls import reasons, share, top_stall
from workbench.render.document.timings import time_cell
from workbench.render.numbers import ends, factor, fine, number, percent
from workbench.words import ABSENT, NONE, Regime, Role, Verdict

INTERVAL = "[95 % interval]"
STALLS = "smsp__pcsamp_warps_issue_stalled_*, share of their sum"
# What a report shows of it: narrow enough for a page of GitHub, the key change beside the name.
REPORTED = ("version", "change", "time", "parent", "fastest", "error", "verdict")
OF_REFERENCES = ("reference", "fastest", "error")  # what a study without any has not


def fields(ablation: Ablation) -> list[Field[Row]]:
    """The columns in the order in which Markdown has them; a terminal orders them by rank."""
    ratios = f"chained, over the sessions of {ablation.timing_file or ABSENT}"
    columns = [
        field("version", "version", _version, rank=0, json="variant"),
        field(
            "time",
            "time, chained",
            measured(lambda row: time_cell(row.time)),
            unit="µs",
            right=True,
            rank=1,
            source=f"sessions in {ablation.timing_file or ABSENT}",
            json="microseconds",
        ),
        field(
            "baseline",
            "vs baseline",
            measured(lambda row: ratio_cell(row.over_baseline, cycles=False)),
            right=True,
            rank=6,
            source=ratios,
            json="speedup_over_baseline",
        ),
        field(
            "parent",
            "vs parent",
            measured(_over_parent),
            note=INTERVAL,
            right=True,
            rank=2,
            source=ratios,
            json="speedup_over_parent",
        ),
        field(
            "reference",
            f"vs {ablation.reference}",
            measured(lambda row: ratio_cell(row.over_reference, cycles=False)),
            right=True,
            rank=8,
            source=ratios,
            json="speedup_over_reference",
        ),
        field(
            "fastest",
            "vs fastest reference",
            measured(lambda row: _over_fastest(row, ablation.reference)),
            note=INTERVAL,
            right=True,
            rank=3,
            source=ratios,
            json="speedup_over_fastest",
        ),
        field(
            "error",
            f"error ÷ {ablation.reference}'s",
            measured(_error),
            right=True,
            rank=6,
            source="checks against the float64 reference, the worst of all shapes",
            json="accuracy",
        ),
        field(
            "back_to_back",
            Regime.BACK_TO_BACK,
            measured(lambda row: _in(row, Regime.BACK_TO_BACK)),
            unit="µs",
            right=True,
            rank=10,
        ),
        field(
            "cold",
            Regime.COLD,
            measured(lambda row: _in(row, Regime.COLD)),
            unit="µs",
            right=True,
            rank=10,
        ),
        field(
            "memory",
            "memory GB/s under ncu",
            measured(_bandwidth),
            note="(% of peak)",
            right=True,
            rank=7,
            source="DRAM or L2, whichever is nearer to its peak",
            json="memory",
        ),
        field(
            "occupancy",
            "occupancy %",
            measured(lambda row: figure_cell(figure(row, "achieved_occupancy"))),
            right=True,
            rank=8,
            source=metrics(ablation, "achieved_occupancy"),
            json="achieved_occupancy_pct",
        ),
        field("stall", "top stall", measured(_top_stall), rank=9, source=STALLS),
        field("change", "key change", _key_change, rank=5, json="key_change"),
        field("verdict", "verdict", _verdict, rank=4, json="verdict"),
    ]
    return [f for f in columns if ablation.reference or f.column.key not in OF_REFERENCES]


def ladder_table(ablation: Ablation, rows: tuple[Row, ...] | None = None, name: str = "") -> Table:
    """The steps in order, then the references; a row without current evidence says why.

    Where none of ``rows`` was timed beside the baseline, there is no column for it.
    """
    shown = ablation.everything if rows is None else rows
    timed = rows is None or any(row.over_baseline for row in shown)
    return table(
        name or "ladder",
        [f for f in fields(ablation) if timed or f.column.key != "baseline"],
        shown,
        key=lambda row: row.variant,
        kind=kind,
    )


def measured(make: Callable[[Row], Cell]) -> Callable[[Row], Cell]:
    """A dash where a row has no evidence: the verdict says why."""
    return lambda row: make(row) if has_figures(row) else Cell(words(NONE))


def metrics(ablation: Ablation, *names: str) -> str:
    """The ncu metrics behind figures over all variants, or that they were not collected."""
    seen = dict.fromkeys(
        row.figures[name].metric
        for name in names
        for row in ablation.everything
        if name in row.figures
    )
    return "; ".join(seen) or ABSENT


def ratio_cell(value: Ratio | None, *, note: str = "", cycles: bool = True) -> Cell:
    """The ratio, and in cycles where that is another."""
    if value is None:
        return Cell(words(ABSENT))
    told = in_cycles(value) if cycles else ""
    note = " ".join(filter(None, [note, told and f"({told})"]))
    return Cell(words(fine(value.ratio)), sort=value.ratio, note=note, data=vars(value))


def _version(row: Row) -> Cell:
    return Cell(words(row.variant), sort=row.variant, data=row.variant)


def _in(row: Row, regime: Regime) -> Cell:
    known = row.regimes.get(regime)
    return time_cell(known.time if known else None)


def _over_fastest(row: Row, primary: str) -> Cell:
    """The fastest one is named where it is not the primary one."""
    over, fastest = row.over_fastest, row.chained.fastest
    if over is None:
        return Cell(words(ABSENT))
    if row.is_reference:
        return ratio_cell(over, cycles=False)
    named = "" if fastest == primary else f" ({fastest})"
    cell = ratio_cell(over, note=f"{ends(over)}{named}", cycles=False)
    return Cell(cell.text, cell.sort, note=cell.note, data={**vars(over), "of": fastest})


def _error(row: Row) -> Cell:
    found = row.accuracy
    if found is None:
        return Cell(words(ABSENT))
    varies = "varies" if found.varies else ""
    shown = words(factor(found.times_reference))
    return Cell(shown, sort=found.times_reference, note=varies, data=vars(found))


def _over_parent(row: Row) -> Cell:
    if row.verdict == Verdict.BASELINE or row.is_reference or row.role == Role.START:
        return Cell(words(NONE))
    return ratio_cell(row.over_parent, note=ends(row.over_parent) if row.over_parent else "")


def _bandwidth(row: Row) -> Cell:
    """Behind neighbours that have just written the inputs, DRAM has nothing to do: L2 has."""
    level = row.point.memory if row.point else None
    if level is None:
        return figure_cell(None)
    name = level.level.upper()
    note = f"{name} ({percent(level.bandwidth_share)})"
    data = {
        "level": level.level,
        "gb_per_s": level.rate / 1e9,
        "pct_of_peak": 100 * level.bandwidth_share,
    }
    return Cell(words(number(level.rate / 1e9)), sort=level.rate, note=note, data=data)


def _top_stall(row: Row) -> Cell:
    top = top_stall(row)
    if top is None:
        return Cell(words(ABSENT))
    return Cell(words(f"{reasons(top.reasons)} {share(top.share, top.error)}"), sort=top.share)


def _key_change(row: Row) -> Cell:
    change: Text = key_change(row)
    text = row.step.key_change if row.step else row.title
    return Cell(change, sort=text.lower(), data=text)


def _verdict(row: Row) -> Cell:
    word = verdict(row) + what_it_is(row)
    chosen = f"{factor(row.over_chosen.ratio)} of {row.chosen}" if row.over_chosen else ""
    told = "; ".join(filter(None, [chosen, otherwise(row)]))
    note = f"({told})" if told else ""
    return Cell(words(word), sort=word, note=note, data=row.verdict or None)
