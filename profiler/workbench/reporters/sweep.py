"""``sweep``: combinations of parameters, or variants over a range of shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from workbench.judge.sweeps import OverSizes, Sweep
from workbench.render.document.blocks import Block
from workbench.render.document.parameters import sweep_view
from workbench.render.document.timings import sizes_view


def data(result: Iterable[Sweep | OverSizes]) -> dict[str, object]:
    every = list(result)
    return {"sweeps" if isinstance(every[0], Sweep) else "sizes": every}


def blocks(result: Iterable[Sweep | OverSizes], _: object) -> Iterator[Block]:
    for each in result:
        yield from sweep_view(each) if isinstance(each, Sweep) else sizes_view(each)
