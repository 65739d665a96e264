"""What was reached, what was learned and what did not work, as sentences."""

from __future__ import annotations

from collections import Counter

from workbench.derive.speedup import Ratio
from workbench.judge.findings import NOT_COLLECTED
from workbench.judge.rows import Ablation, Row
from workbench.render.document import step
from workbench.render.document.blocks import Text, bold, code, first_sentence, joined, line, words
from workbench.render.document.phrases import (
    brief_reason,
    call_of,
    has_verdict,
    kernels_alone,
    names,
    otherwise,
    parent_of,
    reason,
    steps,
    took,
    verdict,
    with_cycles,
)
from workbench.render.document.sentences import sentence
from workbench.render.numbers import factor, interval, ratio
from workbench.words import ABSENT, Origin, Regime, Status, Verdict

UNWRITTEN = "no lesson is written yet"


def result(ablation: Ablation) -> Text:
    """What was reached against what, in which regime, on which evidence, by how many steps."""
    return line(
        headline(ablation), *_other_regimes(ablation), " ", _basis(ablation), " ", _count(ablation)
    )


def headline(ablation: Ablation) -> Text:
    """The fastest kept variant beside the fastest reference, with its accuracy, and beside the
    baseline, in strong words.
    """
    best, first = ablation.best, ablation.rows[0] if ablation.rows else None
    if best is None or first is None:
        return words("No version has a current chained time that counts: there is no result yet.")
    opening = line(code(best.variant), f" takes {took(best)} chained")
    if best.variant == first.variant:
        opening = line("No step was kept: ", opening)
    if ablation.reference:
        opening = line(opening, "; ", _against_references(ablation, best))
    if best.variant != first.variant:
        baseline = line(code(first.variant), f" ({took(first)})")
        if best.over_baseline is None:
            opening = line(opening, "; its speed against ", baseline, f" was {ABSENT}")
        else:
            opening = line(opening, f"; {interval(best.over_baseline)} over ", baseline)
    return bold(line(opening, "."))


def _against_references(ablation: Ablation, best: Row) -> Text:
    """The fastest one; what its call is made of; the error beside the primary one's, the largest of
    all shapes and inputs.
    """
    name = best.chained.fastest or ablation.reference
    row = next((r for r in ablation.references if r.variant == name), None)
    what = "the fastest reference, " if best.chained.fastest else ""
    told = compared(best.over_fastest, line(what, code(name), f" ({took(row) if row else ABSENT})"))
    if row is not None and (call := call_of(row)):
        told = line(told, f", a call of which is {call}: {kernels_alone(best, row)}")
    if best.accuracy is None:
        return line(told, "; its error against that of ", code(ablation.reference), f" {ABSENT}")
    times = factor(best.accuracy.times_reference)
    return line(told, f"; its error is at worst {times} that of ", code(ablation.reference))


def compared(value: Ratio | None, name: Text) -> Text:
    """Faster, slower or neither, in words; the interval decides."""
    if value is None:
        return line("its speed against ", name, f" was {ABSENT}")
    if value.low is None or value.high is None:
        return line("it is ", interval(value), " of ", name)
    if value.low > 1:
        return line(f"it is {with_cycles(value)} faster than ", name)
    if value.high < 1:
        return line(f"it is {with_cycles(value.inverse)} slower than ", name)
    return line("it is as fast as ", name, f" within the interval ({interval(value)})")


def calls(ablation: Ablation) -> tuple[Text, ...]:
    """Which references are more than a kernel, in one sentence each kind of call."""
    by_call: dict[str, dict[str, None]] = {}
    for row in ablation.references:
        if call := call_of(row):
            by_call.setdefault(call, {})[row.variant] = None
    return tuple(
        line("A call of ", joined([code(name) for name in of], " or "), f" is {call}.")
        for call, of in by_call.items()
    )


def _other_regimes(ablation: Ablation) -> tuple[str | Text, ...]:
    """The same comparison behind itself and cold, where the headline has one."""
    best = ablation.best
    if best is None or best.over_fastest is None:
        return ()
    told = [
        line(f"{regime} {interval(known.speedup_over_fastest)} of ", code(known.fastest))
        for regime, known in best.regimes.items()
        if regime != Regime.CHAINED and known.speedup_over_fastest
    ]
    return (" In other regimes: ", joined(told), ".") if told else ()


def _basis(ablation: Ablation) -> Text:
    date = ablation.date or "an unknown date"
    fresh = ablation.source == Origin.MEASURED
    origin = f"measured by this run on {date}" if fresh else f"recorded evidence of {date}"
    facts = ablation.timing
    over = "; 95 % intervals are over sessions"
    best = ablation.best
    if best is not None and best.time is not None and best.time.sessions > 1:
        each = best.time.instances // best.time.sessions
        over = f"; the 95 % interval is over {best.time.sessions} sessions of {each} instances"
    limited = ""
    if facts is not None and facts.throttling is not None:
        limited = f" The card was {sentence(facts.throttling.finding('timing.throttling'))}."
    return words(
        "Chained is what a call adds between ordinary neighbours, which write its inputs and read "
        f"its output{over}; {ablation.gpu}, {origin}.{limited}"
    )


def _count(ablation: Ablation) -> Text:
    rows = steps(ablation)
    if not rows:
        return words("There is no step beyond the baseline.")
    current = Counter(row.verdict for row in rows if row.is_judged)
    parts = [words(f"{current[word]} {word.label}") for word in Verdict if current[word]]
    parts += [line(code(row.variant), f" {brief_reason(row)}") for row in rows if not row.is_judged]
    return line(
        f"Of {len(rows)} step{'s' * (len(rows) != 1)}: ", joined(parts), "; ", score(ablation), "."
    )


def score(ablation: Ablation) -> Text:
    """How the predictions of the ladder came out."""
    counts = ablation.score
    if not counts.total:
        return words(f"predictions {ABSENT}")
    return words(f"of {counts.total} predictions {step.results(counts)}")


def brief(ablation: Ablation) -> str:
    """The last line on a terminal."""
    best = ablation.best
    if best is None or best.over_baseline is None:
        return "no kept variant has a current chained time"
    over = best.over_fastest
    against = f"{ratio(over)} of {best.chained.fastest}, the fastest reference; " if over else ""
    error = best.accuracy
    told = f"; error {factor(error.times_reference)} that of {ablation.reference}" if error else ""
    baseline = f"{ratio(best.over_baseline)} over the baseline (chained)"
    return f"best: {best.variant}, {against}{baseline}{told}"


def lessons(ablation: Ablation) -> tuple[Text, ...]:
    """Each step's lesson in a line: its first sentence."""
    return tuple(
        line(code(row.variant), f" ({verdict(row)}): ", lesson_line(row)) for row in steps(ablation)
    )


def lesson_line(row: Row) -> Text:
    lesson = row.step.lesson if row.step else ""
    return first_sentence(lesson) if lesson.strip() else words(UNWRITTEN)


def failures(ablation: Ablation) -> tuple[Text, ...]:
    """What did not work: steps that were not kept."""
    return tuple(filter(None, map(_failure, steps(ablation))))


def _failure(row: Row) -> Text:
    """Empty where it was kept."""
    assert row.step is not None
    if row.status != Status.CURRENT and not row.judged_at:
        word = verdict(row) if has_verdict(row) else "no verdict"
        return line(code(row.variant), f": {word}, {reason(row)}.")
    if row.verdict is None or row.verdict in (Verdict.KEPT, Verdict.BASELINE):
        return ()
    missed = [gate for gate in row.gates if not gate.passed and gate.binding]
    reasons = [sentence(gate.why) for gate in missed if gate.why != NOT_COLLECTED]
    if absent := [gate.name for gate in missed if gate.why == NOT_COLLECTED]:
        reasons.insert(0, f"{ABSENT}: {', '.join(absent)}")
    why = "; ".join(filter(None, [*reasons, otherwise(row)])) or ABSENT
    where = line(" at ", code(row.judged_at)) if row.judged_at else ()
    over = f", {ratio(row.deciding_speedup or row.over_parent)} over "
    return line(
        code(row.variant),
        f" was {row.verdict.label}",
        where,
        over,
        code(parent_of(row)),
        f": {why}.",
    )


def across(ablation: Ablation) -> Text:
    """All shapes in one number, the shape where it does worst, and which reference is in the number
    of some shapes alone.
    """
    shapes = ablation.across
    if shapes is None or shapes.geometric_mean is None or shapes.worst is None:
        return line(f"Against the fastest reference at other shapes: {ABSENT}.")
    return line(
        f"Over {len(shapes.ratios)} shapes ",
        code(shapes.variant),
        f" is {factor(shapes.geometric_mean)} of the fastest reference in the geometric mean, "
        f"chained, and {ratio(shapes.worst.speedup_over_fastest)} at its worst, ",
        code(shapes.worst.shape),
        ".",
        *(
            line(" ", code(name), " was not timed at ", names(list(where)), ".")
            for name, where in shapes.untimed.items()
        ),
        *(
            line(" ", code(name), f", which came after it, was timed at {count} of them.")
            for name, count in shapes.newer.items()
        ),
    )


def warnings(ablation: Ablation) -> tuple[Text, ...]:
    stale = [row.variant for row in ablation.everything if row.status == Status.STALE]
    told = [words(sentence(found)) for found in ablation.warnings]
    if stale:
        told.append(
            line("stale, not shown: ", names(stale), " (sources changed since they were measured)")
        )
    return tuple(told)
