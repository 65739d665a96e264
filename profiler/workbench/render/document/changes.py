"""The changes of a ladder, each with its evidence: why it is faster or slower, the counters and the
stalls that moved, and the changed lines with their share of the stalls.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workbench.derive.code_diff import sizes_and_summary
from workbench.derive.factors import Factor, SpeedupFactors
from workbench.derive.figures import ISSUING, UNSAMPLED
from workbench.derive.source_diff import Cost, Hunk, SourceDiff, SourceRow, add, is_host, signed
from workbench.judge.comparison import Comparison
from workbench.judge.gates import shows_bug
from workbench.judge.ladder import Ablation, Row
from workbench.judge.predictions import PredictionOutcome
from workbench.render.document import hunks, step, why
from workbench.render.document.blocks import (
    Block,
    Chart,
    CodeBlock,
    Field,
    Fold,
    Section,
    Table,
    Text,
    authored,
    code,
    field,
    first_sentence,
    line,
    numeric,
    paragraph,
    quantity_cell,
    strong,
    table,
    words,
)
from workbench.render.document.limits import stall_words
from workbench.render.document.phrases import (
    brief_shape,
    compared,
    has_same_speed,
    judged,
    kind,
    parent_of,
    short_change,
    verdict,
    verdict_words,
)
from workbench.render.numbers import (
    clip,
    count,
    factor,
    fine,
    harmless,
    interval,
    microseconds,
    number,
    percent,
    quantity,
    times,
    unit_shown,
    with_unit,
    within,
)
from workbench.words import ABSENT, NONE, Verdict

MOST_COUNTERS, LEAST_COUNTERS, MOST_STALLS = 5, 3, 3
MOST_LINES, HOTTEST, MOST_HUNKS, MOST_UNCHANGED = 12, 8, 3, 3
LARGE = 0.1  # of the logarithm of a factor that has a counter of its own
WORTH_SAYING = 0.005  # of all samples of a variant
WIDTH = 84  # of a line of code
PCSAMP = "smsp__pcsamp_warps_issue_stalled_"


@dataclass(frozen=True)
class Counter:
    """A figure before and after; ``metric`` is ncu's name."""

    label: str
    before: float
    after: float
    unit: str
    metric: str


def counters(pair: Comparison) -> list[Counter]:
    """Return those that explain the largest factors: figures by their part in the change, then
    factors that none of them speaks of. Where little moved, what stayed as it was says so.
    """
    top = pair.largest_changes.figures[:MOST_COUNTERS]
    shown = [Counter(f.label, f.before, f.after, f.unit, f.metric) for f in top]
    for part in _by_size(pair.decomposition):
        metric = part.metric.partition(" / (")[0]  # of an average scheduler
        new = all(each.metric != metric for each in shown)
        large = abs(math.log(part.gain)) >= LARGE
        if new and (large or len(shown) < LEAST_COUNTERS):
            shown.append(Counter(part.label, part.before, part.after, part.unit, metric))
    return shown


def _by_size(parts: SpeedupFactors | None) -> list[Factor]:
    return sorted(parts.factors if parts else (), key=lambda part: -abs(math.log(part.gain)))


def stalls(pair: Comparison) -> list[Counter]:
    """The stall reasons whose time changed most, in microseconds under ncu."""
    waits = (t for t in pair.stall_microseconds if t.reason not in (ISSUING, UNSAMPLED))
    return [
        Counter(f"stall: {stall_words(t.reason)}", t.before, t.after, "µs", PCSAMP + t.reason)
        for t in list(waits)[:MOST_STALLS]
    ]


def evidence(pair: Comparison, names: tuple[str, str]) -> Table:
    """The counters and the stalls of a change, with ncu's names."""
    fields: list[Field[Counter]] = [
        field("figure", "under ncu", lambda c: with_unit(c.label, c.unit)),
        numeric("before", names[0], lambda c: quantity_cell(c.before, c.unit)),
        numeric("after", names[1], lambda c: quantity_cell(c.after, c.unit)),
        numeric("factor", "factor", lambda c: times(c.before, c.after, c.unit)),
        field("metric", "metric", lambda c: code(c.metric)),
    ]
    return table("counters", fields, [*counters(pair), *stalls(pair)], key=lambda c: c.label)


def change(
    row: Row, ablation: Ablation, changes: SourceDiff | None, *, page: bool = False
) -> Section:
    """One step: what was changed, why it is faster, the evidence by counter and by line. A ``page``
    has the whole diff, the chart of its stalls, and all details.
    """
    assert row.step is not None
    ladder, here = judged(ablation).get(row.variant, (None, row))
    where = f" at {brief_shape(row.judged_at, ablation)}" if row.judged_at else ""
    parent = parent_of(row)
    rows = ladder.rows if ladder else ablation.rows
    before = next((r.time for r in rows if r.variant == parent and r.time), None)
    took = ABSENT
    if before and here.time:
        took = f"{number(before.value)} → {microseconds(here.time.value)}"
    over = row.deciding_speedup or row.over_parent
    head = f": {short_change(row)}, {took} ({interval(over)}){where}"
    changed = line(strong("Changed."), " ", authored(row.step.key_change), ".")
    blocks: list[Block] = [paragraph(changed, *_ruling(row, ablation))]
    blocks += [*_why(row, ablation), *_sizes(row, ablation)]
    if page:
        blocks += [*_lesson(row), *_charts(row), step.diff(row, changes)]
        blocks.append(step.details(row, here, where))
    else:
        blocks += _lines(changes, parent, row.variant) if changes is not None else ()
        blocks += [*_predicted(row), *_lesson(row)]
    title, name = words(row.variant + head), row.variant
    return Section(step.anchor(name), title, tuple(blocks), kind(row), name, verdict(row))


def _charts(row: Row) -> Iterator[Block]:
    if row.against_parent is not None and row.against_parent.stall_microseconds:
        alt = f"Stall time of {row.variant} beside {parent_of(row)}, under ncu."
        yield Chart(step.step_chart(row.variant), alt)
    if row.figures:
        chart = Chart(step.memory_of(row.variant), f"What {row.variant} moves, under ncu.")
        yield Fold(words("Memory chart"), (chart,))


def _ruling(row: Row, ablation: Ablation) -> Iterator[str | Text]:
    """The verdict where it is more than that the step was kept here, the bug that it fixes, and
    what it supports no longer.
    """
    said = verdict_words(row, ablation)
    if said != Verdict.KEPT.label:
        yield line(" ", strong(said[:1].upper() + said[1:]), ".")
    if row.judged_at and row.over_parent:
        yield f" At the table's size: {interval(row.over_parent)}."
    if row.step and row.step.corrects:
        bug = "Bug" if shows_bug(row.gates) else "Bug, by its author,"
        yield line(f" {bug} of ", code(parent_of(row)), ": ", authored(row.step.corrects), ".")
    if row.over_chosen:
        yield line(f" It is {interval(row.over_chosen)} of ", code(row.chosen), ", which it calls.")
    if row.shapes_dropped:
        dropped = ", ".join(brief_shape(shape, ablation) for shape in row.shapes_dropped)
        yield f" It no longer supports {dropped}."


def _why(row: Row, ablation: Ablation) -> Iterator[Block]:
    pair = row.against_parent
    if pair is None or pair.decomposition is None:
        yield paragraph(strong("Why."), f" Counters: {ABSENT}.")
        return
    parts = pair.decomposition
    shape = row.against_parent_at
    other = f", captured at {brief_shape(shape or ablation.shape, ablation)}" if shape else ""
    if row.judged_at and not shape:
        other = f", captured at the table's size, not at {brief_shape(row.judged_at, ablation)}"
    yield paragraph(strong("Why."), f" {why.equation(parts)}, {why.durations(parts)}{other}.")
    yield evidence(pair, compared(row, ablation))
    if pair.largest_changes.launch:
        yield paragraph(f"Launch: {why.launch(pair)}.")


def _sizes(row: Row, ablation: Ablation) -> Iterator[Block]:
    """The sizes at which the change holds, where several were timed: it is faster there, or as a
    bug fix no slower, by its interval.
    """
    over = {**ablation.over_parents.get(row.variant, {})}
    if decided := row.deciding_speedup or row.over_parent:
        over[row.judged_at or ablation.shape] = decided
    if len(over) < 2:
        return
    holds, same, slower = [], 0, []
    for shape, ratio in sorted(over.items(), key=lambda item: -item[1].ratio):
        is_same = has_same_speed(ratio) or (ratio.low or 0.0) < 1 < (ratio.high or 0.0)
        if (ratio.ratio > 1 and not is_same) or (is_same and shows_bug(row.gates)):
            holds.append(fine(ratio.ratio))
        elif is_same:
            same += 1
        else:
            name = "the table's size" if shape == ablation.shape else brief_shape(shape, ablation)
            slower.append(f"{name} ({fine(ratio.ratio)})")
    text = f" at {len(holds)} of {len(over)} timed sizes"
    text += f": {' to '.join(dict.fromkeys(holds[:1] + holds[-1:]))}" * bool(holds)
    text += f"; the same speed at {same}" * bool(same)
    text += f"; slower at {', '.join(slower)}" * bool(slower)
    yield paragraph(strong("Holds"), f"{text}.")


Marked = tuple[str, SourceRow]  # the sign of a line in a diff
WORD = re.compile(r"[A-Za-z_]\w{3,}")


def important(changes: SourceDiff) -> list[tuple[Hunk, list[Marked]]]:
    """Changed lines of the costliest hunks, in their order: those with the most stall time, and the
    added ones with most words that the parent does not have, since what is fast has no stalls.
    """
    known = hunks.costliest(changes) or [h for h in changes.hunks if not h.comments_only]
    every = [
        (number, place, marked)
        for number, hunk in enumerate(known[:MOST_HUNKS])
        for place, marked in enumerate(signed(list(hunk.rows)))
        if marked[0] != " " and marked[1].code
    ]
    rows = (row.before.code for file in changes.files for row in file.rows if row.before)
    old = {word for text in rows for word in WORD.findall(text)}

    def new(item: tuple[int, int, Marked]) -> int:
        sign, each = item[2]
        return -len(set(WORD.findall(each.code)) - old) if sign == "+" else 0

    ranked = sorted(every, key=lambda item: -_share(item[2][1]))
    shown = [item for item in ranked[:HOTTEST] if _share(item[2][1]) >= WORTH_SAYING]
    rest = sorted((item for item in every if item not in shown), key=new)
    shown = sorted([*shown, *rest[: MOST_LINES - len(shown)]], key=lambda item: item[:2])
    return [
        (hunk, [marked for n, _, marked in shown if n == number])
        for number, hunk in enumerate(known[:MOST_HUNKS])
        if any(n == number for n, _, _ in shown)
    ]


def _share(line: SourceRow) -> float:
    return line.cost.share or 0.0


def _lines(changes: SourceDiff, *names: str) -> Iterator[Block]:
    """The diff with the share of each line, and the time of what it does not show. Where no changed
    line has stalls, as of a change of parameters, the unchanged ones with most of them follow.
    """
    shown = important(changes)
    texts = [] if shown else [f"-{names[0]}", f"+{names[1]}"]
    for hunk, marked in shown:
        cost = "" if hunk.host else f": stall time {hunks.sides(hunk, hunks.stall_time)}"
        texts.append(f"@@ {hunks.where(hunk)}{cost} @@")
        texts += [_text(sign, each, hunk.files, _share(each)) for sign, each in marked]
    if not any(_share(each) >= WORTH_SAYING for _, marked in shown for _, each in marked):
        ranked = sorted(changes.shifts, key=lambda s: -max(_share(s.before), _share(s.after)))
        for shift in ranked[:MOST_UNCHANGED]:
            both = _share(shift.before), _share(shift.after)
            texts.append(f"@@ unchanged {hunks.shift_place(shift)} @@")
            texts.append(_text(" ", shift.after, shift.files, *both))
    yield CodeBlock(harmless("\n".join(texts)), "diff")
    if not changes.has_costs:
        yield paragraph(hunks.absences(changes, (names[0], names[1])))
        return
    if changes.kinds and all(changes.kinds):
        yield paragraph(strong("Machine code."), " ", sizes_and_summary(*changes.kinds), ".")
    told = {hunk.number for hunk, _ in shown}
    edits = [hunk for hunk in hunks.active(changes) if hunk.number in told]
    rest = [hunk for hunk in hunks.active(changes) if hunk.number not in told]
    outside = [changes.unchanged, *changes.elsewhere.values()]
    parts = [
        f"unattributed (lines that did not change): {_both(*map(add, zip(*outside, strict=True)))}"
    ]
    for what, group in (("other edits", rest), ("these edits", edits)):
        if group:
            parts.insert(0, f"{what}: {_both(*(_side(group, n) for n in (0, 1)))}")
    yield paragraph("Stall time and instructions of ", "; ".join(parts), ".")


def _side(edits: Sequence[Hunk], side: int) -> Cost | None:
    """The cost of some edits on one side; None where they have no line there."""
    costs = [(edit.before, edit.after)[side] for edit in edits if edit.span(side)]
    return add(costs) if costs else None


def _both(before: Cost | None, after: Cost | None) -> str:
    sides = (before, after)
    stall = hunks.pair(*(hunks.stalled(c) if c else NONE for c in sides))
    return f"{stall}, {hunks.pair(*(count(c.instructions) if c else NONE for c in sides))}"


def _text(sign: str, each: SourceRow, files: tuple[str, str], *shares: float) -> str:
    """A line of a diff with its share of all samples as a comment."""
    text = clip(each.text.rstrip().expandtabs(4), WIDTH)
    if max(shares) < WORTH_SAYING:
        return f"{sign}{text}"
    stalls = f"{f' {hunks.ARROW} '.join(map(percent, shares))} {stall_words(each.cost.top_stall)}"
    return f"{sign}{text:<{WIDTH}} {'#' if is_host(files[1] or files[0]) else '//'} {stalls}"


def _predicted(row: Row) -> Iterator[Block]:
    if row.predictions:
        yield paragraph(strong("Predicted."), f" {'; '.join(map(_prediction, row.predictions))}.")


def _lesson(row: Row) -> Iterator[Block]:
    if row.step and row.step.lesson.strip():
        yield paragraph(strong("Lesson."), " ", first_sentence(row.step.lesson))


def _prediction(outcome: PredictionOutcome) -> str:
    came = ABSENT
    if outcome.after is not None:
        came = f"{quantity(outcome.after, outcome.unit)} {unit_shown(outcome.unit)}".strip()
        if outcome.before and outcome.expected.endswith("x"):
            came = factor(outcome.after / outcome.before)
    return f"{within(outcome.label)} {outcome.expected}: {came}, {outcome.result}"
