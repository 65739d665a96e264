"""``sweep``: combinations of parameters, or variants over a range of shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from workbench.judge.findings import sentence, sentences
from workbench.judge.sweeps import OverSizes, Sweep
from workbench.render import as_table
from workbench.render import brief as in_short
from workbench.render.as_json import Data, shown_fields
from workbench.render.document.blocks import Block
from workbench.render.document.timings import sizes_view, sweep_view

if TYPE_CHECKING:
    from pandas import DataFrame


def data(result: Iterable[Sweep | OverSizes]) -> dict[str, object]:
    every = list(result)
    return {"sweeps" if isinstance(every[0], Sweep) else "sizes": every}


def brief(result: Iterable[Sweep | OverSizes]) -> dict[str, object]:
    """The combinations by time, or the fastest variant at each size."""
    every = list(result)
    first = every[0]
    if isinstance(first, Sweep):
        best = first.best.variant if first.best else first.variant
        going_on = in_short.command(first.study, "profile", best, "--shape", first.shape)
        return {"sweeps": [_sweep(each) for each in every if isinstance(each, Sweep)], **going_on}
    over = [each for each in every if isinstance(each, OverSizes)]
    sizes = [_size(each, shape) for each in over for shape in each.sizes]
    going_on = in_short.command(first.study, "advise", first.versions[0].variant)
    return {"study": first.study, "gpu": first.gpu, "sizes": sizes, **going_on}


def _sweep(sweep: Sweep) -> Data:
    timed = [
        {
            "variant": one.variant,
            "microseconds": one.microseconds.value if one.microseconds else None,
            "over_default": in_short.ratio(one.over_default),
            "may_be_best": one.may_be_best,
        }
        for one in sweep.timed
    ]
    failed = {one.variant: sentence(one.why) for one in sweep.combinations if one.why}
    named = {"study": sweep.study, "shape": sweep.shape, "gpu": sweep.gpu, "variant": sweep.variant}
    return {**named, "combinations": timed, "failed": in_short.failed(failed)}


def _size(sizes: OverSizes, shape: str) -> Data:
    """Return a size; its ratio is over the fastest reference there."""
    size = {"shape": shape, sizes.parameter: sizes.sizes[shape]}
    if (fastest := sizes.fastest_at(shape)) is None:
        return size
    line, point = fastest
    time, of = point.microseconds.value, point.fastest or None
    ratio = in_short.ratio(point.claimed)
    return {**size, "variant": line.variant, "microseconds": time, "of": of, "ratio": ratio}


def frame(result: Iterable[Sweep | OverSizes], note: Callable[[str], None]) -> DataFrame:
    """The combinations by time, or each variant at each size."""
    every = list(result)
    for text in dict.fromkeys(text for each in every for text in sentences(each.warnings)):
        note(text)
    rows: list[Data] = []
    for each in every:
        if isinstance(each, Sweep):
            rows += map(shown_fields, each.combinations)
        else:
            points = ((line.variant, point) for line in each.variants for point in line.shapes)
            rows += ({"variant": name, **shown_fields(point)} for name, point in points)
    return as_table.frame(rows, "variant")


def blocks(result: Iterable[Sweep | OverSizes], _: object) -> Iterator[Block]:
    for each in result:
        yield from sweep_view(each) if isinstance(each, Sweep) else sizes_view(each)
