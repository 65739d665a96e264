"""The few figures that a reader looks for first, each by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from workbench.derive.intervals import Ratio
from workbench.judge.rows import Ablation
from workbench.render.document import predicted
from workbench.render.document.phrases import steps
from workbench.render.numbers import fine, number
from workbench.words import ABSENT, Verdict


@dataclass(frozen=True)
class Tile:
    label: str
    value: str
    note: str


def tiles(ablation: Ablation) -> list[Tile]:
    return [*_speed(ablation), *_verdicts(ablation), *_predictions(ablation)]


def _speed(ablation: Ablation) -> Iterator[Tile]:
    best = ablation.best
    if best is None or best.time is None:
        return
    yield Tile(f"best: {best.variant}", f"{number(best.time.value)} µs", "chained time")
    for ratio, name in (
        (best.over_fastest, best.chained.fastest),
        (best.over_baseline, ablation.rows[0].variant),
    ):
        if ratio is not None and name not in ("", best.variant):
            yield Tile(f"speed relative to {name}", fine(ratio.ratio), _interval(ratio))


def _interval(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return f"interval {ABSENT}"
    return f"{fine(ratio.low)} to {fine(ratio.high)}, {ratio.level} % interval"


def _verdicts(ablation: Ablation) -> Iterator[Tile]:
    count = Counter(row.verdict or row.status for row in steps(ablation))
    kept = count.pop(Verdict.KEPT, 0)
    others = ", ".join(f"{n} {word}" for word, n in sorted(count.items()))
    if total := kept + count.total():
        yield Tile("steps kept", f"{kept} of {total}", others or "none was rejected")


def _predictions(ablation: Ablation) -> Iterator[Tile]:
    score = ablation.score
    if score.total:
        note = predicted.by_time(score)
        yield Tile("predictions confirmed", f"{score.confirmed} of {score.total}", note)
