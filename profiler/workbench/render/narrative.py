"""Sentences computed from the data: the result, the method, and what did not work."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from workbench.derive.speedup import Ratio
from workbench.judge.rows import Ablation, Row
from workbench.render.old_markdown import authored, code, literal
from workbench.render.tables import factor, interval, number, ratio, reason
from workbench.words import ABSENT, PredictionResult, Status, Verdict


def microseconds(row: Row) -> str:
    return f"{number(row.warm.median)} µs" if row.warm else ABSENT


def decision(row: Row) -> str:
    """Where another shape than the table's decides: the ratio there. Else nothing."""
    if not row.judged_at:
        return ""
    return f"{interval(row.deciding)} over {code(parent_of(row))} at {code(row.judged_at)}"


def parent_of(row: Row) -> str:
    return (row.step.parent if row.step else None) or ""


def compared(found: Ratio | None, name: str) -> str:
    """Faster, slower or neither, in words; the interval decides."""
    if found is None:
        return f"its speed against {name} was {ABSENT}"
    if found.low > 1:
        return f"it is {interval(found)} faster than {name}"
    if found.high < 1:
        slower = Ratio(1 / found.ratio, 1 / found.high, 1 / found.low)
        return f"it is {interval(slower)} slower than {name}"
    return f"it is as fast as {name} within the interval ({interval(found)})"


def result(ablation: Ablation) -> str:
    """The first paragraph: what was reached, against what, and on which evidence."""
    best, first = ablation.best, ablation.rows[0] if ablation.rows else None
    if best is None or first is None:
        opening = "No version has a current time that counts: there is no result yet."
    else:
        named = [r for r in ablation.references if r.variant == ablation.reference]
        other = f"{code(ablation.reference)} ({', '.join(map(microseconds, named)) or ABSENT})"
        if best.variant == first.variant:
            opening = f"No step was kept: {code(best.variant)} takes {microseconds(best)}"
        else:
            opening = (
                f"{code(best.variant)} takes {microseconds(best)}, {interval(best.over_baseline)} "
                f"over {code(first.variant)} ({microseconds(first)})"
            )
        opening = f"**{opening}; {compared(best.over_reference, other)}.**"
    return f"{opening} {_basis(ablation)} {_count(ablation)}".strip()


def _basis(ablation: Ablation) -> str:
    date = ablation.date or "an unknown date"
    measured = ablation.source == "measured"
    words = f"measured by this run on {date}" if measured else f"recorded evidence of {date}"
    return (
        f"Times are warm medians (inputs in the L2 cache where they fit), ratios medians of paired "
        f"rounds with their 95 % intervals; {literal(ablation.gpu)}, {words}."
    )


def across(ablation: Ablation) -> str:
    """All shapes in one number, and the shape where it does worst."""
    found = ablation.across
    if found is None or found.geometric_mean is None or found.worst is None:
        return f"Against {code(ablation.reference)} at other shapes: {ABSENT}."
    return (
        f"Over {len(found.ratios)} shapes {code(found.variant)} is "
        f"{factor(found.geometric_mean)} of {code(ablation.reference)} in the geometric mean, "
        f"and {ratio(found.worst.over_reference)} at its worst, {code(found.worst.shape)}."
    )


def _count(ablation: Ablation) -> str:
    steps = [row for row in ablation.rows if row.verdict != Verdict.BASELINE]
    if not steps:
        return "There is no step beyond the baseline."
    current = Counter(row.verdict for row in steps if row.status == Status.CURRENT)
    parts = [
        f"{current[word]} {word}"
        for word in (Verdict.KEPT, Verdict.REJECTED, Verdict.INCONCLUSIVE)
        if current[word]
    ]
    others = [
        f"{code(row.variant)} {literal(reason(row))}"
        for row in steps
        if row.status != Status.CURRENT
    ]
    return f"Of {len(steps)} step{'s' * (len(steps) != 1)}: {', '.join(parts + others)}."


def method(ablation: Ablation) -> list[str]:
    """How correctness, times and profiles were had, as the provenance says."""
    samples = {r.warm.samples for r in ablation.everything if r.warm}
    rounds = " or ".join(str(n) for n in sorted(samples)) or f"a number of ({ABSENT})"
    flags = " ".join(ablation.environment.ncu_flags)
    return [
        "Correctness: every variant is checked against the study's float64 reference on fresh "
        "random inputs at several shapes; outputs are filled with NaN before each call, and inputs "
        "must be unchanged after it. What fails is not timed.",
        f"Times: {rounds} rounds, every variant once a round in random order, in one process. Warm "
        "replays a CUDA graph of several calls; cold flushes the L2 cache before each call. A "
        "speedup is the median of the paired ratios with its 95 % bootstrap interval.",
        f"Profiles: {_profile(flags)} So durations, rates and roofline points under ncu are not to "
        "be compared with warm times.",
    ]


def _profile(flags: str) -> str:
    words = flags.split()
    options = dict(pairwise(words))
    caches = {
        "all": "caches flushed before every pass",
        "none": "caches left as they were",
    }.get(options.get("--cache-control", ""), f"cache control {ABSENT}")
    clock = options.get("--clock-control", "")
    clocks = {"none": "clocks left alone"}.get(clock, f"clock control {clock or ABSENT}")
    return f"a run of its own under Nsight Compute, kernel by kernel, {caches}, {clocks}."


def failures(ablation: Ablation) -> list[str]:
    """What did not work: steps that were not kept, and predictions that did not come true."""
    said = []
    for row in ablation.rows:
        if row.step is None or row.verdict == Verdict.BASELINE:
            continue
        if row.status != Status.CURRENT:
            said.append(f"{code(row.variant)}: no verdict, {literal(reason(row))}.")
        elif row.verdict in (Verdict.REJECTED, Verdict.INCONCLUSIVE):
            why = "; ".join(literal(g.why) for g in row.gates if not g.passed) or ABSENT
            change = authored(row.step.key_change)
            where = f" at {code(row.judged_at)}" if row.judged_at else ""
            over = ratio(row.deciding or row.over_parent)
            said.append(
                f"{code(row.variant)} ({change}) was {row.verdict}{where}, "
                f"{over} over {code(row.step.parent or '')}: {why}."
            )
        for outcome in row.predictions if row.status == Status.CURRENT else ():
            if outcome.result == PredictionResult.REFUTED:
                said.append(
                    f"{code(row.variant)}, {literal(outcome.label)}: expected "
                    f"{literal(outcome.expected)}, came {came(outcome.before, outcome.after)}."
                )
    return said


def came(before: float | None, after: float | None) -> str:
    if before and after is not None:
        return f"{number(after)} ({factor(after / before)} of {number(before)})"
    return number(after)
