"""Evidence as flat tables for other programs: named columns of one kind each, numbers unrounded.

docs/export.md says what the columns mean; their names and order are a promise. None is what was not
collected.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.derive.figures import figures as all_figures
from workbench.derive.sass.listing import listing
from workbench.judge.rows import Row
from workbench.render.as_json import plain_data
from workbench.words import Regime

if TYPE_CHECKING:
    from workbench.derive.intervals import Ratio
    from workbench.derive.speedup import Time
    from workbench.evidence.records import Build, Check, Timing
    from workbench.ncu.capture import Capture

Values = Mapping[str, Any]
KINDS = {"text": str, "whole": int, "number": float, "flag": bool}


@dataclass(frozen=True)
class Held:
    """What is on record of one variant at one shape, as its sources are now; None or empty where
    there is nothing. ``timings`` are of all files in which it was timed, by their names; ``row`` is
    the ladder's.
    """

    study: str
    variant: str
    shape: str
    gpu: str
    capture: Capture | None = None
    timings: Sequence[tuple[str, Timing]] = ()
    build: Build | None = None
    check: Check | None = None
    row: Row | None = None

    @property
    def whose(self) -> Values:
        return {
            "study": self.study,
            "variant": self.variant,
            "shape": self.shape,
            "gpu": self.gpu,
        }


@dataclass(frozen=True)
class Kind:
    """A table: ``columns`` is name to one of ``KINDS``; ``rows`` makes those of a variant, without
    the columns of ``WHOSE``, which every table begins with.
    """

    columns: Mapping[str, str]
    rows: Callable[[Held], Iterable[Values]]
    meaning: str

    @property
    def every(self) -> Mapping[str, str]:
        return {**WHOSE, **self.columns}


WHOSE = dict.fromkeys(("study", "variant", "shape", "gpu"), "text")
OF_LAUNCH = {"launch": "whole", "kernel": "text"}


def _of_capture(table: str, *names: str) -> Callable[[Held], Iterator[Values]]:
    """The columns of one of a capture's own tables, as they are."""

    def made(held: Held) -> Iterator[Values]:
        if held.capture is not None:
            for row in getattr(held.capture, table).rows(*names):
                yield dict(zip(names, row, strict=True))

    return made


def _rules(held: Held) -> Iterator[Values]:
    for row in _of_capture("rules", *OF_LAUNCH, *RULE)(held):
        yield {**row, "focus": json.dumps([{"metric": m, "value": v} for m, v in row["focus"]])}


RULE = {
    **dict.fromkeys(("rule", "section", "title", "message", "scope"), "text"),
    "estimated_speedup_pct": "number",
    "focus": "text",
}


def _figures(held: Held) -> Iterator[Values]:
    if held.capture is not None:
        for one in all_figures(held.capture.metrics).values():
            told = {"figure": one.id, "label": one.label, "value": one.value}
            yield {**told, "unit": one.unit, "metric": one.metric}


def _sass(held: Held) -> Iterator[Values]:
    if held.capture is None:
        return
    found = listing(held.capture.code, held.capture.metrics)
    for one in found.instructions:
        yield {
            "launch": one.launch,
            "kernel": held.capture.kernels[one.launch],
            "address": one.address,
            "sass": one.sass,
            "ptx": one.ptx or None,
            "file": one.place[0] or None,
            "line": one.place[1] or None,
            "executed": one.executed,
            "samples": one.samples,
            "share": one.share,
            "microseconds": one.microseconds,
            "top_stall": one.top_stall or None,
        }


def _timings(held: Held) -> Iterator[Values]:
    for file, timing in held.timings:
        for session in timing.sessions:
            for series in session.series:
                if series.variant != held.variant:
                    continue
                for n, value in enumerate(series.microseconds):
                    yield {
                        "file": file,
                        "session": session.number,
                        "alone": session.alone,
                        "mode": str(series.regime),
                        "instance": series.instance,
                        "twin": series.twin,
                        "round": n,
                        "calls": series.calls,
                        "microseconds": value,
                        "around_microseconds": _at(series.around, n),
                        "sm_clock_mhz": _at(series.mhz, n),
                        "around_sm_clock_mhz": _at(series.around_mhz, n),
                        "temperature_c": session.temperature_c,
                        "throttled": session.throttled,
                    }


def _at(values: Sequence[float], n: int) -> float | None:
    return values[n] if values else None


def _builds(held: Held) -> Iterator[Values]:
    if held.build is not None:
        for kernel in held.build.kernels:
            yield {
                "arch": held.build.arch,
                "kernel": kernel.kernel,
                "source": kernel.source,
                "registers": kernel.registers,
                "shared_bytes": kernel.shared_bytes,
                "stack_bytes": kernel.stack_bytes,
                "spill_store_bytes": kernel.spill_store_bytes,
                "spill_load_bytes": kernel.spill_load_bytes,
                "warnings": len(held.build.warnings),
            }


def _checks(held: Held) -> Iterator[Values]:
    if held.check is not None:
        yield {name: getattr(held.check, name) for name in CHECK}


CHECK = {
    **dict.fromkeys(("status", "why"), "text"),
    **dict.fromkeys(("max_abs", "relative", "times_reference"), "number"),
    "kind": "text",
    "varies": "flag",
}


def _ladder(held: Held) -> Iterator[Values]:
    row = held.row
    if row is None:
        return
    step = row.step
    others = {regime: row.regimes.get(regime) for regime in Regime}
    dram, occupancy = row.figures.get("dram_bandwidth"), row.figures.get("achieved_occupancy")
    yield {
        "parent": step.parent if step else None,
        "key_change": step.key_change if step else row.title,
        "reference": row.is_reference,
        "status": str(row.status),
        "problem": row.problem or None,
        "verdict": str(row.verdict) if row.verdict else None,
        "judged_at": row.judged_at or None,
        **_time("microseconds", row.time),
        "sessions": row.time.sessions if row.time else None,
        **_ratio("speedup_over_baseline", row.over_baseline),
        **_ratio("speedup_over_parent", row.over_parent),
        **_ratio("speedup_over_reference", row.over_reference),
        **_ratio("speedup_over_fastest", row.over_fastest),
        "fastest": row.chained.fastest or None,
        **{
            f"microseconds_{regime.replace(' ', '_')}": known.time.value
            if known and known.time
            else None
            for regime, known in others.items()
            if regime != Regime.CHAINED
        },
        "error_times_reference": row.accuracy.times_reference if row.accuracy else None,
        "dram_gb_per_s": dram.value if dram else None,
        "achieved_occupancy_pct": occupancy.value if occupancy else None,
        "speedup_over_baseline_level": _level(row.over_baseline),
        "speedup_over_parent_level": _level(row.over_parent),
        "speedup_over_reference_level": _level(row.over_reference),
        "speedup_over_fastest_level": _level(row.over_fastest),
    }


def _level(ratio: Ratio | None) -> int | None:
    return ratio.level if ratio else None


def _time(name: str, time: Time | None) -> Values:
    values = (time.value, time.low, time.high) if time else (None, None, None)
    return dict(zip(_ends(name), values, strict=True))


def _ratio(name: str, ratio: Ratio | None) -> Values:
    values = (ratio.ratio, ratio.low, ratio.high) if ratio else (None, None, None)
    return dict(zip(_ends(name), values, strict=True))


def _ends(name: str) -> tuple[str, str, str]:
    return name, f"{name}_low", f"{name}_high"


def _numbers(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "number")


OVER = [f"speedup_over_{name}" for name in ("baseline", "parent", "reference", "fastest")]
TABLES: Mapping[str, Kind] = {
    "ladder": Kind(
        {
            **dict.fromkeys(("parent", "key_change"), "text"),
            "reference": "flag",
            **dict.fromkeys(("status", "problem", "verdict", "judged_at"), "text"),
            **_numbers(*_ends("microseconds")),
            "sessions": "whole",
            **_numbers(*(end for over in OVER for end in _ends(over))),
            "fastest": "text",
            **_numbers("microseconds_back_to_back", "microseconds_cold"),
            **_numbers("error_times_reference", "dram_gb_per_s", "achieved_occupancy_pct"),
            **dict.fromkeys((f"{over}_level" for over in OVER), "whole"),
        },
        _ladder,
        "a variant, judged",
    ),
    "figures": Kind(
        {"figure": "text", "label": "text", "value": "number", "unit": "text", "metric": "text"},
        _figures,
        "a figure of a variant's launches together",
    ),
    "metrics": Kind(
        {**OF_LAUNCH, "metric": "text", "value": "number", "unit": "text"},
        _of_capture("metrics", "launch", "kernel", "metric", "value", "unit"),
        "a metric of ncu of one launch",
    ),
    "lines": Kind(
        {**OF_LAUNCH, "file": "text", "line": "whole", "counter": "text", "value": "number"},
        _of_capture("lines", "launch", "kernel", "file", "line", "counter", "value"),
        "a counter of one source line",
    ),
    "sass": Kind(
        {
            **OF_LAUNCH,
            "address": "whole",
            **dict.fromkeys(("sass", "ptx", "file"), "text"),
            "line": "whole",
            **_numbers("executed", "samples", "share", "microseconds"),
            "top_stall": "text",
        },
        _sass,
        "an instruction of one launch",
    ),
    "rules": Kind({**OF_LAUNCH, **RULE}, _rules, "a result of ncu's rules"),
    "timings": Kind(
        {
            "file": "text",
            "session": "whole",
            "alone": "flag",
            "mode": "text",
            "instance": "whole",
            "twin": "flag",
            **dict.fromkeys(("round", "calls"), "whole"),
            **_numbers("microseconds", "around_microseconds", "sm_clock_mhz"),
            **_numbers("around_sm_clock_mhz", "temperature_c", "throttled"),
        },
        _timings,
        "a timed sample",
    ),
    "checks": Kind(CHECK, _checks, "a check against the reference"),
    "builds": Kind(
        {
            **dict.fromkeys(("arch", "kernel", "source"), "text"),
            **dict.fromkeys(("registers", "shared_bytes", "stack_bytes"), "whole"),
            **dict.fromkeys(("spill_store_bytes", "spill_load_bytes", "warnings"), "whole"),
        },
        _builds,
        "a compiled kernel",
    ),
}


@dataclass(frozen=True)
class Flat:
    """A table as it is written: ``rows`` are values in the order of ``columns``."""

    name: str
    columns: Mapping[str, str]
    rows: tuple[tuple[Any, ...], ...]


def flat(name: str, held: Iterable[Held]) -> Flat:
    """One of ``TABLES`` over the variants, in their order."""
    kind = TABLES[name]
    return Flat(name, kind.every, tuple(_rows(kind, held)))


def _rows(kind: Kind, held: Iterable[Held]) -> Iterator[tuple[Any, ...]]:
    for each in held:
        for values in kind.rows(each):
            whole = {**each.whose, **values}
            yield tuple(_typed(whole[c], KINDS[k]) for c, k in kind.every.items())


def _typed(value: Any, kind: type) -> Any:
    """What is no number is None, as where it was not collected."""
    value = plain_data(value)
    return None if value is None else kind(value)


def as_csv(table: Flat) -> str:
    """A heading and a line a row; what was not collected is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows(
        ["" if value is None else _shown(value) for value in row] for row in table.rows
    )
    return text.getvalue()


def _shown(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def as_data(table: Flat) -> dict[str, Any]:
    return {
        "table": table.name,
        "columns": list(table.columns),
        "rows": [dict(zip(table.columns, row, strict=True)) for row in table.rows],
    }
