"""A sweep of parameters: every combination by its time."""

from __future__ import annotations

from collections import Counter

from workbench.judge.findings import sentence, sentences
from workbench.judge.sweeps import Combination, Fate, Sweep
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
from workbench.render.numbers import ends, factor, interval, shorten
from workbench.words import ABSENT, NONE, Origin

WHY = 60  # characters
INTERVAL = "[95 % interval]"


def varied(sweep: Sweep) -> list[str]:
    """The parameters that have several values."""
    return [name for name, values in sweep.parameters.items() if len(values) > 1]


def _fields(sweep: Sweep) -> list[Field[Combination]]:
    columns: list[Field[Combination]] = [
        Field(TableColumn(f"={name}", name), lambda c, name=name: _value(c, name))  # type: ignore[misc]
        for name in varied(sweep)
    ]
    return [
        *columns,
        field("role", "", lambda c: _role(sweep, c)),
        numeric("time", "time", _time, unit="µs", note=INTERVAL, json="time"),
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
    """Return what became of the combinations, and the best and how sure that is."""
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
    """Return what the picking sessions said, where that is another figure."""
    picked = sweep.best.over_default if sweep.best else None
    return f" (when it was picked {factor(picked.ratio)})" if picked else ""
