"""Steps that choose among others, where one of these would have been faster. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.judge.rows import ShapeLadder
    from workbench.study.config import Gates


def choice_warnings(ladders: Iterable[ShapeLadder], gates: Gates, table: str) -> Iterator[str]:
    """Of choices that are slower than what they could have chosen, by as much as a step has to
    bring and at the sure end of the interval.
    """
    for ladder in ladders:
        where = "" if ladder.shape == table else f" at {ladder.shape}"
        for row in ladder.rows:
            over = row.over_chosen
            if over is None or over.low is None or over.high is None:
                continue
            if over.high * gates.min_speedup < 1:
                yield (
                    f"{row.variant} does not choose the fastest{where}: it is {over.ratio:.3f}x "
                    f"[{over.low:.3f}, {over.high:.3f}] of {row.chosen}"
                )
