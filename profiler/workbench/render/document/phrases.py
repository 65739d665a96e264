"""What is said of one row of a ladder in a few words, the same wherever it is said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from workbench.derive.speedup import Ratio, smaller
from workbench.judge.findings import NOT_COLLECTED, sentence
from workbench.judge.gates import KERNELS, shows_bug
from workbench.judge.ladder import Ablation, Row, ShapeLadder
from workbench.render.document.blocks import (
    Cell,
    Marking,
    Text,
    authored,
    code,
    first_clause,
    joined,
)
from workbench.render.numbers import factor, fine, interval, microseconds, shorten
from workbench.words import ABSENT, CheckResult, GateState, NodeKind, Role, Status, Verdict

REASON_WIDTH, LINE_WIDTH, NOTE_WIDTH = 60, 75, 160
NOT_JUDGED = "not judged"  # of a row at a shape at which others start from it


def has_figures(row: Row) -> bool:
    return row.status == Status.CURRENT


def reason(row: Row) -> str:
    """Why a row has no figures, in one short phrase."""
    if row.status == Status.MISSING:
        return f"needs {row.needs}" if row.needs else "not measured"
    if row.status == Status.FAILED:
        return shorten(f"failed: {sentence(row.problem)}", REASON_WIDTH)
    return row.status if row.status != Status.CURRENT else ABSENT


def brief_reason(row: Row) -> str:
    """The same in a word or two, where the reason stands elsewhere."""
    return row.status if row.status == Status.FAILED else reason(row)


def has_verdict(row: Row) -> bool:
    """Whether its verdict rests on evidence of the present sources."""
    known = bool(row.judged_at) or row.status in (Status.CURRENT, Status.FAILED)
    return known and row.verdict is not None


def verdict(row: Row) -> str:
    """The verdict at the shape where it is judged, or what stands in its place."""
    if row.is_unsupported and not row.judged_at:
        return CheckResult.UNSUPPORTED.value
    if row.verdict and has_verdict(row):
        failed_baseline = row.status == Status.FAILED and row.verdict == Verdict.BASELINE
        return (Verdict.WRONG if failed_baseline else row.verdict).label
    if row.status != Status.CURRENT:
        return ABSENT if row.needs else brief_reason(row)
    if row.is_reference:
        return "reference"
    return NOT_JUDGED if row.role == Role.START else ABSENT


def verdict_at(row: Row) -> str:
    """The verdict in a sentence, with the shape where that is not the table's."""
    return verdict(row) + (f" at {row.judged_at}" if row.judged_at and row.verdict else "")


def note(row: Row) -> str:
    """What a reader must know of a verdict, in one line; empty where the verdict says it all."""
    over = row.deciding_speedup
    parts = [
        f"judged at {row.judged_at}" + (f": {interval(over)} over {parent_of(row)}" if over else "")
        if row.judged_at and row.verdict
        else "",
        *_why_failed(row),
        _bug_fix(row),
        _decided(row),
        _not_profiled(row),
        f"dispatcher: {factor(row.over_chosen.ratio)} of {row.chosen}" if row.over_chosen else "",
    ]
    text = "; ".join(filter(None, parts))
    while len(text) > LINE_WIDTH and (cut := max(text.rfind("; "), text.rfind(", "))) > 0:
        text = text[:cut]
    return text


def _bug_fix(row: Row) -> str:
    if row.step is None or not row.step.corrects:
        return ""
    shown = shows_bug(row.gates)
    return "bug fix: need not be faster" if shown else "bug fix: no recorded check shows the bug"


def _decided(row: Row) -> str:
    """The ratio that decides, where more sessions came for it than those of the table."""
    over, own = row.deciding_speedup, row.over_parent
    if row.judged_at or over is None or own is None or over.sessions == own.sessions:
        return ""
    return f"by {over.sessions} sessions {interval(over)} over {parent_of(row)}"


def _not_profiled(row: Row) -> str:
    """Why a ratio that is clear has no verdict."""
    if row.verdict != Verdict.INCONCLUSIVE or row.step is None or not (row.time or row.judged_at):
        return ""
    absent = any(gate.name == KERNELS and gate.why == NOT_COLLECTED for gate in row.gates)
    at = row.judged_at or "this shape"
    return f"not profiled at {at}, so not kept: run workbench profile" if absent else ""


def _why_failed(row: Row) -> list[str]:
    if row.status == Status.FAILED and not row.judged_at:
        return [shorten(sentence(row.problem), NOTE_WIDTH)]
    if row.verdict not in (Verdict.WRONG, Verdict.INACCURATE, Verdict.UNSEEN_SHAPE):
        return []
    failed = (gate.why for gate in row.gates if gate.state == GateState.FAILED)
    return [shorten("; ".join(map(sentence, failed)), NOTE_WIDTH)]


def kind(row: Row) -> Marking:
    if row.is_reference:
        return Marking.REFERENCE
    if row.verdict is None or not has_verdict(row):
        return Marking.PLAIN
    return Marking.REJECTED if row.verdict.is_rejected else Marking(row.verdict)


def key_change(row: Row) -> Cell:
    text = row.step.key_change if row.step else row.title
    return Cell(authored(text), sort=text.lower(), data=text, short=short_change(row))


def short_change(row: Row) -> str:
    """The label of a step; of one without the first clause of its change."""
    return first_clause((row.step.label or row.step.key_change) if row.step else row.title)


def figure(row: Row, name: str) -> float | None:
    known = row.figures.get(name)
    return known.value if known else None


def parent_of(row: Row) -> str:
    return (row.step.parent if row.step else None) or ""


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
    """``1.21x in turn, 1.15x [1.14, 1.16] alone; 1.15x is claimed``; empty where it was not timed
    alone.
    """
    claimed = smaller(in_turn, alone)
    if in_turn is None or alone is None or claimed is None:
        return ""
    both = f"{fine(in_turn.ratio)} in turn, {interval(alone)} alone"
    return f"{both}; {fine(claimed.ratio)} is claimed"


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


def names(variants: list[str]) -> Text:
    return joined([code(variant) for variant in variants])


def shape_words(parameters: Mapping[str, object]) -> str:
    """``B=2 H=8 causal``: a flag by its name alone, one that is off not at all."""
    return " ".join(
        key if value is True else f"{key}={value}"
        for key, value in parameters.items()
        if value is not False
    )
