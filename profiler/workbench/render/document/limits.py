"""A bottleneck: what ncu's rule says, the metric that shows it, and the line behind it; and the
ceilings that the GPU was measured to reach.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from workbench.derive.figures import (
    ISSUING,
    SAMPLES,
    UNSAMPLED,
    Figure,
    TopStall,
    stall_label,
    standard_error,
)
from workbench.derive.figures import top_stall as leading
from workbench.derive.roofline.point import MeasuredCeiling, MeasuredCeilings
from workbench.evidence.records import Ceiling
from workbench.judge.advice.subject import LEVELS
from workbench.judge.bottlenecks import ROOF, Bottleneck
from workbench.judge.findings import Finding, sentence
from workbench.judge.rows import Row
from workbench.render.document.blocks import (
    Block,
    Bullets,
    Content,
    Field,
    Table,
    Text,
    code,
    field,
    line,
    numeric,
    paragraph,
    strong,
    table,
)
from workbench.render.numbers import number, percent
from workbench.words import ABSENT, NONE


def of_several(limit: Bottleneck) -> Text:
    """Which kernel, where a call has several."""
    if limit.part >= 1:
        return ()
    return line(" in ", code(limit.kernel), f", {percent(limit.part)} of the durations")


def hot_line(limit: Bottleneck) -> Text:
    """``; hottest line``, its place and share; empty where a rule names none."""
    hot = limit.hot_line
    if hot is None:
        return ()
    counter = "stall" if hot.counter == "stalls" else hot.counter.replace("_", " ")
    counted = counter if counter.startswith("excess") else f"{counter} samples"
    place = code(f"{hot.file.rsplit('/', 1)[-1]}:{hot.line}")
    return line("; hottest line ", place, f", {percent(hot.share)} of its {counted}")


def brief(limit: Bottleneck) -> Text:
    """One line: the rule, its metric, NVIDIA's estimate and of what, and the hottest line."""
    if limit.scope == ROOF:
        text = f"at {percent(limit.value / 100)} of its peak ({limit.metric})"
        return line(strong(limit.title), f" {text}")
    known = math.isfinite(limit.estimated_speedup_pct)
    text = f"NVIDIA estimates {limit.estimated_speedup_pct:.0f} % ({limit.scope})"
    value = f" = {number(limit.value)}" if math.isfinite(limit.value) else ""
    return line(
        strong(limit.title),
        of_several(limit),
        f": {limit.metric}{value}; {text if known else 'no estimate'}",
        hot_line(limit),
    )


def bullets(limits: Sequence[Bottleneck]) -> Bullets:
    return Bullets(tuple(map(brief, limits)), ordered=True)


def no_lines(found: Finding | None) -> list[Block]:
    """Why no line is named, where a capture has none."""
    why = sentence(found)
    return [paragraph(f"{why[0].upper()}{why[1:]}.")] if why else []


LEAST = 0.05  # points of a standard error that are shown


def samples(figures: Mapping[str, Figure]) -> float | None:
    """Warp state samples of a capture; None where not collected."""
    return figures[SAMPLES].value if SAMPLES in figures else None


def top_stall(row: Row) -> TopStall | None:
    """The reason with the largest share of all samples."""
    return leading(row.stalls, samples(row.figures))


def stall_words(name: str) -> str:
    if name == UNSAMPLED:
        return "not sampled"
    return "issuing, not stalled" if name == ISSUING else stall_label(name)


def share(value: float, error: float | None) -> str:
    """``13.8 ± 1.5 %``; without an error that is no tenth of a point."""
    if error is None or 100 * error < LEAST:
        return percent(value)
    return f"{100 * value:.1f} ± {100 * error:.1f} %"


def share_of(value: float, figures: Mapping[str, Figure]) -> str:
    """A share of all samples of a capture, with its standard error."""
    return share(value, standard_error(value, samples(figures)))


TERA = 1e12
CEILING_NAMES = {**LEVELS, "half": "packed FP16", "fp32": "FP32", "fp64": "FP64"}
WRONG_CEILING = " (above theory: an error in the data)"


# One ceiling of a calibration, by its id; None where it is missing, and then why.
_Ceiling: TypeAlias = tuple[str, MeasuredCeiling | None, str]


def ceiling_name(ceiling: str) -> str:
    known = CEILING_NAMES.get(ceiling)
    return known or f"dense {ceiling.removeprefix('tensor ').upper()} tensor"


def amount(value: float | None, unit: str) -> str:
    """FLOP/s or byte/s as TFLOP/s or TB/s."""
    if value is None:
        return ABSENT
    return f"{number(value / TERA)} {'TB/s' if unit == 'byte/s' else 'TFLOP/s'}"


def clock(ceiling: Ceiling) -> str:
    return ABSENT if ceiling.sm_clock_mhz is None else f"{ceiling.sm_clock_mhz:.0f}"


def _reached(roof: MeasuredCeiling | None) -> str:
    return amount(roof.measured.value, roof.measured.unit) if roof else ABSENT


def _of_roof(make: Callable[[MeasuredCeiling], Content]) -> Callable[[_Ceiling], Content]:
    return lambda ceiling: make(ceiling[1]) if ceiling[1] else NONE


CEILINGS: list[Field[_Ceiling]] = [
    field("ceiling", "ceiling", lambda c: ceiling_name(c[0])),
    numeric("measured", "measured", lambda c: _reached(c[1])),
    numeric(
        "theoretical",
        "theoretical at that clock",
        _of_roof(lambda roof: amount(roof.theoretical, roof.measured.unit)),
    ),
    numeric(
        "share",
        "share",
        _of_roof(
            lambda roof: percent(roof.share_of_theoretical) + WRONG_CEILING * roof.above_theory
        ),
    ),
    numeric("clock", "SM clock (MHz)", _of_roof(lambda roof: clock(roof.measured))),
    field("ran", "what was run", lambda c: c[1].measured.ran if c[1] else c[2], rank=1),
]


def ceilings(measured: MeasuredCeilings) -> Table:
    """What was not collected last, with the reason."""
    items: list[_Ceiling] = [(name, roof, "") for name, roof in measured.ceilings.items()]
    items += [(name, None, why) for name, why in measured.not_collected.items()]
    return table("ceilings", CEILINGS, items, key=lambda c: c[0])
