"""Times and rates over a range of shapes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from workbench.judge.sizes import OverSizes, SizeLine, size_words
from workbench.render.document.blocks import (
    Align,
    Block,
    Bullets,
    Cell,
    Chart,
    Field,
    Fold,
    Marking,
    Paragraph,
    Section,
    Table,
    TableColumn,
    Text,
    code,
    field,
    figure_cell,
    line,
    table,
    warned,
    words,
)
from workbench.render.document.phrases import shape_words
from workbench.render.document.sentences import sentences
from workbench.render.numbers import ends, factor, interval, microseconds, number, percent
from workbench.words import NONE

NAME = "sizes"
ALT = "Time and rate of every version over the size."
CAPTION = (
    "Chained times with 95 % intervals, and the study's work over them. Lines of references are "
    "dashed; versions that no colour is left for are drawn thin and without a name."
)


def sizes_name(number: int) -> str:
    """Of the chart of one of a report's ranges."""
    return f"{NAME}-{number + 1}" if number else NAME


def sizes_sections(every: Sequence[OverSizes]) -> list[Section]:
    """Those of a report, told apart by the parameters in which they differ."""
    found = []
    for place, over in enumerate(every):
        own = {
            name: value
            for name, value in over.others.items()
            if any(other.others.get(name) != value for other in every)
        }
        section = sizes_section(sizes_name(place), over, shape_words(own), again=place > 0)
        found.append(section)
    return found


def sizes_section(name: str, over: OverSizes, which: str = "", *, again: bool = False) -> Section:
    """With the chart of that name. ``again``: what it shows was said in the section before."""
    origin, *head, times, best = sizes_view(over)
    chart = Chart(name, f"{ALT} Of {over.study} on {over.gpu}.", words("" if again else CAPTION))
    head = head if again else [origin, *head]
    whole = [Bullets(told)] if (told := tuple(overall(over))) else []
    tables = Fold(words("Each size, and the times"), (best, times))
    title = line("Over ", code(over.parameter), f": {which}" * bool(which))
    return Section(name, title, (*head, chart, *whole, tables))


def rate_unit(over: OverSizes) -> str:
    return "TFLOP/s" if over.in_flops else "GB/s"


def rate(over: OverSizes, value: float) -> float:
    """In the unit of ``rate_unit``."""
    return value / (1e12 if over.in_flops else 1e9)


def sizes_view(over: OverSizes) -> list[Block]:
    """The times, and which is the fastest where, with its rate."""
    return [
        Paragraph(origin(over)),
        *warned(sentences(over.warnings)),
        times_table(over),
        Bullets((*fastest(over), *overall(over))),
    ]


def origin(over: OverSizes) -> Text:
    shared = shape_words(over.others)
    return line(
        f"{over.study} over ", code(over.parameter), f" on {over.gpu}", f"; {shared}" * bool(shared)
    )


def times_table(over: OverSizes) -> Table:
    fields: list[Field[SizeLine]] = [field("variant", "time, chained", lambda o: code(o.variant))]
    for shape, size in over.sizes.items():
        label = f"{over.parameter}={size_words(size)}"
        column = TableColumn(shape, label, "µs", Align.RIGHT, 1, note="[95 % interval]")
        fields.append(Field(column, partial(_time, shape)))
    return table(
        f"{NAME}-time",
        fields,
        over.variants,
        key=lambda one: one.variant,
        kind=lambda one: Marking.REFERENCE if one.is_reference else Marking.PLAIN,
    )


def _time(shape: str, one: SizeLine) -> Cell:
    point = one.at(shape)
    return (
        figure_cell(point.microseconds.value, note=ends(point.microseconds))
        if point
        else Cell(words(NONE))
    )


def overall(over: OverSizes) -> list[Text]:
    """Of every version that was timed beside a reference at all sizes."""
    told = []
    for each in over.variants:
        worst = each.worst
        if each.is_reference or worst is None or len(each.ratios) < len(over.sizes):
            continue
        at = f"{over.parameter}={size_words(worst.size)}"
        told.append(
            line(
                code(each.variant),
                f" is {factor(each.mean_over_fastest or 0.0)} of the fastest reference in the "
                f"geometric mean over {len(over.sizes)} sizes, at worst "
                f"{interval(worst.over_fastest)} at {at}",
            )
        )
    return told


def fastest(over: OverSizes) -> list[Text]:
    """At every size, with the ratio over the fastest reference."""
    told = []
    for shape, size in over.sizes.items():
        found = over.fastest_at(shape, references=False)
        if found is None:
            continue
        best, point = found
        against = (
            f", {interval(point.over_fastest)} of {point.fastest_reference}"
            if point.over_fastest
            else ""
        )
        unit = rate_unit(over)
        rates = f"{number(rate(over, point.rate))} {unit}"
        if point.share_of_measured is not None:
            rates += f", {percent(point.share_of_measured)} of measured {point.ceiling}"
        head = f"fastest variant at {over.parameter}={size_words(size)}: "
        told.append(
            line(
                head,
                code(best.variant),
                f" {microseconds(point.microseconds.value)}, {rates}{against}",
            )
        )
    return told
