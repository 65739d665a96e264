"""A bottleneck: what ncu's rule says, the metric that shows it, and the line behind it; and the
ceilings that the GPU was measured to reach.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

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
from workbench.judge.bottlenecks import ROOF, Bottleneck
from workbench.judge.findings import Finding, sentence
from workbench.judge.ladder import Row
from workbench.render.document.blocks import (
    Block,
    Bullets,
    Span,
    Text,
    code,
    line,
    paragraph,
    strong,
)
from workbench.render.numbers import number, percent

SCOPES = {"global": "of the runtime", "local": "of the part that the rule covers"}


def of_several(limit: Bottleneck) -> Text:
    """Return which kernel, where a call has several."""
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
    is_rated = math.isfinite(limit.estimated_speedup_pct)
    text = f"NVIDIA estimates {limit.estimated_speedup_pct:.0f} % {SCOPES.get(limit.scope, '')}"
    value = f" = {number(limit.value)}" if math.isfinite(limit.value) else ""
    return line(
        strong(limit.title),
        of_several(limit),
        f": {limit.metric}{value}; {text if is_rated else 'no estimate'}",
        hot_line(limit),
    )


def bullets(limits: Sequence[Bottleneck]) -> Bullets:
    return Bullets(tuple(map(brief, limits)), ordered=True)


def no_lines(why_none: Finding | None) -> list[Block]:
    """Why no line is named, where a capture has none."""
    why = sentence(why_none)
    return [paragraph(f"{why[0].upper()}{why[1:]}.")] if why else []


GUIDE = "https://docs.nvidia.com/nsight-compute/ProfilingGuide/index.html"
LEAST_MEANT = 0.005  # of all samples
MEANINGS = {
    "barrier": "waits for other warps at a barrier",
    "branch_resolving": "waits for the target of a jump",
    "dispatch_stall": "is held back by the dispatcher",
    "drain": "waits for its stores before it ends",
    "imc_miss": "waits for constants that are not in the constant cache",
    "lg_throttle": "waits for room in the queue of global memory instructions",
    "long_scoreboard": "waits for data from global memory: L1, L2 or DRAM",
    "math_pipe_throttle": "waits for a busy arithmetic unit",
    "membar": "waits at a memory fence",
    "mio_throttle": "waits for room in the queue of shared memory instructions",
    "no_instructions": "waits for its next instruction to be fetched",
    "not_selected": "could go on, but another warp was chosen",
    "short_scoreboard": "waits for shared memory or the special function units",
    "wait": "waits a fixed number of cycles for the instruction before",
    "warpgroup_arrive": "waits for the registers of a matrix product (wgmma)",
}


def meanings(every: Iterable[Mapping[str, float]]) -> Iterator[Block]:
    """The stall reasons of some variants in plain words, by their shares."""
    large = {name for stalls in every for name, share in stalls.items() if share >= LEAST_MEANT}
    if names := large & MEANINGS.keys():
        link = (Span("Nsight Compute's guide", href=GUIDE),)
        yield paragraph("The stall reasons in plain words, after ", link, ". A warp that has one:")
        yield Bullets(tuple(line(f"{stall_label(n)}: {MEANINGS[n]}") for n in sorted(names)))


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
