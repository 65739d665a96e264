"""What was reached, what was learned and what did not work, as sentences."""

from __future__ import annotations

from collections import Counter

from workbench.derive.speedup import Ratio
from workbench.judge.predictions import PredictionOutcome
from workbench.judge.rows import Ablation, Row
from workbench.render.document import predicted
from workbench.render.document.authored import authored, first_sentence
from workbench.render.document.blocks import Text, bold, code, joined, line, words
from workbench.render.document.phrases import names, parent_of, reason, steps, warm
from workbench.render.numbers import factor, interval, quantity, ratio
from workbench.words import ABSENT, Origin, PredictionResult, Status, Verdict

UNWRITTEN = "no lesson is written yet"


def result(ablation: Ablation) -> Text:
    """Three sentences: what was reached against what, on which evidence, by how many steps."""
    return line(headline(ablation), " ", _basis(ablation), " ", _count(ablation))


def headline(ablation: Ablation) -> Text:
    """The fastest kept variant beside baseline and reference, in strong words."""
    best, first = ablation.best, ablation.rows[0] if ablation.rows else None
    if best is None or first is None:
        return words("No version has a current time that counts: there is no result yet.")
    if best.variant == first.variant:
        opening = line("No step was kept: ", code(best.variant), f" takes {warm(best)}")
    else:
        opening = line(
            code(best.variant),
            f" takes {warm(best)}, {interval(best.over_baseline)} over ",
            code(first.variant),
            f" ({warm(first)})",
        )
    if ablation.reference:
        opening = line(opening, "; ", compared(best.over_reference, _reference(ablation)))
    return bold(line(opening, "."))


def _reference(ablation: Ablation) -> Text:
    times = [warm(r) for r in ablation.references if r.variant == ablation.reference]
    return line(code(ablation.reference), f" ({', '.join(times) or ABSENT})")


def compared(value: Ratio | None, name: Text) -> Text:
    """Faster, slower or neither, in words; the interval decides."""
    if value is None:
        return line("its speed against ", name, f" was {ABSENT}")
    if value.low > 1:
        return line(f"it is {interval(value)} faster than ", name)
    if value.high < 1:
        slower = Ratio(1 / value.ratio, 1 / value.high, 1 / value.low)
        return line(f"it is {interval(slower)} slower than ", name)
    return line("it is as fast as ", name, f" within the interval ({interval(value)})")


def _basis(ablation: Ablation) -> Text:
    date = ablation.date or "an unknown date"
    fresh = ablation.source == Origin.MEASURED
    origin = f"measured by this run on {date}" if fresh else f"recorded evidence of {date}"
    return words(
        "Times are warm medians (inputs in the L2 cache where they fit), ratios medians of paired "
        f"rounds with their 95 % intervals; {ablation.gpu}, {origin}."
    )


def _count(ablation: Ablation) -> Text:
    rows = steps(ablation)
    if not rows:
        return words("There is no step beyond the baseline.")
    current = Counter(row.verdict for row in rows if row.status == Status.CURRENT)
    parts = [
        words(f"{current[word]} {word}")
        for word in (Verdict.KEPT, Verdict.REJECTED, Verdict.INCONCLUSIVE)
        if current[word]
    ]
    parts += [
        line(code(row.variant), f" {reason(row)}") for row in rows if row.status != Status.CURRENT
    ]
    return line(
        f"Of {len(rows)} step{'s' * (len(rows) != 1)}: ", joined(parts), "; ", score(ablation), "."
    )


def score(ablation: Ablation) -> Text:
    """How the predictions of the ladder came out."""
    counts = ablation.score
    if not counts.total:
        return words(f"predictions {ABSENT}")
    return words(f"of {counts.total} predictions {predicted.results(counts)}")


def brief(ablation: Ablation) -> str:
    """The last line on a terminal."""
    best = ablation.best
    if best is None or best.over_baseline is None:
        return "no kept variant has a current time"
    over = best.over_reference
    against = f", {ratio(over)} of {ablation.reference}" if over else ""
    return f"best: {best.variant}, {ratio(best.over_baseline)} over the baseline{against} (warm)"


def lessons(ablation: Ablation) -> tuple[Text, ...]:
    """Each step's lesson in a line: its first sentence."""
    return tuple(
        line(code(row.variant), f" ({_short_verdict(row)}): ", lesson_line(row))
        for row in steps(ablation)
    )


def lesson_line(row: Row) -> Text:
    lesson = row.step.lesson if row.step else ""
    return first_sentence(lesson) if lesson.strip() else words(UNWRITTEN)


def _short_verdict(row: Row) -> str:
    return (row.verdict or ABSENT) if row.status == Status.CURRENT else reason(row)


def failures(ablation: Ablation) -> tuple[Text, ...]:
    """What did not work: steps that were not kept, and predictions that did not come true."""
    return tuple(text for row in steps(ablation) for text in _failures(row))


def _failures(row: Row) -> list[Text]:
    assert row.step is not None
    if row.status != Status.CURRENT:
        return [line(code(row.variant), f": no verdict, {reason(row)}.")]
    told = []
    if row.verdict in (Verdict.REJECTED, Verdict.INCONCLUSIVE):
        why = "; ".join(gate.why for gate in row.gates if not gate.passed) or ABSENT
        where = line(" at ", code(row.judged_at)) if row.judged_at else ()
        told.append(
            line(
                code(row.variant),
                " (",
                authored(row.step.key_change),
                f") was {row.verdict}",
                where,
                f", {ratio(row.deciding or row.over_parent)} over ",
                code(parent_of(row)),
                f": {why}.",
            )
        )
    told += [
        line(
            code(row.variant),
            f", {outcome.label}: expected {outcome.expected}, measured {measured_words(outcome)}.",
        )
        for outcome in row.predictions
        if outcome.result == PredictionResult.REFUTED
    ]
    return told


def measured_words(outcome: PredictionOutcome) -> str:
    before, after = outcome.before, outcome.after
    told = quantity(after, outcome.unit)
    if not before or after is None:
        return told
    return f"{told} ({factor(after / before)} of {quantity(before, outcome.unit)})"


def across(ablation: Ablation) -> Text:
    """All shapes in one number, and the shape where it does worst."""
    shapes = ablation.across
    if shapes is None or shapes.geometric_mean is None or shapes.worst is None:
        return line("Against ", code(ablation.reference), f" at other shapes: {ABSENT}.")
    return line(
        f"Over {len(shapes.ratios)} shapes ",
        code(shapes.variant),
        f" is {factor(shapes.geometric_mean)} of ",
        code(ablation.reference),
        f" in the geometric mean, and {ratio(shapes.worst.over_reference)} at its worst, ",
        code(shapes.worst.shape),
        ".",
    )


def warnings(ablation: Ablation) -> tuple[Text, ...]:
    stale = [row.variant for row in ablation.everything if row.status == Status.STALE]
    told = [words(text) for text in ablation.warnings]
    if stale:
        told.append(
            line("stale, not shown: ", names(stale), " (sources changed since they were measured)")
        )
    return tuple(told)
