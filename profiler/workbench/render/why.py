"""Why a step is faster or slower: the words and rows of a comparison, for report and terminal.

Cells are plain text; whoever puts a tool's words into Markdown makes them literal.
"""

from __future__ import annotations

import math

from workbench.derive.factors import FACTORS, SpeedupFactors
from workbench.derive.figures import ISSUING, stall_label
from workbench.derive.noise import Noise
from workbench.derive.stalls import UNSAMPLED, StallTime
from workbench.derive.standouts import Standout
from workbench.judge.comparison import Comparison
from workbench.judge.rows import Ablation
from workbench.judge.rules import RuleChange
from workbench.render.plain import printable
from workbench.render.tables import factor, markdown_table, number
from workbench.words import ABSENT, NONE, RuleMove

UNCHANGED = 0.005  # a factor nearer to one than this is called the same
# Of a factor: what a gain above one is called, and below one.
WORDS = {
    "instructions": ("fewer instructions", "more instructions"),
    "issue_rate": ("higher issue rate", "lower issue rate"),
    "active": ("more of the time active", "less of the time active"),
    "clock": ("higher clock", "lower clock"),
}
SAME_WORDS = {
    "instructions": "instructions",
    "issue_rate": "issue rate",
    "active": "time active",
    "clock": "clock",
}
STALLS_SHOWN = 6
SURPRISE_SHOWN = 99


def residual(found: SpeedupFactors) -> str:
    return f"{100 * abs(found.residual - 1):.2f} %"


def equation(found: SpeedupFactors) -> str:
    """``4.65x = 1.22x (fewer instructions) × 3.87x (higher issue rate) × ...``."""
    said = []
    for part in found.factors:
        if abs(part.gain - 1) < UNCHANGED:
            word = f"same {SAME_WORDS[part.id]}"
        else:
            word = WORDS[part.id][part.gain < 1]
        said.append(f"{factor(part.gain)} ({word})")
    return f"{factor(found.measured)} = {' × '.join(said)} (residual {residual(found)})"


def durations(found: SpeedupFactors) -> str:
    return f"{number(found.before_us)} to {number(found.after_us)} µs under ncu"


def factor_rows(found: SpeedupFactors) -> list[list[str]]:
    return [
        [f"{part.label} ({part.unit})", number(part.before), number(part.after), factor(part.gain)]
        for part in found.factors
    ]


LADDER_HEADER = (
    "step",
    "over",
    "under ncu",
    "fewer instructions",
    "issue rate",
    "time active",
    "clock",
    "residual",
)


def ladder_rows(ablation: Ablation) -> list[list[str]]:
    """Every step's factors, a line each, and the whole ladder last; empty without captures."""
    pairs = [(found.after, found) for row in ablation.rows if (found := row.against_parent)]
    if ablation.whole:
        pairs.append((f"{ablation.whole.before} to {ablation.whole.after}", ablation.whole))
    rows = []
    for name, found in pairs:
        made = found.factors
        if made is None:
            rows.append([name, found.before, *[ABSENT] * (len(FACTORS) + 2)])
            continue
        rows.append(
            [
                name,
                found.before,
                factor(made.measured),
                *(factor(part.gain) for part in made.factors),
                residual(made),
            ]
        )
    return rows


def ladder(ablation: Ablation) -> str:
    rows = ladder_rows(ablation)
    return markdown_table(list(LADDER_HEADER), rows, "llrrrrrr") if rows else ""


def reason_label(reason: str) -> str:
    if reason == UNSAMPLED:
        return "not sampled"
    return "issuing, not stalled" if reason == ISSUING else stall_label(reason)


def shown_times(found: Comparison) -> list[StallTime]:
    """The reasons that changed most, and the rest as one, so that the columns add up."""
    top = list(found.stall_times[:STALLS_SHOWN])
    rest = found.stall_times[STALLS_SHOWN:]
    if rest:
        other = StallTime("other", sum(t.before for t in rest), sum(t.after for t in rest))
        top.append(other)
    return top


def time_header(found: Comparison) -> list[str]:
    return ["warps were", f"{found.before} (µs)", f"{found.after} (µs)", "change (µs)"]


def time_rows(found: Comparison) -> list[list[str]]:
    """What the warps were doing, and the duration last; empty without samples on both sides."""
    rows = [
        [reason_label(t.reason), number(t.before), number(t.after), signed(t.change)]
        for t in shown_times(found)
    ]
    if not rows:
        return []
    was, came = (sum(getattr(t, side) for t in found.stall_times) for side in ("before", "after"))
    return [*rows, ["all (the duration)", number(was), number(came), signed(came - was)]]


def stall_times(found: Comparison) -> str:
    rows = time_rows(found)
    return markdown_table(time_header(found), rows, "lrrr") if rows else ""


def signed(change: float) -> str:
    if not change:
        return "0"
    return f"{'+' if change > 0 else '−'}{number(abs(change))}"


def surprise(move: Standout) -> str:
    return f"> {SURPRISE_SHOWN}" if move.surprise > SURPRISE_SHOWN else number(move.surprise, 2)


def move_rows(found: Comparison) -> list[list[str]]:
    rows = []
    for move in found.standouts.top:
        alike = f", and likewise: {', '.join(move.alike)}" if move.alike else ""
        rows.append(
            [
                f"{move.label} ({move.unit}){alike}",
                number(move.before),
                number(move.after),
                factor(move.factor) if move.factor else NONE,
                surprise(move),
                f"{100 * move.part:.0f} % ({move.speaks_of})",
            ]
        )
    return rows


def moves(found: Comparison) -> str:
    header = ["figure", "before", "after", "factor", "surprise (σ)", "part in the time"]
    rows = move_rows(found)
    return markdown_table(header, rows, "lrrrrl") if rows else ""


def launch(found: Comparison) -> str:
    """The launch parameters that changed, in a line."""
    return ", ".join(
        f"{m.label[:1].lower()}{m.label[1:]} {_exact(m.before)} to {_exact(m.after)}{_unit(m.unit)}"
        for m in found.standouts.launch
    )


def _exact(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else number(value)


def _unit(unit: str) -> str:
    """Only where the label does not say it: "blocks 64 to 256 block" helps nobody."""
    return f" {unit}" if unit in ("%", "kB") else ""


def paced(found: Comparison) -> str:
    return ", ".join(found.standouts.paced)


def noise(found: Noise) -> str:
    if found.captures:
        return (
            f"σ is the standard deviation of the difference of two captures, from "
            f"{found.captures} repeated captures on record, and assumed where those have none"
        )
    return (
        "σ is the standard deviation of the difference of two captures; no repeated captures are "
        "on record, so it is assumed by kind of figure: 1 % for counts and times, 4 % for rates "
        "per active cycle, 5 % for rates per elapsed time and for what the caches decide, with at "
        "least half a point for percentages and three points for hit rates"
    )


def cut(percent: float) -> str:
    return f"{number(percent)} %" if math.isfinite(percent) else "no estimate"


def rule_rows(found: Comparison) -> list[list[str]]:
    """The rules that vanished, changed or appeared."""
    rows = []
    for rule in found.rules:
        if rule.change == RuleMove.SAME:
            continue
        before = cut(rule.estimated_before_pct) if rule.change != RuleMove.APPEARED else NONE
        after = cut(rule.estimated_after_pct) if rule.change != RuleMove.VANISHED else NONE
        rows.append([rule.title, rule.rule, rule.scope or NONE, before, after, rule.change])
    return rows


def rules_alike(found: Comparison) -> int:
    return sum(rule.change == RuleMove.SAME for rule in found.rules)


def largest_promise(found: Comparison, *, removed: bool = False) -> RuleChange | None:
    """The parent's rule with the largest estimate for the whole runtime.

    ``removed``: among those that the step made vanish.
    """
    known = [rule for rule in found.rules if rule.promise is not None]
    if removed:
        known = [rule for rule in known if rule.change == RuleMove.VANISHED]
    return max(known, key=lambda r: (r.estimated_before_pct, r.title), default=None)


def promised(rule: RuleChange | None) -> str:
    if rule is None or rule.promise is None:
        return NONE
    return f"{cut(rule.estimated_before_pct)} ({factor(rule.promise)})"


def realised(found: Comparison) -> str:
    """The cut of the duration under ncu, as NVIDIA's estimates are given."""
    if found.factors is None:
        return ABSENT
    less = 100 * (1 - found.factors.after_us / found.factors.before_us)
    sign = "−" if less < 0 else ""
    return f"{sign}{number(abs(less))} % ({factor(found.factors.measured)})"


PROMISE_HEADER = (
    "step",
    "largest estimate at the parent",
    "promised",
    "rule that vanished",
    "promised",
    "realised",
)


def promise_rows(ablation: Ablation) -> list[list[str]]:
    return [_promise_row(row.against_parent) for row in ablation.rows if row.against_parent]


def _promise_row(found: Comparison) -> list[str]:
    """NVIDIA's largest estimate at the parent, the largest of a rule that vanished, the result."""
    if not found.rules:
        return [found.after, *[ABSENT] * 4, realised(found)]
    top, gone = largest_promise(found), largest_promise(found, removed=True)
    return [
        found.after,
        top.title if top else NONE,
        promised(top),
        gone.title if gone else NONE,
        promised(gone),
        realised(found),
    ]


def account(found: Comparison) -> list[str]:
    """All of a comparison as blocks of plain Markdown, for a terminal."""
    said = []
    if found.factors:
        said.append(
            f"Against {found.before}: {equation(found.factors)}, {durations(found.factors)}"
        )
    said += [block for block in (stall_times(found), moves(found)) if block]
    if found.standouts.launch:
        said.append(f"launched otherwise: {launch(found)}")
    rows = [[printable(cell) for cell in row] for row in rule_rows(found)]
    if rows:
        header = ["rule of ncu", "id", "scope", f"at {found.before}", f"at {found.after}", "change"]
        said.append(markdown_table(header, rows, "lllrrl"))
    if found.rules:
        said.append(
            f"NVIDIA's largest estimate at {found.before} for the whole runtime: "
            f"{promised(largest_promise(found))}; realised under ncu: {realised(found)}"
        )
    return said
