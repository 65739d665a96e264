"""The ladder as ``ablate`` prints it: the answer first, then the steps that lead to it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from workbench.judge.findings import sentences
from workbench.judge.ladder import Ablation, Row
from workbench.judge.times import AtShape
from workbench.render.columns import Where, ladder_table
from workbench.render.document import limits, phrases, timings, variant
from workbench.render.document.blocks import (
    Block,
    CodeBlock,
    Field,
    Section,
    code,
    field,
    first_sentence,
    line,
    numeric,
    paragraph,
    plain,
    table,
    warned,
)
from workbench.render.document.phrases import shape_name, shape_words
from workbench.render.numbers import factor, interval, number
from workbench.words import ABSENT

WIDTH, LINES = 80, 41  # of a screen, less blank lines, what is left out and what to run next
HEADER = 3  # lines of a table


def whole(judged: Ablation) -> list[Block]:
    """All rows and columns, and what the figures rest on; warnings at the end."""
    return [
        paragraph(phrases.answer(judged)),
        variant.origin(judged),
        ladder_table(judged),
        *account(judged),
        *warned(phrases.warnings(judged)),
    ]


def screen(judged: Ablation, named: Sequence[str] = ()) -> list[Block]:
    """A screen of 80 by 45: the answer, the rows, references, and a line for each other shape."""
    rows, tail = fitted(judged, named)
    table = ladder_table(judged, Where.SCREEN, rows)
    above = [paragraph(phrases.answer(judged)), *warned(sentences(judged.damage))]
    return [*above, table, CodeBlock("\n".join(tail))]


def fitted(judged: Ablation, named: Sequence[str] = ()) -> tuple[list[Row], list[str]]:
    """The rows of a ladder in the order of every output, and the lines below them.

    The rows are the path to the best step, which is last, what failed beside the path, and the
    ``named`` steps. If a screen has no room for them, two failures are left, then two shapes are on
    a line, then one sentence is about all shapes, then no failures are left.
    """
    answer = textwrap.wrap(plain(phrases.answer(judged)), WIDTH)
    answer += textwrap.wrap("; ".join(sentences(judged.damage)), WIDTH)
    rows = judged.rows_with(named)
    references, shapes = textwrap.wrap(_references(judged), WIDTH), _other_shapes(judged)
    path = {row.variant for row in judged.path or rows} | set(named)
    beside = [row for row in rows if row.variant not in path]

    def over() -> bool:
        return len(answer) + HEADER + len(rows) + len(references) + len(shapes) > LINES

    while len(beside) > 2 and over():
        rows.remove(beside.pop())
    if shapes and over():
        shapes = _in_pairs(shapes)
    if shapes and over():
        shapes = textwrap.wrap(plain(first_sentence(plain(phrases.across(judged)))), WIDTH)
    while beside and over():
        rows.remove(beside.pop())
    return rows, [*references, *shapes, *_left(judged, len(judged.rows) - len(rows))]


def _references(judged: Ablation) -> str:
    """Their times, the fastest first."""
    timed = sorted((r.time.value, r.variant) for r in judged.references if r.time)
    text = ", ".join(f"{name} {number(us)}" for us, name in timed)
    return f"references (µs): {text}" if text else ""


def _other_shapes(judged: Ablation) -> list[str]:
    """The ladder's outcome over the fastest reference at each of them, below a line of its own."""
    across = judged.across
    others = {
        shape_name(each.shape, judged): f"{interval(each.claimed):21}  {each.fastest}"
        for each in (across.shapes if across else ())
        if each.shape != judged.shape and each.claimed
    }
    if not across or not others:
        return []
    width = max(map(len, others))
    parts = [f"  {name:{width}}  {over}" for name, over in others.items()]
    return [f"other sizes, {across.variant} vs the fastest reference:", *parts]


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
    """Yield what ``--all`` has besides."""
    count = len(phrases.warnings(judged))
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
        parts.append(f"{ends}: {limits.equation(judged.whole.decomposition)}")
    if judged.score.total:
        parts.append(f"predictions: {variant.results(judged.score)}")
    parts += filter(None, [timings.controls(judged.timing)])
    return [*map(paragraph, parts), *map(paragraph, phrases.calls(judged))]


def across(judged: Ablation) -> list[Section]:
    """The last step at all shapes, where it was timed at several."""
    if not judged.across or not judged.has_sizes:
        return []
    title = line(code(judged.across.variant), " at all shapes")
    return [Section("shapes", title, (*sizes_table(judged), paragraph(phrases.across(judged))))]


FLOP_RATE: Field[AtShape] = numeric("rate", "TFLOP/s", lambda s: number(s.flops_per_second / 1e12))
BYTE_RATE: Field[AtShape] = numeric("traffic", "TB/s", lambda s: number(s.terabytes_per_second))
SHAPES: list[Field[AtShape]] = [
    numeric("time", "time", lambda s: number(s.microseconds.value), unit="µs"),
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
    numeric("ratio", "vs it [95 % interval]", lambda s: _over(s)),
    numeric(
        "error",
        "error ÷ reference's",
        lambda s: ABSENT if s.accuracy is None else factor(s.accuracy),
    ),
]


def sizes_table(ablation: Ablation) -> list[Block]:
    """The last step at every shape where it was timed, if those are several; its rate is of bytes
    where those count, and of both where shapes differ in that.
    """
    if not ablation.across or not ablation.has_sizes:
        return []
    results = ablation.across.shapes
    counts = {result.is_traffic for result in results}
    rates = [*([FLOP_RATE] if counts != {True} else []), *([BYTE_RATE] if True in counts else [])]
    common = shared([result.parameters for result in results])
    shape: Field[AtShape] = field(
        "shape",
        f"shape ({shape_words(common)})" if common else "shape",
        lambda s: _size(s, common, ablation),
    )
    time, *others = SHAPES if any(r.accuracy is not None for r in results) else SHAPES[:-1]
    shown = table("shapes", [shape, time, *rates, *others], results, key=lambda s: s.shape)
    limited = any(result.alone for result in results)
    return [shown, *[paragraph(ALONE)] * limited]


ALONE = (
    "Alone: measured without other kernels, which is done at the power limit. The smaller of both "
    "ratios counts."
)


def _over(at: AtShape) -> str:
    """The claimed ratio, and that it was measured alone."""
    is_alone = at.claimed is not None and at.claimed is not at.speedup_over_fastest
    return interval(at.claimed) + " alone" * is_alone


def _size(at: AtShape, common: Mapping[str, object], ablation: Ablation) -> str:
    """Return the parameters of a shape, behind its name where that says more."""
    named = "" if shape_name(at.shape, ablation) != at.shape else f"{at.shape}: "
    return named + shape_words({k: v for k, v in at.parameters.items() if k not in common})


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
