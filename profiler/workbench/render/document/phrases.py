"""What is said of a row and a ladder, the same wherever it is said, and captions of charts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from workbench.derive.speedup import Ratio, smaller
from workbench.judge.findings import sentence
from workbench.judge.gates import (
    ACCURATE,
    CORRECT,
    FASTER,
    KERNELS,
    PARENT_UNTIMED,
    RECORDINGS,
    Gate,
    shows_bug,
)
from workbench.judge.ladder import Ablation, Row, ShapeLadder
from workbench.render import doc
from workbench.render.numbers import factor, fine, interval, microseconds, number, ratio, shorten
from workbench.words import (
    ABSENT,
    BETWEEN,
    WITHOUT,
    CheckResult,
    GateState,
    NodeKind,
    Origin,
    Regime,
    Role,
    Status,
    Verdict,
    grouped,
)

REASON_WIDTH, SHAPE_WIDTH = 70, 20
SAME_SPEED = 0.01  # a bug fix whose ratio is nearer to one than this has its parent's speed
WRONG = CheckResult.WRONG
NOT_JUDGED = "not judged"  # of a row at a shape at which others start from it


def has_figures(row: Row) -> bool:
    return row.status == Status.CURRENT


def reason(row: Row) -> str:
    """Why a row has no figures, in one short phrase."""
    if row.status == Status.MISSING:
        return f"needs {row.needs}" if row.needs else "not measured"
    if row.status == Status.FAILED:
        return shorten(f"failed: {sentence(row.problem).partition(', ')[0]}", REASON_WIDTH)
    return row.status if row.status != Status.CURRENT else ABSENT


def has_verdict(row: Row) -> bool:
    """Whether its verdict rests on evidence of the present sources."""
    is_shown = bool(row.judged_at) or row.status in (Status.CURRENT, Status.FAILED)
    return is_shown and row.verdict is not None


def verdict(row: Row) -> str:
    """The verdict at the shape where it is judged, or what stands in its place."""
    if row.is_unsupported and not row.judged_at:
        return CheckResult.UNSUPPORTED.value
    if row.verdict and has_verdict(row):
        failed_baseline = row.status == Status.FAILED and row.verdict == Verdict.BASELINE
        return (Verdict.WRONG if failed_baseline else row.verdict).label
    if row.status != Status.CURRENT:
        failed = row.status == Status.FAILED  # the reason stands elsewhere
        return ABSENT if row.needs else row.status if failed else reason(row)
    if row.is_reference:
        return "reference"
    return NOT_JUDGED if row.role == Role.START else ABSENT


def verdict_words(row: Row, ablation: Ablation) -> str:
    """The verdict with its reason, so that it never seems to contradict the row's ratios:
    ``kept at S=2048: 1.18x``, ``bug fix, same speed``, ``inaccurate: 130x sdpa's error``.
    """
    word, over = verdict(row), row.deciding_speedup or row.over_parent
    if row.verdict in (None, Verdict.BASELINE) or not has_verdict(row):
        return word
    where = f" at {brief_shape(row.judged_at, ablation)}" if row.judged_at else ""
    if row.verdict == Verdict.KEPT and shows_bug(row.gates):
        if not has_same_speed(over):
            return f"bug fix{where}" + (f": {fine(over.ratio)}" if over else "")
        return f"bug fix{'' if has_same_speed(row.over_parent) else where}, same speed"
    if why := _why_not(row, row.judged_at or ablation.shape):
        return f"{word}{where}: {why}"
    return f"{word}{where}: {fine(over.ratio)}" if where and over else word + where


def has_same_speed(over: Ratio | None) -> bool:
    return over is not None and abs(over.ratio - 1) < SAME_SPEED


def _why_not(row: Row, shape: str) -> str:
    """The first gate that failed, or that is open, in a few words; empty where the ratio says why.
    ``shape`` is where the step is judged.
    """
    over, wrong = row.deciding_speedup, [c for c in row.checks.values() if c.status == WRONG]
    if row.verdict == Verdict.WRONG and wrong:
        here = row.checks.get(shape)
        error = (here if here in wrong else wrong[0]).max_abs
        return "" if error is None else f"error {number(float(error))}"
    if row.verdict not in (Verdict.WRONG, Verdict.INACCURATE, Verdict.INCONCLUSIVE):
        return ""
    for gate in row.gates:
        values = gate.why.values
        if gate.state == GateState.FAILED and gate.name == ACCURATE and row.accuracy:
            return f"{factor(row.accuracy.times_reference)} {values['reference']}'s error"
        if gate.state == GateState.FAILED and row.verdict == Verdict.WRONG:
            return gate_name(gate)
        if gate.why.code == RECORDINGS:
            return f"{fine(float(str(values['low'])))} in {values['recordings']} runs"
        if gate.state == GateState.OPEN and gate.binding:
            return "not profiled" if gate.name == KERNELS else f"{gate_name(gate)} not collected"
    if row.judged_at or over is None or over.low is None or over.high is None:
        return ""
    return f"{fine(over.low)} to {fine(over.high)}"


def gate_name(gate: Gate) -> str:
    """The name of a gate; of a bug fix, which need not be faster, the speed gate says so."""
    least = gate.why.values.get("least")
    is_loose = gate.why.code == PARENT_UNTIMED or (isinstance(least, float) and least < 1)
    return "not slower" if gate.name == FASTER and is_loose else gate.name


def kind(row: Row) -> doc.Marking:
    if row.is_reference:
        return doc.Marking.REFERENCE
    if row.verdict is None or not has_verdict(row):
        return doc.Marking.PLAIN
    return doc.Marking.REJECTED if row.verdict.is_rejected else doc.Marking(row.verdict)


def key_change(row: Row) -> doc.Cell:
    text = row.step.key_change if row.step else row.title
    return doc.Cell(doc.authored(text), short=short_change(row))


def short_change(row: Row) -> str:
    """The label of a step; of one without the first clause of its change."""
    return doc.first_clause((row.step.label or row.step.key_change) if row.step else row.title)


def figure(row: Row, name: str) -> float | None:
    collected = row.figures.get(name)
    return collected.value if collected else None


def parent_of(row: Row) -> str:
    return (row.step.parent if row.step else None) or ""


def anchor(variant: str) -> str:
    return "step-" + re.sub(r"[^a-z0-9]+", "-", variant.lower()).strip("-")


def compared(row: Row, ablation: Ablation) -> tuple[str, str]:
    """The names of a step's parent and of itself, with the shape of their captures if another."""
    shape = row.against_parent_at
    place = f" at {brief_shape(shape, ablation)}" if shape else ""
    return f"{parent_of(row)}{place}", f"{row.variant}{place}"


def took(row: Row) -> str:
    """The chained time."""
    return microseconds(row.time.value if row.time else None)


def in_cycles(ratio: Ratio | None) -> str:
    """``1.27x in cycles`` where the clock is a part of the ratio in time; else empty."""
    if ratio is None or ratio.cycles is None or not ratio.differs_in_cycles:
        return ""
    return f"{fine(ratio.cycles.value)} in cycles"


def with_cycles(ratio: Ratio | None) -> str:
    """A ratio with its interval, and in cycles where that is another."""
    cycles = in_cycles(ratio)
    return f"{interval(ratio)} ({cycles})" if cycles else interval(ratio)


def in_turn_and_alone(in_turn: Ratio | None, alone: Ratio | None) -> str:
    """``1.16x, also without other kernels``; both where they differ, of which the smaller
    counts. Empty where it was not timed alone.
    """
    claimed = smaller(in_turn, alone)
    if in_turn is None or alone is None or claimed is None:
        return ""
    if fine(in_turn.ratio) == fine(alone.ratio):
        absent = " (that figure has no interval)" if alone.low is None else ""
        return f"{fine(alone.ratio)}, also {WITHOUT}{absent}"
    both = f"{fine(in_turn.ratio)} {BETWEEN}, {interval(alone)} {WITHOUT}"
    return f"{both}; {fine(claimed.ratio)} counts"


def call_of(row: Row) -> str:
    """``a memset and a kernel``: what one call is made of, where it is more than one kernel; else
    empty.
    """
    kinds = [node.kind for node in row.call]
    if not kinds or kinds == [NodeKind.KERNEL]:
        return ""
    counts = Counter(kinds)
    named = [f"a {kind}" if n == 1 else f"{n} {kind}s" for kind, n in counts.items()]
    return " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))


def steps(ablation: Ablation) -> list[Row]:
    """The rows that change something: all but the baseline."""
    return [row for row in ablation.rows if row.step and row.verdict != Verdict.BASELINE]


def judged(ablation: Ablation) -> dict[str, tuple[ShapeLadder, Row]]:
    """Every step's row in the ladder of the shape where it is judged, by variant."""
    return {
        row.variant: (ladder, row)
        for ladder in ablation.ladders
        for row in ladder.rows
        if row.role != Role.START
    }


def by_time(rows: Iterable[Row]) -> list[tuple[float, str]]:
    """The times of the rows that were timed, with their names, the shortest first."""
    return sorted((row.time.value, row.variant) for row in rows if row.time)


def names(variants: list[str]) -> doc.Text:
    return doc.joined([doc.code(variant) for variant in variants])


def shape_words(parameters: Mapping[str, object]) -> str:
    """``B=2 H=8 causal``: a flag by its name alone, one that is off not at all."""
    return " ".join(
        key if value is True else f"{key}={value}"
        for key, value in parameters.items()
        if value is not False
    )


def table_size(ablation: Ablation) -> str:
    """The parameters of the table's shape, or its name where it has none."""
    return shape_words(ablation.parameters) or ablation.shape


def shape_name(shape: str, ablation: Ablation) -> str:
    """``B=4 H=16 S=2048 D=128 causal`` of a name that is nothing but its parameters, without the
    data type where that is the table's; every other name as it is.
    """
    parameters = ablation.shapes.get(shape, {})
    numbers = [str(v) for v in parameters.values() if not isinstance(v, str | bool)]
    if len(numbers) < 2 or not all(text in shape for text in numbers):
        return shape
    usual = "dtype", ablation.parameters.get("dtype")
    return shape_words(dict(item for item in parameters.items() if item != usual))


def described(shape: str, ablation: Ablation) -> str:
    """Name a shape, as ``shape_name``, with its parameters where the name says something else."""
    name, parameters = shape_name(shape, ablation), ablation.shapes.get(shape, {})
    return f"{name} ({shape_words(parameters)})" if parameters and name == shape else name


def brief_shape(shape: str, ablation: Ablation) -> str:
    """``S=2048``: the parameters in which a shape differs from the table's, without leading ones
    that follow from the others; its name where that says more, or where they are too long.
    """
    if shape_name(shape, ablation) == shape:
        return shape
    parameters = ablation.shapes.get(shape, {})
    alike = [p for p in ablation.shapes.values() if p.keys() == parameters.keys()]
    same = {k: v for k, v in parameters.items() if ablation.parameters.get(k) == v}
    new = {k: v for k, v in parameters.items() if k not in same}
    while len(new) > 1:
        rest = dict(list(new.items())[1:])
        if len([p for p in alike if (same | rest).items() <= p.items()]) > 1:
            break
        new = rest
    text = shape_words(new)
    return text if text and len(text) <= SHAPE_WIDTH else shape


MOST_FAILURES = 13
NAMES = (
    "One Two Three Four Five Six Seven Eight Nine Ten Eleven Twelve Thirteen Fourteen Fifteen "
    "Sixteen Seventeen Eighteen Nineteen Twenty"
)
COUNTS = dict(enumerate(NAMES.split(), start=1))


def answer(ablation: Ablation) -> doc.Text:
    """The fastest kept step beside the references and the baseline, and where it was measured."""
    best, first = ablation.best, ablation.rows[0] if ablation.rows else None
    if best is None or first is None:
        return doc.line("No variant has a current time that counts: there is no result yet.")
    opening = doc.line(doc.code(best.variant), f" takes {took(best)} per call")
    if best.variant == first.variant:
        opening = doc.line("No step was kept: ", opening)
    speeds = list(_speeds(ablation, best, first))
    result = doc.bold(doc.line(opening, ": " * bool(speeds), doc.joined(speeds), "."))
    parts: list[str | doc.Text] = [result, *over_sizes(ablation)]
    reference, error = doc.code(ablation.reference), best.accuracy
    if error is not None:
        parts += [f" Its largest error is {factor(error.times_reference)} that of ", reference, "."]
    elif any(g.name == CORRECT and g.why.values.get("max_error") == 0 for g in best.gates):
        parts.append(" Its results are exact.")
    elif ablation.reference:
        parts += [" Its error beside that of ", reference, f" is {ABSENT}."]
    if both := in_turn_and_alone(best.over_fastest, best.alone.speedup_over_fastest):
        parts.append(f" The GPU was at its power limit: {both}.")
    parts += [_claim(ablation), " Study ", doc.code(ablation.study), f" at {_basis(ablation)}"]
    return doc.line(*parts)


def over_sizes(ablation: Ablation) -> Iterator[str | doc.Text]:
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
        yield doc.line(", by ", doc.code(across.variant))
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


def _speeds(ablation: Ablation, best: Row, first: Row) -> Iterator[str]:
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
            yield f"its speed relative to {what} ({took(row)}) is {ABSENT}"
            continue
        shown = f"{with_cycles(value)} the speed of" if n == 0 else f"{ratio(value)} that of"
        yield f"{shown} {what} ({took(row)})"


def _basis(ablation: Ablation) -> str:
    """The problem, the GPU and the date."""
    fresh = ablation.source == Origin.MEASURED
    when = f"{'measured' if fresh else 'recorded'} {ablation.date or 'on an unknown date'}"
    count = ablation.recordings.total
    runs = f", {count} timing run{'s' * (count != 1)}" if count else ""
    return f"{table_size(ablation)}, {ablation.gpu}, {when}{runs}."


def calls(ablation: Ablation) -> tuple[doc.Text, ...]:
    """Return which references are more than a kernel, in one sentence each kind of call."""
    calls = ((call, row.variant) for row in ablation.references if (call := call_of(row)))
    return tuple(
        doc.line("A call of ", doc.joined([doc.code(name) for name in of], " or "), f" is {call}.")
        for call, of in grouped(calls).items()
    )


def with_cold_l2(ablation: Ablation) -> doc.Text:
    """The best step over the fastest reference with a cold L2."""
    cold = ablation.best.regimes.get(Regime.COLD) if ablation.best else None
    if cold is None or cold.speedup_over_fastest is None:
        return ()
    over = interval(cold.speedup_over_fastest)
    return doc.line(f"With a cold L2: {over} the speed of ", doc.code(cold.fastest), ".")


def failures(ablation: Ablation) -> tuple[doc.Text, ...]:
    """Rejected steps beside the path, each with its reason, the counter that explains it, and its
    lesson; of many those judged at this shape.
    """
    rejected = (row for row in steps(ablation) if row.verdict and row.verdict.is_rejected)
    every = [row for row in rejected if row not in ablation.path]
    near = sorted(every, key=lambda row: bool(row.judged_at))
    chosen = near[:MOST_FAILURES]
    more = len(every) - len(chosen)
    rest = doc.line(f"{more} more: ", doc.code(f"workbench ablate --all --study {ablation.study}"))
    shown = (_failure(row, ablation) for row in every if row in chosen)
    return (*shown, *[rest] * bool(more))


def _failure(row: Row, ablation: Ablation) -> doc.Text:
    where = f" at {brief_shape(row.judged_at, ablation)}" if row.judged_at else ""
    change = row.step.key_change if row.step else row.title
    head = doc.line(
        doc.code(row.variant), f" ({verdict(row)}{where}), ", doc.authored(change), ": "
    )
    lesson = doc.first_sentence(row.step.lesson) if row.step else ()
    return doc.line(head, _reason(row, ablation), ". ", *lost_most(row), lesson)


def lost_most(row: Row) -> Iterator[str | doc.Text]:
    """The factor that cost most of what a slower step lost, with its metric."""
    factors = row.against_parent.decomposition if row.against_parent else None
    least = min(factors.factors, key=lambda part: part.gain) if factors else None
    if least and least.gain < 1 and row.verdict in (Verdict.SLOWER, Verdict.NO_GAIN):
        ends = f"{number(least.before)} to {number(least.after)} {least.unit}"
        yield doc.line(
            f"{least.label}: {ends} ({factor(least.gain)}), ",
            doc.code(least.metric.partition(" / (")[0]),
            ". ",
        )


def _reason(row: Row, ablation: Ablation) -> doc.Text:
    """The gate that it failed; of a slower one the ratio with its interval."""
    if row.status == Status.FAILED and not row.judged_at:
        return doc.line(sentence(row.problem))
    over = row.deciding_speedup or row.over_parent
    failed = [gate for gate in row.gates if gate.state == GateState.FAILED]
    if row.verdict == Verdict.INACCURATE and row.accuracy:
        least = row.accuracy
        where = described(least.shape, ablation) + (f", {least.kind}" if least.kind else "")
        return doc.line(f"{factor(least.times_reference)} {ablation.reference}'s error at {where}")
    if over is not None and all(gate.name == FASTER for gate in failed):
        return doc.line(f"{interval(over)} the speed of ", doc.code(parent_of(row)))
    return doc.line("; ".join(sentence(gate.why) for gate in failed) or ABSENT)


def warnings(ablation: Ablation) -> tuple[doc.Text, ...]:
    untimed = ablation.across.untimed.items() if ablation.across else ()
    return (
        *(doc.line(sentence(warning)) for warning in ablation.warnings),
        *(
            doc.line(doc.code(name), " was not timed at ", names(list(at)), ".")
            for name, at in untimed
        ),
        *stale(ablation),
    )


def stale(ablation: Ablation) -> Iterator[doc.Text]:
    stale = [row.variant for row in ablation.everything if row.status == Status.STALE]
    if stale:
        yield doc.line(
            "stale, not shown: ", names(stale), " (sources changed since their measurement)"
        )
