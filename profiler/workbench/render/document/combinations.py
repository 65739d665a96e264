"""The combinations of a sweep: their times, and the best one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from workbench.judge.findings import sentence, sentences
from workbench.judge.sweeps import Combination, Fate, Sweep
from workbench.render import doc
from workbench.render.doc import INTERVAL, ends, factor, interval, number
from workbench.render.text import shorten
from workbench.words import ABSENT, NONE, Origin


def sweep_view(sweep: Sweep) -> list[doc.Block]:
    """The table and what it shows."""
    how = "measured now" if sweep.evidence == Origin.MEASURED else "recorded evidence"
    count = len(sweep.combinations)
    origin = f" at {sweep.shape} on {sweep.gpu}, {how}: {count} combination{'s' * (count > 1)}"
    return [
        doc.paragraph(doc.code(sweep.variant), origin),
        *doc.warned(sentences(sweep.warnings)),
        doc.table("sweep", _fields(sweep), sweep.combinations, kind=partial(_kind, sweep)),
        doc.bullets(account(sweep)),
    ]


def account(sweep: Sweep) -> Iterator[str | doc.Text]:
    """Yield what became of the combinations, and the best and how sure that is."""
    fates = Counter(c.state for c in sweep.combinations)
    lost = [f"{fates[fate]} {fate}" for fate in Fate if fates[fate] and fate != Fate.TIMED]
    yield f"{', '.join([f'{len(sweep.timed)} timed together', *lost])}."
    if sweep.best is None:
        return
    yield best_words(sweep, sweep.best)
    if len(sweep.timed) > 2:
        yield "Each interval is for one comparison, in the sessions that timed all of them."


def best_words(sweep: Sweep, best: Combination) -> doc.Text:
    """The best over the default, and from which sessions that is known."""
    if best.is_default:
        return doc.line("The default ", doc.code(best.variant), " is the fastest.")
    picked, among = best.over_default, f"the fastest of {len(sweep.timed)}"
    if sweep.default is None:
        text = f"is the fastest; the default was not timed ({NONE})"
    elif sweep.again is not None:
        text = (
            f"is {among}, and {interval(sweep.again)} of the default in {sweep.again.sessions} "
            "fresh sessions that had no part in picking it"
        )
        text += f" (when it was picked {factor(picked.ratio)})" if picked else ""
    elif sweep.picked:
        text = (
            f"was {among}, {interval(picked)} of the default in the sessions that picked it: the "
            "best of many is partly luck, so that its interval promises too much until it is timed "
            "again"
        )
    else:
        text = f"is {interval(picked)} of the default"
    return doc.line(doc.code(best.variant), f" {text}.")


WHY = 60  # characters


def _fields(sweep: Sweep) -> list[doc.Field[Combination]]:
    varied = [name for name, values in sweep.parameters.items() if len(values) > 1]
    return [
        *(doc.Field(f"={name}", name, partial(_value, name)) for name in varied),
        doc.Field("role", "", lambda c: _role(sweep, c)),
        doc.numeric("time", "time", _time, unit="µs", note=INTERVAL),
        doc.numeric(
            "ratio",
            f"vs default {INTERVAL}",
            lambda c: interval(c.over_default) if c.over_default else NONE,
        ),
        doc.numeric("registers", "registers", lambda c: _count(c, c.registers), rank=2),
        doc.numeric("spills", "spills", lambda c: _count(c, c.spill_bytes), unit="B", rank=4),
        doc.numeric("shared", "shared", lambda c: _count(c, c.shared_bytes), unit="B", rank=3),
        doc.numeric("occupancy", "occupancy", _occupancy, unit="%", rank=4),
        doc.Field("fate", "", _fate, rank=1),
    ]


def _value(name: str, combination: Combination) -> str:
    value = combination.values[name]
    return str(int(value)) if isinstance(value, bool) else str(value)


def _role(sweep: Sweep, combination: Combination) -> doc.Content:
    roles = ["best"] * (combination is sweep.best) + ["default"] * combination.is_default
    if not roles and combination in sweep.tied:
        return "may be best"
    return doc.strong(", ".join(roles))


def _count(combination: Combination, value: int | None) -> str:
    unknown = ABSENT if combination.state == Fate.TIMED else NONE
    return unknown if value is None else str(value)


def _occupancy(combination: Combination) -> str:
    percent = combination.occupancy_percent
    return NONE if percent is None else number(percent)


def _time(combination: Combination) -> doc.Content:
    time = combination.microseconds
    return doc.cell(number(time.value), note=ends(time)) if time else NONE


def _fate(combination: Combination) -> str:
    if combination.state == Fate.TIMED:
        return ""
    return shorten(": ".join(filter(None, (combination.state, sentence(combination.why)))), WHY)


def _kind(sweep: Sweep, combination: Combination) -> doc.Marking:
    if combination is sweep.best:
        return doc.Marking.KEPT
    if combination.is_default:
        return doc.Marking.BASELINE
    refused = (Fate.UNBUILT, Fate.REFUSED, Fate.FAILED, Fate.INACCURATE)
    return doc.Marking.REJECTED if combination.state in refused else doc.Marking.PLAIN
