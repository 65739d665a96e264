"""The ladder as a table. A column of it is one entry of ``fields``, for every output and JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from workbench.derive.figures import stall_label
from workbench.derive.speedup import Ratio
from workbench.judge.rows import Ablation, Row
from workbench.judge.times import AtShape
from workbench.render.document import result
from workbench.render.document.blocks import (
    Cell,
    Content,
    Field,
    Section,
    Table,
    code,
    field,
    figure_cell,
    line,
    numeric,
    paragraph,
    table,
    words,
)
from workbench.render.document.limits import share, top_stall
from workbench.render.document.phrases import (
    figure,
    has_figures,
    in_cycles,
    key_change,
    kind,
    note,
    shape_words,
    verdict,
    with_cycles,
)
from workbench.render.document.timings import time_cell, time_in
from workbench.render.numbers import ends, factor, fine, interval, number, percent
from workbench.words import ABSENT, NONE, Regime, Role, Verdict

INTERVAL = "[95 % interval]"
STALLS = "smsp__pcsamp_warps_issue_stalled_*, share of their sum"
# What a report shows of it: narrow enough for a page of GitHub, the key change beside the name.
REPORTED = ("version", "change", "time", "parent", "fastest", "error", "verdict")
OF_REFERENCES = ("reference", "fastest", "error")  # what a study without any has not


def fields(ablation: Ablation, notes: Sequence[str] = ()) -> list[Field[Row]]:
    """The columns in the order in which Markdown has them; a terminal orders them by rank. Cells
    refer to ``notes`` by their number.
    """
    sessions = ablation.timing_file or ABSENT
    checks = "checks against the float64 reference, the worst of all shapes"
    fastest = partial(_over_fastest, primary=ablation.reference)
    behind = Regime.BACK_TO_BACK
    nearest = "DRAM or L2, whichever is nearer to its peak"
    metric = metrics(ablation, "achieved_occupancy")

    def over(
        key: str, other: str, make: Callable[[Row], Content], rank: int, note: str = ""
    ) -> Field[Row]:
        source, json = f"chained, over the sessions of {sessions}", f"speedup_over_{key}"
        return _number(key, f"vs {other}", make, rank, note=note, source=source, json=json)

    columns = [
        field("version", "version", _version, rank=0, json="variant"),
        _number(
            "time",
            "time, chained",
            lambda r: time_cell(r.time),
            1,
            unit="µs",
            source=f"sessions in {sessions}",
            json="microseconds",
        ),
        over("baseline", "baseline", lambda r: ratio_cell(r.over_baseline, cycles=False), 6),
        over("parent", "parent", _over_parent, 2, INTERVAL),
        over(
            "reference", ablation.reference, lambda r: ratio_cell(r.over_reference, cycles=False), 8
        ),
        over("fastest", "fastest reference", fastest, 3, INTERVAL),
        _number(
            "error", f"error ÷ {ablation.reference}'s", _error, 6, source=checks, json="accuracy"
        ),
        _number(behind.name.lower(), behind, partial(time_in, regime=behind), 10, unit="µs"),
        _number("cold", Regime.COLD, partial(time_in, regime=Regime.COLD), 10, unit="µs"),
        _number(
            "memory",
            "memory GB/s under ncu",
            _bandwidth,
            7,
            note="(% of peak)",
            source=nearest,
            json="memory",
        ),
        _number(
            "occupancy", "occupancy %", _occupancy, 8, source=metric, json="achieved_occupancy_pct"
        ),
        field("stall", "top stall", measured(_top_stall), rank=9, source=STALLS),
        field("change", "key change", key_change, rank=5, json="key_change"),
        field("verdict", "verdict", partial(_verdict, notes=notes), rank=4, json="verdict"),
    ]
    return [f for f in columns if ablation.reference or f.column.key not in OF_REFERENCES]


def _number(
    key: str, label: str, make: Callable[[Row], Content], rank: int, **others: str
) -> Field[Row]:
    return numeric(key, label, measured(make), rank=rank, **others)


def ladder_table(ablation: Ablation, rows: tuple[Row, ...] | None = None, name: str = "") -> Table:
    """The steps in order, then the references; a row without current evidence says why."""
    shown = ablation.everything if rows is None else rows
    notes = tuple(dict.fromkeys(filter(None, map(note, shown))))
    return table(
        name or "ladder",
        fields(ablation, notes),
        shown,
        key=lambda row: row.variant,
        kind=kind,
        notes=notes,
    )


def measured(make: Callable[[Row], Content]) -> Callable[[Row], Content]:
    """A dash where a row has no evidence: the verdict says why."""
    return lambda row: make(row) if has_figures(row) else NONE


def metrics(ablation: Ablation, *names: str) -> str:
    """The ncu metrics behind figures over all variants, or that they were not collected."""
    seen = dict.fromkeys(
        row.figures[name].metric
        for name in names
        for row in ablation.everything
        if name in row.figures
    )
    return "; ".join(seen) or ABSENT


def ratio_cell(value: Ratio | None, *, note: str = "", cycles: bool = True) -> Content:
    """The ratio, and in cycles where that is another."""
    if value is None:
        return ABSENT
    text = in_cycles(value) if cycles else ""
    note = " ".join(filter(None, [note, text and f"({text})"]))
    return Cell(words(fine(value.ratio)), sort=value.ratio, note=note, data=vars(value))


def _version(row: Row) -> Cell:
    return Cell(words(row.variant), sort=row.variant, data=row.variant)


def _over_fastest(row: Row, primary: str) -> Content:
    """The fastest one is named where it is not the primary one."""
    over, fastest = row.over_fastest, row.chained.fastest
    if over is None:
        return ABSENT
    named = "" if fastest == primary else f" ({fastest})"
    alone = row.alone.speedup_over_fastest
    named += f", {fine(alone.ratio)} alone" if alone else ""
    note = "" if row.is_reference else f"{ends(over)}{named}"
    data = {**vars(over), "of": fastest}
    return Cell(words(fine(over.ratio)), sort=over.ratio, note=note, data=data)


def _error(row: Row) -> Content:
    found = row.accuracy
    if found is None:
        return ABSENT
    varies = "varies" if found.varies else ""
    shown = words(factor(found.times_reference))
    return Cell(shown, sort=found.times_reference, note=varies, data=vars(found))


def _over_parent(row: Row) -> Content:
    if row.verdict == Verdict.BASELINE or row.is_reference or row.role == Role.START:
        return NONE
    return ratio_cell(row.over_parent, note=ends(row.over_parent) if row.over_parent else "")


def _bandwidth(row: Row) -> Cell:
    """Behind neighbours that have just written the inputs, DRAM has nothing to do: L2 has."""
    level = row.roofline.memory if row.roofline else None
    if level is None:
        return figure_cell(None)
    name = level.name.upper()
    note = f"{name} ({percent(level.share_of_bandwidth)})"
    data = {
        "level": level.name,
        "gb_per_s": level.bytes_per_second / 1e9,
        "pct_of_peak": 100 * level.share_of_bandwidth,
    }
    return Cell(
        words(number(level.bytes_per_second / 1e9)),
        sort=level.bytes_per_second,
        note=note,
        data=data,
    )


def _occupancy(row: Row) -> Cell:
    return figure_cell(figure(row, "achieved_occupancy"))


def _top_stall(row: Row) -> Content:
    top = top_stall(row)
    if top is None:
        return ABSENT
    return Cell(words(f"{stall_label(top.reason)} {share(top.share, top.error)}"), sort=top.share)


def _verdict(row: Row, notes: Sequence[str]) -> Cell:
    word, text = verdict(row), note(row)
    number = f" ({notes.index(text) + 1})" if text in notes else ""
    return Cell(words(word + number), sort=word, data=row.verdict or None)


def across(judged: Ablation) -> list[Section]:
    """The last step at all shapes, where it was timed at several."""
    if judged.across is None or len(judged.across.shapes) < 2:
        return []
    title = line(code(judged.across.variant), " at all shapes")
    return [Section("shapes", title, (shapes_table(judged), paragraph(result.across(judged))))]


def _at_shape(result: AtShape) -> str:
    over = with_cycles(result.speedup_over_fastest)
    return f"{over}, {interval(result.alone)} alone" if result.alone else over


FLOP_RATE: Field[AtShape] = numeric("rate", "TFLOP/s", lambda s: number(s.flops_per_second / 1e12))
BYTE_RATE: Field[AtShape] = numeric("traffic", "TB/s", lambda s: number(s.terabytes_per_second))
SHAPES: list[Field[AtShape]] = [
    numeric("time", "time, chained", lambda s: number(s.microseconds.value), unit="µs"),
    field(
        "reference",
        "fastest reference",
        lambda s: (
            f"{s.fastest} {number(s.reference_microseconds.value)}"
            if s.reference_microseconds
            else ABSENT
        ),
        unit="µs",
    ),
    numeric("ratio", "vs it [95 % interval]", _at_shape),
    numeric(
        "error",
        "error ÷ reference's",
        lambda s: ABSENT if s.accuracy is None else factor(s.accuracy),
    ),
]


def shapes_table(ablation: Ablation) -> Table:
    """The last step at every shape where it was timed; its rate is of bytes where those count, and
    of both where shapes differ in that.
    """
    results = ablation.across.shapes if ablation.across else ()
    counts = {result.is_traffic for result in results}
    rates = [*([FLOP_RATE] if counts != {True} else []), *([BYTE_RATE] if True in counts else [])]
    common = shared([result.parameters for result in results])
    shape: Field[AtShape] = field(
        "shape",
        f"shape ({shape_words(common)})" if common else "shape",
        lambda s: shape_words({k: v for k, v in s.parameters.items() if k not in common}),
    )
    time, *others = SHAPES
    return table("shapes", [shape, time, *rates, *others], results, key=lambda s: s.shape)


def shared(shapes: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    """The parameters that several shapes have all the same; those of one shape are its own."""
    if len(shapes) < 2:
        return {}
    first, *others = shapes
    return {
        key: value
        for key, value in first.items()
        if value is not False and all(key in one and one[key] == value for one in others)
    }
