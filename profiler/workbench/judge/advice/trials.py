"""The steps of a judged ladder as answers to what was advised at their parents. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.judge.advice.advise import Tried
from workbench.judge.advice.nvidia import promises
from workbench.judge.advice.record import JUDGED, Trial
from workbench.words import Change, RuleMove

if TYPE_CHECKING:
    from workbench.judge.comparison import Comparison
    from workbench.judge.rows import Row
    from workbench.judge.view import View, Views


def trials_of(views: Views, rows: Iterable[Row]) -> Iterator[Trial]:
    """One a step that changes another to be faster, at the shape where it is judged."""
    for row in rows:
        if row.step is not None and row.step.parent is not None and not row.step.corrects:
            view = views.at(row.judged_at) if row.judged_at else views.table
            compared = row.compared_at or views.table.shape
            yield _trial(view, row, row.against_parent if compared == view.shape else None)


def _trial(view: View, row: Row, pair: Comparison | None) -> Trial:
    assert row.step is not None
    assert row.step.parent is not None
    parent = view.variant(row.step.parent)
    rules = parent.capture.rules if parent.capture else None
    return Trial(
        variant=row.variant,
        parent=row.step.parent,
        shape=view.shape,
        kind=row.step.kind,
        verdict=row.verdict,
        ratio=row.deciding.ratio if row.deciding else None,
        saved=1 - 1 / pair.factors.measured if pair and pair.factors else None,
        advised=view.advice(row.step.parent),
        promised=promises(rules) if rules is not None else None,
        vanished=frozenset(
            (rule.rule, rule.title)
            for rule in (pair.rules if pair else ())
            if rule.change == RuleMove.VANISHED
        ),
    )


def told_what_was_tried(
    rows: Iterable[Row], trials: Iterable[Trial], shape: str
) -> tuple[Row, ...]:
    """Rows of one shape, their advice with what came of it so far."""
    here = [trial for trial in trials if trial.shape == shape and trial.verdict in JUDGED]
    return tuple(_told(row, [t for t in here if t.parent == row.variant]) for row in rows)


def _told(row: Row, trials: Iterable[Trial]) -> Row:
    if row.advice is None:
        return row
    tried: dict[Change, list[Tried]] = {}
    for trial in trials:
        if trial.kind and trial.verdict:
            tried.setdefault(trial.kind, []).append(Tried(trial.variant, trial.verdict))
    told = (replace(one, tried=tuple(tried.get(one.change, ()))) for one in row.advice)
    return replace(row, advice=tuple(told))
