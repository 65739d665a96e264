"""The ladder as ``ablate`` prints it: the answer first, then the steps that lead to it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from math import ceil, floor

from workbench.derive.speedup import Ratio
from workbench.judge.rows import Ablation, Row
from workbench.render.document import result, step, timings, variant, why
from workbench.render.document.blocks import (
    Block,
    CodeBlock,
    Field,
    Table,
    TableColumn,
    field,
    first_sentence,
    numeric,
    paragraph,
    plain,
    table,
    warned,
)
from workbench.render.document.ladder_table import ladder_table, measured
from workbench.render.document.phrases import brief_note, key_change, kind, parent_of, verdict
from workbench.render.numbers import number, shorten
from workbench.study.params import base_name
from workbench.words import NONE, Verdict

WIDTH, LINES = 80, 42  # of a screen, less two blank lines, what is left out and what to run next
HEADER = 3  # lines of a table
NAME_WIDTH, RATIO_WIDTH = 14, 18  # with the other columns at 80 cells


def whole(judged: Ablation) -> list[Block]:
    """All rows and columns, and what the figures rest on; warnings at the end."""
    return [
        paragraph(result.answer(judged)),
        variant.origin(judged),
        ladder_table(judged),
        *account(judged),
        *warned(result.warnings(judged)),
    ]


def brief(judged: Ablation, named: Sequence[str] = ()) -> list[Block]:
    """What fits a screen of 80 by 45: the path to the best step, what failed beside it and the
    ``named`` steps; references, and a line for each other shape.

    Where it does not fit, two failures are left, then two shapes are on a line, then one sentence
    is about all shapes, then no failures are left.
    """
    answer, rows = result.answer(judged), _rows(judged, named)
    references, shapes = textwrap.wrap(_references(judged), WIDTH), _other_shapes(judged)
    path = {row.variant for row in judged.path or rows} | set(named)
    beside = [row for row in rows if row.variant not in path]

    def over() -> bool:
        table = HEADER + len(rows) + len(_notes(rows))
        return (
            len(textwrap.wrap(plain(answer), WIDTH)) + table + len(references) + len(shapes) > LINES
        )

    while len(beside) > 2 and over():
        rows.remove(beside.pop())
    if shapes and over():
        shapes = _in_pairs(shapes)
    if shapes and over():
        shapes = textwrap.wrap(plain(first_sentence(plain(result.across(judged)))), WIDTH)
    while beside and over():
        rows.remove(beside.pop())
    tail = [*references, *shapes, *_left(judged, len(judged.rows) - len(rows))]
    return [paragraph(answer), brief_table(judged, rows), CodeBlock("\n".join(tail))]


def _rows(judged: Ablation, named: Sequence[str]) -> list[Row]:
    """In the order of the ladder, the best one last."""
    shown = {row.variant for row in judged.table_rows} | set(named)
    best = judged.table_rows[-1].variant if judged.table_rows else ""
    rows = [row for row in judged.rows if row.variant in shown]
    return sorted(rows, key=lambda row: row.variant == best and row.verdict != Verdict.BASELINE)


def brief_table(judged: Ablation, rows: Sequence[Row]) -> Table:
    notes = _notes(rows)
    names = dict(zip((row.variant for row in rows), _names(rows), strict=True))
    fastest = {row.chained.fastest for row in rows} - {""}
    beside = fastest.pop() if len(fastest) == 1 else "fastest"

    def shown_verdict(row: Row) -> str:
        note = brief_note(row)
        text = verdict(row) + (f" ({notes.index(note) + 1})" if note else "")
        return text.removesuffix(Verdict.BASELINE)

    columns = [
        field("step", "step", lambda row: names[row.variant], rank=0),
        Field(TableColumn("change", "what changed", rank=5, least=8), key_change),
        numeric("time", "µs", measured(_time), rank=1),
        numeric("parent", "vs parent", measured(_over_parent), rank=2),
        numeric("fastest", f"vs {beside}", measured(_over_fastest), rank=3),
        field("verdict", "verdict", shown_verdict, rank=4),
    ]
    if not judged.reference:
        del columns[4]
    return table("ladder", columns, rows, key=lambda row: row.variant, kind=kind, notes=notes)


def _notes(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, map(brief_note, rows))))


def _names(rows: Sequence[Row]) -> Iterator[str]:
    """A variant below another of its module by the parameters that its parent lacks."""
    above = ""
    for row in rows:
        base, given = base_name(row.variant), _given(row.variant)
        parent = _given(parent_of(row)) if base_name(parent_of(row)) == base else []
        new = [each for each in given if each not in parent] or given
        more = "…" if len(new) < len(given) else ""
        inner = f"{more}{','.join(new)}"
        if base == above and given:
            yield f" {shorten(inner, NAME_WIDTH - 1)}"
        else:
            yield shorten(f"{base} {inner}", NAME_WIDTH)
        above = base


def _given(variant: str) -> list[str]:
    return variant.removesuffix("]").partition("[")[2].split(",") if "[" in variant else []


def _time(row: Row) -> str:
    return number(row.time.value) if row.time else NONE


def _over_parent(row: Row) -> str:
    """Of a dispatcher: over the best of those that it chooses among."""
    if row.over_chosen:
        over = f"{_ratio(row.over_chosen.ratio)}x"
        of = " of" if len(f"{over} of {row.chosen}") <= RATIO_WIDTH else ""
        return shorten(f"{over}{of} {row.chosen}", RATIO_WIDTH)
    return _interval(row.over_parent) if parent_of(row) else ""


def _over_fastest(row: Row) -> str:
    alone = " alone" if row.claimed is not row.over_fastest else ""
    return f"{_ratio(row.claimed.ratio)}x{alone}" if row.claimed else NONE


def _interval(over: Ratio | None) -> str:
    if over is None:
        return NONE
    if over.low is None or over.high is None:
        return f"{_ratio(over.ratio)}x"
    return f"{_ratio(over.ratio)}x [{_ratio(over.low, floor)}, {_ratio(over.high, ceil)}]"


def _ratio(value: float, whole: Callable[[float], int] = round) -> str:
    """To a hundredth; three digits from 10 on, two below 0.1. The ends of an interval are rounded
    outwards: one that excludes the least speedup does so in print.
    """
    if 0.1 <= value < 10:
        return f"{whole(100 * value) / 100:.2f}"
    return number(value, 2 if value < 0.1 else 3)


def _references(judged: Ablation) -> str:
    """Their times, the fastest first."""
    timed = sorted((r.time.value, r.variant) for r in judged.references if r.time)
    text = ", ".join(f"{name} {number(us)}" for us, name in timed)
    return f"references (µs): {text}" if text else ""


def _other_shapes(judged: Ablation) -> list[str]:
    """The ladder's outcome over the fastest reference at each of them, below a line of its own."""
    across = judged.across
    others = {
        each.shape: f"{_interval(each.claimed):18}  {each.fastest}"
        for each in (across.shapes if across else ())
        if each.shape != judged.shape and each.claimed
    }
    if not across or not others:
        return []
    width = max(map(len, others))
    parts = [f"  {name:{width}}  {over}" for name, over in others.items()]
    return [f"other shapes, {across.variant} vs the fastest reference:", *parts]


def _in_pairs(shapes: list[str]) -> list[str]:
    """The shapes in two columns, with as much of each as fits."""
    head, *parts = shapes
    room, half = WIDTH // 2, (len(parts) + 1) // 2
    short = [text.rpartition("  ")[0].rstrip() for text in parts]
    if max(map(len, short)) > room:
        short = [text.partition(" [")[0] for text in short]
    pairs = zip_longest(short[:half], short[half:], fillvalue="")
    return [head, *(f"{left:{room}}{right}".rstrip() for left, right in pairs)]


def _left(judged: Ablation, steps: int) -> Iterator[str]:
    """What ``--all`` has besides."""
    count = len(result.warnings(judged))
    parts = [
        f"{n} {what}{'s' * (n != 1)}" for n, what in ((steps, "more step"), (count, "warning")) if n
    ]
    if parts:
        yield f"{', '.join(parts)}: --all"


def account(judged: Ablation) -> list[Block]:
    """How the whole ladder multiplies out, how its predictions came out, and the controls."""
    parts = []
    if judged.whole and judged.whole.decomposition:
        ends = f"{judged.whole.before} to {judged.whole.after} under ncu"
        parts.append(f"{ends}: {why.equation(judged.whole.decomposition)}")
    if judged.score.total:
        parts.append(f"predictions: {step.results(judged.score)}")
    if judged.timing and (controls := timings.control_words(judged.timing)):
        parts.append(controls)
    return [*map(paragraph, parts), *map(paragraph, result.calls(judged))]
