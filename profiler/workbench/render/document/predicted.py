"""How the predictions of a ladder came out, in words and as a table."""

from __future__ import annotations

from workbench.judge.predictions import PredictionOutcome
from workbench.judge.scores import Score, Tally
from workbench.render.document.blocks import Block, Fold, Paragraph, words
from workbench.render.document.fields import Field, field, table
from workbench.render.numbers import number
from workbench.words import NONE, Written

MEANING = {
    Written.PRIOR: "the journal met them when nothing of their step was on record",
    Written.POSSIBLY_PRIOR: "by their author, before recorded evidence",
    Written.PROTOTYPE: "by their author",
    Written.EVIDENCE: "by their author",
    Written.LATER: "the journal met them when their step was on record",
    Written.UNKNOWN: "nothing says when",
}
TALLIES: list[Field[Tally]] = [
    field("written", "written", lambda t: f"{t.written}: {MEANING[t.written]}"),
    field("made", "predictions", lambda t: str(t.made), right=True),
    field("restated", "restated", lambda t: str(t.restated), right=True),
    field("confirmed", "confirmed", lambda t: str(t.confirmed), right=True),
    field("refuted", "refuted", lambda t: str(t.refuted), right=True),
    field("not_measurable", "not measurable", lambda t: str(t.not_measurable), right=True),
    field("score", "interval score", lambda t: number(t.score), right=True),
    field("no_change", "that of no change", lambda t: number(t.no_change), right=True),
    field("better", "better than no change", lambda t: f"{t.better} of {t.scored}", right=True),
]


def results(score: Score) -> str:
    """All that count, by result, and those of every time of writing apart."""
    again = f"; {score.restated} more restate another" if score.restated else ""
    return (
        f"{score.confirmed} confirmed, {score.refuted} refuted, {score.not_measurable} not "
        f"measurable ({by_time(score)}{again})"
    )


def by_time(score: Score) -> str:
    """Such as ``prior 3 of 4, after a prototype 2 of 2``: confirmed, of those that count."""
    return ", ".join(
        f"{group.written} {group.confirmed} of {group.total}" for group in score.groups
    )


def when(score: Score) -> list[Block]:
    """Those of every time of writing apart, with their interval scores; nothing without any."""
    if not score.groups:
        return []
    share = f"{1 - score.alpha:.0%}".replace("%", " %")
    text = (
        "A prediction restates another where it is of the same figure, or of one that follows from "
        "the time with a range that agrees with the time's. The interval score is Gneiting and "
        "Raftery's (2007, eq. 43) of the logarithm of the factor over the parent, lower is better: "
        f"the width of the range, taken as one that holds in {share} of cases (alpha = "
        f"{score.alpha:g}: nobody stated a confidence), and {2 / score.alpha:g} times the distance "
        "by which it was missed; beside it that of a factor of exactly 1. Zeros have no logarithm."
    )
    shown = table("predictions-by-time", TALLIES, score.groups, key=lambda tally: tally.written)
    title = words("Predictions by when they were written")
    return [Fold(title, (Paragraph(words(text)), shown))]


def written(outcome: PredictionOutcome) -> str:
    """When a prediction was written, and what it restates."""
    return (
        f"{outcome.written}; restates {outcome.restates}" if outcome.restates else outcome.written
    )


def scores(outcome: PredictionOutcome) -> str:
    """Its interval score, and that of no change."""
    if outcome.sharpness is None:
        return NONE
    return f"{number(outcome.sharpness.range)} ({number(outcome.sharpness.no_change)})"
