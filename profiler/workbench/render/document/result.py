"""What was reached, what was learned and what did not work, as sentences."""

from __future__ import annotations

from collections.abc import Iterator

from workbench.derive.speedup import Ratio
from workbench.judge.findings import sentence
from workbench.judge.gates import CORRECT, FASTER
from workbench.judge.ladder import Ablation, Row
from workbench.render.document.blocks import (
    Text,
    authored,
    bold,
    code,
    first_sentence,
    joined,
    line,
    words,
)
from workbench.render.document.phrases import (
    brief_shape,
    call_of,
    described,
    in_turn_and_alone,
    names,
    parent_of,
    shape_name,
    steps,
    table_size,
    took,
    verdict,
    with_cycles,
)
from workbench.render.numbers import factor, interval, number, ratio
from workbench.words import ABSENT, GateState, Origin, Regime, Status, Verdict, grouped

MOST_FAILURES = 13
NAMES = (
    "One Two Three Four Five Six Seven Eight Nine Ten Eleven Twelve Thirteen Fourteen Fifteen "
    "Sixteen Seventeen Eighteen Nineteen Twenty"
)
COUNTS = dict(enumerate(NAMES.split(), start=1))


def answer(ablation: Ablation) -> Text:
    """The fastest kept step beside the references and the baseline, and where it was measured."""
    best, first = ablation.best, ablation.rows[0] if ablation.rows else None
    if best is None or first is None:
        return words("No variant has a current time that counts: there is no result yet.")
    opening = line(code(best.variant), f" takes {took(best)} per call")
    if best.variant == first.variant:
        opening = line("No step was kept: ", opening)
    speeds = list(_speeds(ablation, best, first))
    text = bold(line(opening, ": " * bool(speeds), joined(speeds), "."))
    text = line(text, *over_sizes(ablation))
    error = best.accuracy
    if error is not None:
        text = line(text, f" Its largest error is {factor(error.times_reference)} that of ",
                    code(ablation.reference), ".")  # fmt: skip
    elif any(g.name == CORRECT and g.why.values.get("max_error") == 0 for g in best.gates):
        text = line(text, " Its results are exact.")
    elif ablation.reference:
        text = line(text, " Its error beside that of ", code(ablation.reference), f" is {ABSENT}.")
    if both := in_turn_and_alone(best.over_fastest, best.alone.speedup_over_fastest):
        text = line(text, f" The GPU was at its power limit: {both}.")
    text = line(text, _claim(ablation))
    return line(text, " Study ", code(ablation.study), f" at {_basis(ablation)}")


def over_sizes(ablation: Ablation) -> Iterator[str | Text]:
    """From the largest to the smallest speed at the other sizes, and which that is."""
    across = ablation.across
    every = across.shapes if across else ()
    others = [each for each in every if each.claimed and each.shape != ablation.shape]
    ranked = sorted(others, key=lambda each: -each.claimed.ratio if each.claimed else 0.0)
    if across is None or not ranked:
        return
    most, least = ranked[0], ranked[-1]
    count = len(ranked)
    sizes = COUNTS.get(count, str(count)) + f" other size{'s' * (count > 1)}"
    yield f" {sizes}"
    if ablation.best is None or across.variant != ablation.best.variant:
        yield line(", by ", code(across.variant))
    first = f"{ratio(most.claimed)} to " if count > 1 else ""
    where = shape_name(least.shape, ablation)
    yield f": {first}{ratio(least.claimed)} the fastest reference's speed ({where})."


def _claim(ablation: Ablation) -> str:
    """Return what another run is expected to show of the first of these ratios."""
    claimed = ablation.claimed
    if claimed is None:
        return ""
    if claimed.between is None:
        return " The interval covers this run only."
    later = interval(Ratio(claimed.ratio, claimed.later_low, claimed.later_high))
    is_one = claimed.recordings == 1
    basis = "this run" if is_one else f"{claimed.recordings} runs on {claimed.gpus} GPUs"
    if is_one or claimed.between_of:
        basis += (
            f" and the spread of others{f' on {claimed.between_of}' * bool(claimed.between_of)}"
        )
    return f" Expected of another run: {later}, by {basis}."


def _speeds(ablation: Ablation, best: Row, first: Row) -> Iterator[Text]:
    """Over the fastest reference with its interval, the primary one and the baseline."""
    rows = {row.variant: row for row in (*ablation.references, first)}
    over = {best.chained.fastest or ablation.reference: best.over_fastest}
    over.setdefault(ablation.reference, best.over_reference)
    over.setdefault(first.variant, best.over_baseline)
    for n, (name, value) in enumerate(over.items()):
        if name in ("", best.variant) or name not in rows:
            continue
        row = rows[name]
        if value is None and row.time is None:
            continue
        what = row.title if row.is_reference and row.title else name
        if value is None:
            yield words(f"its speed relative to {what} ({took(row)}) is {ABSENT}")
            continue
        shown = f"{with_cycles(value)} the speed of" if n == 0 else f"{ratio(value)} that of"
        yield words(f"{shown} {what} ({took(row)})")


def _basis(ablation: Ablation) -> str:
    """The problem, the GPU and the date."""
    fresh = ablation.source == Origin.MEASURED
    when = f"{'measured' if fresh else 'recorded'} {ablation.date or 'on an unknown date'}"
    count = ablation.recordings.total
    runs = f", {count} timing run{'s' * (count != 1)}" if count else ""
    return f"{table_size(ablation)}, {ablation.gpu}, {when}{runs}."


def calls(ablation: Ablation) -> tuple[Text, ...]:
    """Return which references are more than a kernel, in one sentence each kind of call."""
    calls = ((call, row.variant) for row in ablation.references if (call := call_of(row)))
    return tuple(
        line("A call of ", joined([code(name) for name in of], " or "), f" is {call}.")
        for call, of in grouped(calls).items()
    )


def with_cold_l2(ablation: Ablation) -> Text:
    """The best step over the fastest reference with a cold L2."""
    cold = ablation.best.regimes.get(Regime.COLD) if ablation.best else None
    if cold is None or cold.speedup_over_fastest is None:
        return ()
    over = interval(cold.speedup_over_fastest)
    return line(f"With a cold L2: {over} the speed of ", code(cold.fastest), ".")


def _lesson(row: Row) -> Text:
    return first_sentence(row.step.lesson) if row.step and row.step.lesson.strip() else ()


def failures(ablation: Ablation) -> tuple[Text, ...]:
    """Rejected steps beside the path, each with its reason, the counter that explains it, and its
    lesson; of many those judged at this shape.
    """
    rejected = (row for row in steps(ablation) if row.verdict and row.verdict.is_rejected)
    every = [row for row in rejected if row not in ablation.path]
    near = sorted(every, key=lambda row: bool(row.judged_at))
    chosen = near[:MOST_FAILURES]
    more = len(every) - len(chosen)
    rest = line(f"{more} more: ", code(f"workbench ablate --all --study {ablation.study}"))
    shown = (_failure(row, ablation) for row in every if row in chosen)
    return (*shown, *[rest] * bool(more))


def _failure(row: Row, ablation: Ablation) -> Text:
    where = f" at {brief_shape(row.judged_at, ablation)}" if row.judged_at else ""
    change = row.step.key_change if row.step else row.title
    head = line(code(row.variant), f" ({verdict(row)}{where}), ", authored(change), ": ")
    return line(head, _reason(row, ablation), ". ", *lost_most(row), _lesson(row))


def lost_most(row: Row) -> Iterator[str | Text]:
    """The factor that cost most of what a slower step lost, with its metric."""
    factors = row.against_parent.decomposition if row.against_parent else None
    least = min(factors.factors, key=lambda part: part.gain) if factors else None
    if least and least.gain < 1 and row.verdict in (Verdict.SLOWER, Verdict.NO_GAIN):
        ends = f"{number(least.before)} to {number(least.after)} {least.unit}"
        yield line(
            f"{least.label}: {ends} ({factor(least.gain)}), ",
            code(least.metric.partition(" / (")[0]),
            ". ",
        )


def _reason(row: Row, ablation: Ablation) -> Text:
    """The gate that it failed; of a slower one the ratio with its interval."""
    if row.status == Status.FAILED and not row.judged_at:
        return words(sentence(row.problem))
    over = row.deciding_speedup or row.over_parent
    failed = [gate for gate in row.gates if gate.state == GateState.FAILED]
    if row.verdict == Verdict.INACCURATE and row.accuracy:
        least = row.accuracy
        where = described(least.shape, ablation) + (f", {least.kind}" if least.kind else "")
        return words(f"{factor(least.times_reference)} {ablation.reference}'s error at {where}")
    if over is not None and all(gate.name == FASTER for gate in failed):
        return line(f"{interval(over)} the speed of ", code(parent_of(row)))
    return words("; ".join(sentence(gate.why) for gate in failed) or ABSENT)


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
        f"and {ratio(shapes.worst.claimed)} at its worst, ",
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
    return (*(words(sentence(found)) for found in ablation.warnings), *stale(ablation))


def stale(ablation: Ablation) -> Iterator[Text]:
    stale = [row.variant for row in ablation.everything if row.status == Status.STALE]
    if stale:
        yield line("stale, not shown: ", names(stale), " (sources changed since their measurement)")
