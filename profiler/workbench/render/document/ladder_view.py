"""The ladder as ``ablate`` prints it: the answer first, then the steps that lead to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from workbench.judge.findings import sentences
from workbench.judge.ladder import Ablation
from workbench.judge.times import AtShape
from workbench.render.columns import Where, ladder_table
from workbench.render.document import limits, phrases, timings, variant
from workbench.render.document.blocks import (
    Block,
    CodeBlock,
    Field,
    numeric,
    paragraph,
    table,
    warned,
)
from workbench.render.document.phrases import shape_name, shape_words
from workbench.render.numbers import factor, interval, number
from workbench.words import ABSENT

MOST_SIZES = 6  # of a screen


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
    """The answer, the rows that lead to it and the ``named`` ones, other sizes if they are few, and
    the references.
    """
    rows = judged.rows_with(named)
    above = [paragraph(phrases.answer(judged)), *warned(sentences(judged.damage))]
    below = [_references(judged), *_left(judged, len(judged.rows) - len(rows))]
    table = ladder_table(judged, Where.SCREEN, rows)
    few = judged.across is not None and len(judged.across.shapes) <= MOST_SIZES
    sizes = sizes_table(judged) if few else []
    return [*above, table, *sizes, CodeBlock("\n".join(filter(None, below)))]


def _references(judged: Ablation) -> str:
    """Their times, the fastest first."""
    timed = sorted((r.time.value, r.variant) for r in judged.references if r.time)
    text = ", ".join(f"{name} {number(us)}" for us, name in timed)
    return f"references (µs): {text}" if text else ""


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


FLOP_RATE: Field[AtShape] = numeric("rate", "TFLOP/s", lambda s: number(s.flops_per_second / 1e12))
BYTE_RATE: Field[AtShape] = numeric("traffic", "TB/s", lambda s: number(s.terabytes_per_second))
SHAPES: list[Field[AtShape]] = [
    numeric("time", "time", lambda s: number(s.microseconds.value), unit="µs"),
    Field(
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
    shape: Field[AtShape] = Field(
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
