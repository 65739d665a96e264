"""``ablate``: a ladder, one step of it in short, or the ladders at all shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from workbench.judge.ladder import Ablation
from workbench.render import answers, as_table, doc, in_short
from workbench.render.document import ladder_report, phrases

if TYPE_CHECKING:
    from pandas import DataFrame

    from workbench.app.judge import JudgedStep


def data(result: Ablation | Iterable[Ablation], *, full: bool = True) -> object:
    if isinstance(result, Ablation):
        return answers.ablation(result, short=not full)
    return {"tables": [answers.ablation(each, short=not full) for each in result]}


def brief(result: Ablation | JudgedStep) -> dict[str, object]:
    if isinstance(result, Ablation):
        return in_short.ladder(result)
    return {
        **in_short.step(result.found, result.row),
        "provisional": result.provisional or None,
        "seconds": result.seconds,
        "failures": in_short.failed(result.failures),
        **in_short.error(result.unprofiled),
    }


def frame(result: Ablation | Iterable[Ablation], note: Callable[[str], None]) -> DataFrame:
    every = [result] if isinstance(result, Ablation) else list(result)
    for text in dict.fromkeys(text for each in every for text in phrases.warnings(each)):
        note(doc.plain(text))
    return as_table.variants(*every)


def blocks(result: Ablation | Iterable[Ablation], options: Any) -> Iterator[doc.Block]:
    """A screen, or all rows and columns, of each shape."""
    if isinstance(result, Ablation):
        named = options.fixes or []
        yield from (
            ladder_report.whole(result) if options.all_ else ladder_report.screen(result, named)
        )
        return
    for each in result:
        yield from blocks(each, options)
