"""What ``workbench try`` tells: what it is, time against the reference, what limits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from workbench.judge.gates import ACCURATE, CORRECT
from workbench.judge.rows import Ablation, Row
from workbench.problems.problem import Problem
from workbench.render.document import advice, timings
from workbench.render.document.blocks import (
    Block,
    Bullets,
    Field,
    Paragraph,
    Text,
    code,
    field,
    line,
    strong,
    table,
    warned,
    words,
)
from workbench.render.document.limits import bullets
from workbench.render.document.phrases import call_of, figure, took, with_cycles
from workbench.render.document.sentences import sentence, sentences
from workbench.render.document.variant import limited, origin
from workbench.render.numbers import factor, number
from workbench.study.config import Gates
from workbench.words import ABSENT, CheckResult, Status, TryVerdict

if TYPE_CHECKING:
    from workbench.run.protocol import Learned


def introduction(problem: Problem, trial: Learned) -> list[Block]:
    """What it is, what goes in and out, and what it is checked against."""
    given = ", ".join(f"{name} {text}" for name, text in trial.inputs.items())
    lines = [words(f"takes {given}; gives {', '.join(trial.outputs)}")]
    lines.append(words(checked_by(problem, trial)))
    if trial.larger is not None:
        lines.append(words("checked for larger inputs too: 4 times each, the first row 32 times"))
    if trial.in_place:
        lines.append(words(f"changes its inputs in place: {', '.join(trial.in_place)}"))
    if trial.constant:
        lines.append(words("warning: other random inputs give the same result, so that a constant "
                           "would pass the check"))  # fmt: skip
    return [Paragraph(line(strong(problem.what))), Bullets(tuple(lines))]


def answer(verdict: TryVerdict, times: float | None, against: str) -> Text:
    """The verdict in a few words."""
    if verdict == TryVerdict.INACCURATE and times is not None:
        why = f": {factor(times)} the error of {against}, where {Gates().max_error:g}x is allowed"
        return line(strong(verdict), why)
    if verdict == TryVerdict.UNCHECKED:
        return line(strong(verdict), ": it could not be called here")
    return line(strong(verdict))


def checked_by(problem: Problem, trial: Learned) -> str:
    against = "itself" if problem.itself else problem.against
    if trial.exact:
        text = f"checked against {against} in float64"
    else:
        text = f"checked against {against} in its own precision: {trial.refusal}"
    if problem.itself:
        text += " (no --vs names another: that tells rounding errors, and not that it is right)"
    return text


ROWS: list[Field[Row]] = [
    field("variant", "", lambda r: r.variant),
    field("called", "what", lambda r: r.step.key_change if r.step else r.title, rank=2),
    field("time", "time, chained", lambda r: timings.time_cell(r.time), unit="µs", right=True),
    field("range", "95 % interval", lambda r: timings.spread(r.time), right=True, rank=1),
    field("error", "error ÷ reference's", lambda r: _error(r), right=True, rank=3),
    field("dram", "DRAM", lambda r: number(figure(r, "dram_bandwidth")), unit="GB/s", right=True,
          rank=4),
]  # fmt: skip


def _error(row: Row) -> str:
    return factor(row.accuracy.times_reference) if row.accuracy else ABSENT


def result(row: Row, judged: Ablation, *, profiled: bool) -> list[Block]:
    """Time against the reference, then the three largest bottlenecks."""
    told: list[Block] = [Paragraph(origin(judged)), *warned(sentences(judged.warnings))]
    if row.status == Status.FAILED:
        return [*told, Paragraph(line(strong("failed"), f": {sentence(row.problem)}"))]
    told.append(Paragraph(headline(row, judged)))
    told.append(table("times", ROWS, [row, *judged.references], key=lambda r: r.variant))
    if call := call_of(row):
        told.append(Paragraph(words(f"one call is {call}")))
    if correct := _correct(row):
        told.append(Paragraph(words(correct)))
    failed = [g for g in row.gates if g.passed is False and g.name not in (ACCURATE, CORRECT)]
    told += [Paragraph(words(f"{gate.name}: {sentence(gate.why)}")) for gate in failed]
    if row.bottlenecks:
        told += [Paragraph(words("What limits it:")), bullets(row.bottlenecks)]
        told.append(Paragraph(words(limited(row.occupancy_limiters))))
    else:
        told.append(Paragraph(words(f"profile: {ABSENT if profiled else 'not asked for'}")))
    return [*told, *advice.to_try(row.advice)]


def headline(row: Row, judged: Ablation) -> Text:
    """``1.06x [1.05, 1.07] of torch.softmax: 88.1 µs, and it 93.4 µs``."""
    if not judged.reference:
        return line(strong(took(row)), ", and nothing to compare it with: --vs names something")
    against = judged.row(judged.reference)
    ratio = with_cycles(row.over_reference)
    speed = line(strong(ratio), " as fast as ", code(against.title or against.variant))
    return line(speed, f": {took(row)}, and that {took(against)}")


def _correct(row: Row) -> str:
    correct = [name for name, check in row.checks.items() if check.status == CheckResult.CORRECT]
    return f"correct at {', '.join(correct)}" if correct else ""


def next_steps(steps: Sequence[Text]) -> list[Block]:
    return [Paragraph(words("Next:")), Bullets(tuple(steps))] if steps else []


def agreement(
    errors: Mapping[str, tuple[float, float]], why_not: Mapping[str, str], compiled: str = ""
) -> list[Block]:
    """What a call on the CPU did: errors absolute and relative by name, or why there is none; and
    what the compiler made of a CUDA source.
    """
    items = [
        words(f"{name}: on the CPU its largest error is {number(a)}, relative {number(r)}")
        for name, (a, r) in errors.items()
    ]
    items += [words(compiled)] if compiled else []
    items += [words(f"{name}: not called on the CPU: {why}") for name, why in why_not.items()]
    return [Bullets(tuple(items))] if items else []
