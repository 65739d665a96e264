"""A timeline in figures: when the warps of a call ran, and what that shows to be wrong."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.derive.speedup import Time
from workbench.derive.timeline import CallTimeline, LaunchTimeline
from workbench.judge.advice_rules import faults
from workbench.judge.findings import Finding, sentences
from workbench.render import doc
from workbench.render.numbers import factor, microseconds, number, percent

NAME = 40  # characters of a kernel's name
FIELDS: list[doc.Field[LaunchTimeline]] = [
    doc.Field("kernel", "kernel", lambda one: doc.code(one.kernel[:NAME])),
    doc.numeric("span", "µs", lambda one: number(one.span_us)),
    doc.numeric("blocks", "blocks", lambda one: f"{one.blocks:,}"),
    doc.numeric("resident", "on an SM", lambda one: str(one.resident)),
    doc.numeric("median", "median block", lambda one: microseconds(one.median_us)),
    doc.numeric("longest", "longest", lambda one: microseconds(one.longest_us)),
    doc.numeric("ramp", "ramp", lambda one: microseconds(one.ramp_us)),
    doc.numeric("tail", "tail", lambda one: microseconds(one.tail_us)),
    doc.numeric("idle", "idle in tail", lambda one: percent(one.tail_idle)),
    doc.numeric("gaps", "between blocks", lambda one: percent(one.gaps_idle)),
    doc.numeric("imbalance", "busiest SM", lambda one: factor(one.imbalance)),
]
SLOWED = 1.1  # times the time without tracing
CAPTION = (
    "A row is an SM, the last to end at the top. Its shade says how many warps of the call it has. "
    "An empty place is an SM without work."
)
NO_FAULT = "No tail, slow block, early producer or gap is worth a step."


def timeline(call: CallTimeline, time: Time | None = None) -> list[doc.Block]:
    """The figures of a call. ``time`` is that of one where nothing traced it."""
    beside = ""
    if time and time.value:
        ratio = call.span_us / time.value
        beside = f", {factor(ratio)} its time between kernels, {microseconds(time.value)}"
        beside += ": tracing slows it, so distrust gaps and tails" if ratio > SLOWED else ""
    first = doc.paragraph(f"Timeline: {microseconds(call.span_us)} while traced{beside}.")
    return [first, *launches(call.launches, [fault.why for fault in faults(call)])]


def launches(every: Sequence[LaunchTimeline], wrong: Sequence[Finding]) -> list[doc.Block]:
    """The figures of launches, the roles of their warps, and what is ``wrong``."""
    blocks: list[doc.Block] = [doc.table("timeline", FIELDS, every)]
    for one in every:
        if len(one.roles) > 1:
            ends = ", ".join(f"{role.words} {percent(role.end)}" for role in one.roles)
            blocks.append(doc.paragraph(f"Of a block's life in {one.kernel[:NAME]}: {ends}."))
    lines = [f"{text}." for text in sentences(wrong)]
    return [*blocks, doc.bullets(lines) if lines else doc.paragraph(NO_FAULT)]
