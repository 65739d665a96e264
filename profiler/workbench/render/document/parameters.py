"""Sweeps and leave-one-out: every combination by its time, and what each switch is worth."""

from __future__ import annotations

from collections import Counter

from workbench.derive.speedup import Ratio
from workbench.judge.leave_one_out import LeftOut, Worth
from workbench.judge.parameter_sweep import Combination, Fate, Sweep
from workbench.render.document.blocks import (
    Block,
    Bullets,
    Cell,
    Content,
    Field,
    Marking,
    TableColumn,
    Text,
    code,
    field,
    figure_cell,
    interval_cell,
    line,
    numeric,
    paragraph,
    strong,
    table,
    warned,
    words,
)
from workbench.render.document.sentences import sentence, sentences
from workbench.render.numbers import ends, factor, interval, microseconds, shorten
from workbench.study.params import value_text
from workbench.words import ABSENT, NONE, Origin

WHY, WHY_UNTIMED = 60, 70  # characters
INTERVAL = "[95 % interval]"


def varied(sweep: Sweep) -> list[str]:
    """The parameters that have several values."""
    return [name for name, values in sweep.parameters.items() if len(values) > 1]


def _fields(sweep: Sweep) -> list[Field[Combination]]:
    own: list[Field[Combination]] = [
        Field(TableColumn(f"={name}", name), lambda c, name=name: _value(c, name))  # type: ignore[misc]
        for name in varied(sweep)
    ]
    return [
        *own,
        field("role", "", lambda c: _role(sweep, c)),
        numeric("time", "time, chained", _time, unit="µs", note=INTERVAL, json="time"),
        numeric(
            "ratio",
            f"vs default {INTERVAL}",
            lambda c: interval_cell(c.over_default),
            json="over_default",
        ),
        numeric("registers", "registers", lambda c: _count(c, c.registers), rank=2),
        numeric("spills", "spills", lambda c: _count(c, c.spill_bytes), unit="B", rank=4),
        numeric("shared", "shared", lambda c: _count(c, c.shared_bytes), unit="B", rank=3),
        numeric(
            "occupancy",
            "occupancy",
            lambda c: figure_cell(c.occupancy_percent, NONE * (c.occupancy_percent is None)),
            unit="%",
            rank=4,
        ),
        field("fate", "", _fate, rank=1),
    ]


def _value(combination: Combination, name: str) -> Cell:
    value = combination.values[name]
    shown = str(int(value)) if isinstance(value, bool) else str(value)
    sort = value if isinstance(value, str) else float(value)
    return Cell(words(shown), sort=sort, data=value)


def _role(sweep: Sweep, combination: Combination) -> Text:
    roles = ["best"] * (combination is sweep.best) + ["default"] * combination.is_default
    if not roles and combination in sweep.tied:
        return words("may be best")
    return strong(", ".join(roles))


def _time(combination: Combination) -> Content:
    time = combination.microseconds
    return figure_cell(time.value, note=ends(time)) if time else NONE


def _count(combination: Combination, value: int | None) -> Cell:
    unknown = ABSENT if combination.state == Fate.TIMED else NONE
    return figure_cell(value, text=unknown if value is None else str(value))


def _fate(combination: Combination) -> str:
    if combination.state == Fate.TIMED:
        return ""
    return shorten(": ".join(filter(None, (combination.state, sentence(combination.why)))), WHY)


def _kind(sweep: Sweep, combination: Combination) -> Marking:
    if combination is sweep.best:
        return Marking.KEPT
    if combination.is_default:
        return Marking.BASELINE
    refused = (Fate.UNBUILT, Fate.REFUSED, Fate.FAILED, Fate.INACCURATE)
    return Marking.REJECTED if combination.state in refused else Marking.PLAIN


def sweep_view(sweep: Sweep) -> list[Block]:
    """The table and what it shows."""
    return [
        paragraph(origin(sweep)),
        *warned(sentences(sweep.warnings)),
        table(
            "sweep",
            _fields(sweep),
            sweep.combinations,
            key=lambda c: c.variant,
            kind=lambda c: _kind(sweep, c),
        ),
        Bullets(tuple(account(sweep))),
    ]


def origin(sweep: Sweep) -> Text:
    text = f" at {sweep.shape} on {sweep.gpu}, {_how(sweep.evidence)}: "
    return line(code(sweep.variant), text, counts(len(sweep.combinations)))


def _how(evidence: Origin) -> str:
    return "measured now" if evidence == Origin.MEASURED else "recorded evidence"


def counts(count: int) -> str:
    return f"{count} combination{'s' if count > 1 else ''}"


def account(sweep: Sweep) -> list[Text]:
    """What became of the combinations, and the best and how sure that is."""
    fates = Counter(c.state for c in sweep.combinations)
    lost = [f"{fates[fate]} {fate}" for fate in Fate if fates[fate] and fate != Fate.TIMED]
    parts = [line(f"{len(sweep.timed)} timed together", *[f", {each}" for each in lost], ".")]
    if sweep.best is None:
        return parts
    parts.append(best_words(sweep))
    if len(sweep.timed) > 2:
        parts.append(
            words("Each interval is for one comparison, in the sessions that timed all of them.")
        )
    return parts


def best_words(sweep: Sweep) -> Text:
    """The best over the default, and from which sessions that is known."""
    best = sweep.best
    assert best is not None
    if best.is_default:
        return line("The default ", code(best.variant), " is the fastest.")
    if sweep.default is None:
        return line(code(best.variant), f" is the fastest; the default was not timed ({NONE}).")
    if sweep.again is not None:
        text = (
            f" is the fastest of {len(sweep.timed)}, and {interval(sweep.again)} of the default in "
            f"{sweep.again.sessions} fresh sessions that had no part in picking it"
        )
        return line(code(best.variant), text, _against(sweep), ".")
    over = interval(best.over_default)
    if not sweep.picked:
        return line(code(best.variant), f" is {over} of the default.")
    text = (
        f" was the fastest of {len(sweep.timed)}, {over} of the default in the sessions that "
        "picked it: the best of many is partly luck, so that its interval promises too much "
        "until it is timed again"
    )
    return line(code(best.variant), text, ".")


def _against(sweep: Sweep) -> str:
    """What the picking sessions said, where that is another figure."""
    picked = sweep.best.over_default if sweep.best else None
    return f" (when it was picked {factor(picked.ratio)})" if picked else ""


def _time_without(one: Worth) -> Content:
    if one.microseconds is None:
        return shorten(sentence(one.why), WHY_UNTIMED) or NONE
    return figure_cell(one.microseconds.value, note=ends(one.microseconds))


def _came(one: Worth) -> Text:
    switch = one.switch
    return line(code(switch.step), " on ", code(switch.parent)) if switch.step else words(NONE)


FIELDS: list[Field[Worth]] = [
    field("switch", "switch", lambda w: code(f"{w.switch.name}={value_text(w.switch.value)}")),
    field("back", "put back to", lambda w: value_text(w.switch.default), rank=2),
    numeric("time", "time without it", _time_without, unit="µs", note=INTERVAL, rank=1),
    numeric("end", f"worth at the end {INTERVAL}", lambda w: interval_cell(w.at_the_end)),
    numeric("came", f"when it came {INTERVAL}", lambda w: interval_cell(w.when_it_came)),
    field("step", "as the step", _came, rank=3),
]


def left_out_view(found: LeftOut) -> list[Block]:
    took = microseconds(found.microseconds.value) if found.microseconds else sentence(found.why)
    return [
        paragraph(
            code(found.variant),
            f" at {found.shape} on {found.gpu}, {_how(found.evidence)}: {took}, chained; every "
            "variant of the table in the same sessions",
        ),
        *warned(sentences(found.warnings)),
        table("leave-one-out", FIELDS, found.switches, key=lambda w: w.switch.without),
        Bullets(tuple(left_out_account(found))),
    ]


def left_out_account(found: LeftOut) -> list[Text]:
    """All together, and whether they are independent of each other."""
    if found.together is None:
        return [line("all together over ", code(found.base), f": {NONE}")]
    parts = [line("all together: ", interval(found.together), " of ", code(found.base))]
    if found.product is not None and len(found.switches) > 1:
        parts.append(words(independence(found.product, found.together)))
    unsure = [w for w in found.switches if w.at_the_end and not is_clear(w.at_the_end)]
    if unsure:
        names = ", ".join(w.switch.name for w in unsure)
        parts.append(words(f"{names}: the interval at the end holds 1, so nothing is shown for it"))
    return parts


def independence(product: float, together: Ratio) -> str:
    """What each is worth at the end, multiplied, beside what all are worth."""
    text = f"what each is worth at the end multiplies to {factor(product)}"
    low, high = together.low, together.high
    if low is not None and high is not None and low <= product <= high:
        return f"{text}: no interaction of the switches is measurable"
    if product < together.ratio:
        return f"{text}, less than all together: with one gone others do a part of its work"
    return f"{text}, more than all together: a part of what one gains depends on another"


def is_clear(ratio: Ratio) -> bool:
    """Whether its interval excludes 1.0."""
    return ratio.low is not None and ratio.high is not None and not ratio.low <= 1 <= ratio.high
