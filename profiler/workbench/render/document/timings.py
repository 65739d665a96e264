"""Times by regime, over a range of shapes and of a sweep's combinations; checks of the sessions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from workbench.derive.speedup import Ratio, Time
from workbench.judge.findings import sentence, sentences
from workbench.judge.ladder import Ablation, Row
from workbench.judge.sweeps import Combination, Fate, Sweep
from workbench.judge.times import AtShape, InRegime, TimingFacts
from workbench.render import doc
from workbench.render.document.phrases import parent_of, shape_name, shape_words, with_cycles
from workbench.render.numbers import at_level, ends, factor, interval, number, shorten
from workbench.words import ABSENT, NONE, Origin, Regime


def time_words(time: Time | None) -> str:
    """The time in microseconds."""
    return number(time.value) + " unchecked" * time.unchecked if time else ABSENT


def time_in(row: Row, regime: Regime) -> str:
    return time_words(at.microseconds if (at := row.regimes.get(regime)) else None)


def spread(time: Time | None) -> str:
    """The 95 % interval of a time."""
    return ends(time) if time else NONE


def regimes_of(*rows: Row) -> list[Regime]:
    """Chained and cold, and alone where any was timed so: only at the power limit."""
    alone = any(Regime.ALONE in row.regimes for row in rows)
    return [Regime.CHAINED, Regime.COLD, *([Regime.ALONE] if alone else [])]


def regimes(row: Row, reference: str = "") -> doc.Table:
    """One variant: a row a regime, with the ratios there; a column of ratios only where it has a
    parent, or a reference.
    """
    parent = parent_of(row)
    timed = {regime: row.regimes.get(regime) or InRegime() for regime in regimes_of(row)}
    fields: list[doc.Field[Regime]] = [
        doc.Field("regime", "regime", lambda r: doc.cell(r.label, short=r.label.split()[0])),
        doc.numeric("time", "time", lambda r: time_words(timed[r].microseconds), unit="µs"),
        doc.numeric("range", "95 % interval", lambda r: spread(timed[r].microseconds), rank=3),
        doc.numeric(
            "parent", f"vs {parent}", lambda r: with_cycles(timed[r].speedup_over_parent), rank=1
        ),
        doc.numeric(
            "reference",
            f"vs {reference}",
            lambda r: with_cycles(timed[r].speedup_over_reference),
            rank=2,
        ),
        doc.Field("fastest", "vs the fastest reference", lambda r: _fastest(timed[r]), rank=1),
    ]
    absent = {
        "parent": not (parent and row.verdict),
        "reference": reference in ("", row.variant),
        "fastest": row.is_reference or not reference,
    }
    shown = [f for f in fields if not absent.get(f.key)]
    return doc.table("timings", shown, timed, key=lambda regime: regime)


def _fastest(timed: InRegime) -> doc.Content:
    over = timed.speedup_over_fastest
    if over is None:
        return ABSENT
    text = f"{with_cycles(over)} of {timed.fastest}"
    return doc.cell(text, short=f"{interval(over)} {timed.fastest}")


def _fine(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return ABSENT
    return f"{number(ratio.low, 4)} to {number(ratio.high, 4)}{at_level(ratio)}"


def controls(facts: TimingFacts | None) -> str:
    """Whether variants disturb each other, and ``A/A controls: baseline 1.003 (0.994 to 1.011)``;
    empty without either.
    """
    if facts is None:
        return ""
    shown = ", ".join(
        f"{control.variant} {number(control.ratio.ratio, 4)} ({_fine(control.ratio)})"
        for control in facts.controls
        if control.regime == Regime.CHAINED
    )
    parts = [sentence(facts.interference.said())] if facts.interference else []
    return "; ".join([*parts, *[f"A/A controls: {shown}"] * bool(shown)])


def sizes_table(ablation: Ablation) -> list[doc.Block]:
    """The last step at every shape where it was timed, if those are several; its rate is of bytes
    where those count, and of both where shapes differ in that.
    """
    if not ablation.across or not ablation.has_sizes:
        return []
    results = ablation.across.shapes
    counts = {result.is_traffic for result in results}
    common = shared([result.parameters for result in results])
    shape = f"shape ({shape_words(common)})" if common else "shape"
    fields: list[doc.Field[AtShape]] = [
        doc.Field("shape", shape, lambda s: _size(s, common, ablation)),
        doc.numeric("time", "time", lambda s: number(s.microseconds.value), unit="µs"),
        doc.numeric("rate", "TFLOP/s", lambda s: number(s.flops_per_second / 1e12)),
        doc.numeric("traffic", "TB/s", lambda s: number(s.terabytes_per_second)),
        doc.Field("reference", "fastest reference", _reference, unit="µs"),
        doc.numeric("ratio", "vs it [95 % interval]", _over),
        doc.numeric("error", "error ÷ reference's", _error),
    ]
    absent = {
        "rate": counts == {True},
        "traffic": True not in counts,
        "error": all(result.accuracy is None for result in results),
    }
    columns = [field for field in fields if not absent.get(field.key)]
    limited = any(result.alone for result in results)
    return [doc.table("shapes", columns, results), *[doc.paragraph(ALONE)] * limited]


def _reference(at: AtShape) -> str:
    time = at.reference_microseconds
    return f"{at.fastest} {number(time.value)}" if time else ABSENT


def _error(at: AtShape) -> str:
    return ABSENT if at.accuracy is None else factor(at.accuracy)


ALONE = (
    "Alone: measured without other kernels, which is done at the power limit. The smaller of both "
    "ratios counts."
)


def _over(at: AtShape) -> str:
    """The claimed ratio, and that it was measured alone."""
    is_alone = at.claimed is not None and at.claimed is not at.speedup_over_fastest
    return interval(at.claimed) + " alone" * is_alone


def _size(at: AtShape, common: Mapping[str, object], ablation: Ablation) -> str:
    """Return the parameters of a shape, behind its name where that says more."""
    named = "" if shape_name(at.shape, ablation) != at.shape else f"{at.shape}: "
    return named + shape_words({k: v for k, v in at.parameters.items() if k not in common})


def shared(shapes: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    """The parameters that several shapes have all the same; those of one shape are its own."""
    if len(shapes) < 2:
        return {}
    first, *others = shapes
    return {
        key: value
        for key, value in first.items()
        if value is not False and all(key in one and one[key] == value for one in others)
    }


WHY = 60  # characters
INTERVAL = "[95 % interval]"


def _fields(sweep: Sweep) -> list[doc.Field[Combination]]:
    varied = [name for name, values in sweep.parameters.items() if len(values) > 1]
    return [
        *(doc.Field(f"={name}", name, partial(_value, name)) for name in varied),
        doc.Field("role", "", lambda c: _role(sweep, c)),
        doc.numeric("time", "time", _time, unit="µs", note=INTERVAL),
        doc.numeric("ratio", f"vs default {INTERVAL}", _ratio),
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


def _ratio(combination: Combination) -> str:
    return interval(combination.over_default) if combination.over_default else NONE


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


def sweep_view(sweep: Sweep) -> list[doc.Block]:
    """The table and what it shows."""
    how = "measured now" if sweep.evidence == Origin.MEASURED else "recorded evidence"
    count = len(sweep.combinations)
    origin = f" at {sweep.shape} on {sweep.gpu}, {how}: {count} combination{'s' * (count > 1)}"
    kind = partial(_kind, sweep)
    return [
        doc.paragraph(doc.code(sweep.variant), origin),
        *doc.warned(sentences(sweep.warnings)),
        doc.table("sweep", _fields(sweep), sweep.combinations, kind=kind),
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
