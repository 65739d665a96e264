"""``ablate``: a ladder, one step of it in short, or the ladders at all shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from workbench.judge.ladder import Ablation
from workbench.render import answers
from workbench.render import brief as in_short
from workbench.render.document import ladder_view
from workbench.render.document.blocks import Block, Section

if TYPE_CHECKING:
    from workbench.app.judge import JudgedStep


def data(result: Ablation | Iterable[Ablation], *, full: bool = True) -> object:
    if isinstance(result, Ablation):
        return answers.ablation(result, short=not full)
    return {"tables": [answers.ablation(each, short=not full) for each in result]}


def brief(result: Ablation | JudgedStep) -> dict[str, object]:
    if isinstance(result, Ablation):
        return in_short.ladder(result)
    return {
        **in_short.step(result.found, result.row, result.left_s),
        "provisional": result.provisional or None,
        "seconds": in_short.number(result.seconds),
        "failures": in_short.failed(result.failures),
        **in_short.error(result.unprofiled),
    }


def blocks(result: Ablation | Iterable[Ablation], options: Any) -> Iterator[Block]:
    if isinstance(result, Ablation):
        yield from _ladder(result, options)
        return
    last = None
    for last in result:
        if options.csv:
            yield Section(last.shape, (), tuple(_ladder(last, options)))
        else:
            yield from _ladder(last, options)
    if last is not None and not options.csv:
        yield from ladder_view.across(last)


def _ladder(judged: Ablation, options: Any) -> list[Block]:
    """A screen, all rows and columns, or all values."""
    if options.csv:
        return ladder_view.rows(judged)
    if options.all_ or options.wide:
        return ladder_view.whole(judged)
    return ladder_view.screen(judged, options.fixes or [])
