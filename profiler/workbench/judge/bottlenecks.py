"""Rank what limits a variant: roofs that it is near, then ncu's rules, each with its metric and its
hottest line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from workbench.derive.figures import DURATION, ISSUING, Figure, added, stall_label, totals
from workbench.derive.rooflines import ERROR_MARGIN, METRICS, used
from workbench.derive.source_diff import COUNTERS, SECTORS, WAVEFRONTS
from workbench.ncu.capture import Capture, ColumnTable
from workbench.ncu.catalog import STALL, STALL_PREFIX

TOP = 3
NEAR_PCT = 85.0  # of a roof: what is nearer is named first
ROOF = "roof"  # the scope of such a bottleneck
LEAST_STALL_PCT = 5.0  # of the samples: a reason with fewer is no bottleneck
PIPES = ("tensor_pipe", "fma_pipe", "xu_pipe", "lsu_pipe")
BINDING_SHARE = 0.8
STALL_RULE, THROUGHPUT_RULE = "CPIStall", "SOLBottleneck"
ALL_STALLS = "stalls"
COMPRESSED = "lrc__average_ilc_input_sector_success_rate.pct"
NO_STALL = (*COUNTERS, ISSUING)  # counters of a line that are no stall reason


class About(NamedTuple):
    """What is known of one of ncu's rules.

    ``title``: where ncu gives it none. ``counter``: its line is the one with the most of it; None
    for a rule that speaks of the launch as a whole, not of a place in the source.
    """

    title: str = ""
    counter: str | None = ALL_STALLS


RULES = {
    "AchievedOccupancy": About("Achieved occupancy below theoretical", None),
    "CPIStall": About("Warp stalls"),
    "HighPipeUtilization": About(counter=None),
    "IssueSlotUtilization": About("Issue slots idle"),
    "LaunchConfiguration": About(counter=None),
    "MemoryCacheAccessPattern": About(counter=SECTORS),
    "SharedMemoryConflicts": About(counter=WAVEFRONTS),
    "SOLBottleneck": About(counter=None),
    "TheoreticalOccupancy": About("Theoretical occupancy", None),
    "UncoalescedGlobalAccess": About("Uncoalesced global accesses", SECTORS),
    "UncoalescedSharedAccess": About("Uncoalesced shared accesses", WAVEFRONTS),
    "WorkloadImbalance": About(counter=None),
}
NOTHING_KNOWN = About()


@dataclass(frozen=True)
class Rule:
    """One result of ncu's rules; ``focus`` are metrics with their values."""

    name: str
    title: str
    kernel: str
    scope: str
    estimate: float
    focus: Sequence[tuple[str, float]]

    @property
    def about(self) -> About:
        return RULES.get(self.name, NOTHING_KNOWN)


@dataclass(frozen=True)
class HotLine:
    """The source line with the most of a counter, and its share of it."""

    file: str
    line: int
    counter: str
    share: float


@dataclass(frozen=True)
class Bottleneck:
    """A limit, the metric that shows it, NVIDIA's estimate and the line behind it.

    ``estimated_speedup_pct`` is ncu's own: percent of the kernel's runtime (scope ``global``) or of
    the part the rule speaks of (``local``); nan where ncu has none. Estimates overlap and are never
    added. ``part`` is what the launches of its kernel take of the durations of all. Scope ``roof``:
    ``value`` is the percent of its peak that a level of memory or a pipe reached.
    """

    title: str
    rule: str = ""
    metric: str = ""
    value: float = math.nan
    estimated_speedup_pct: float = math.nan
    scope: str = ""
    kernel: str = ""
    part: float = 1.0
    hot_line: HotLine | None = None


def hot_line(lines: ColumnTable, kernel: str, counter: str) -> HotLine | None:
    """A kernel's line with the most of a counter, or of ``ALL_STALLS``; None without lines."""
    columns = ("kernel", "file", "line", "counter", "value")
    sums = totals(
        ((str(file), int(line)), value)
        for line_kernel, file, line, line_counter, value in lines.rows(*columns)
        if line_kernel == kernel
        and line > 0
        and (line_counter == counter or (counter == ALL_STALLS and line_counter not in NO_STALL))
    )
    if not sums:
        return None
    (file, line), most = max(sums.items(), key=lambda item: item[1])
    return HotLine(file=file, line=line, counter=counter, share=most / added(sums.values()))


def _counter(rule: Rule, lines: ColumnTable) -> str | None:
    """Choose the counter by which a rule's line is picked; None if the rule is about no place."""
    reason = rule.title.lower().replace(" stalls", "").replace(" ", "_")
    if rule.name == STALL_RULE and reason in set(lines["counter"]):
        return reason
    return rule.about.counter


def is_binding(rule: Rule, figures: Mapping[str, Figure]) -> bool:
    """False for an occupancy limit that the grid is too small to reach (raising it would change
    nothing), and for compression in L2 where no memory was allocated as compressible (by
    ``cuMemCreate``; cudaMalloc and torch do not).
    """
    if rule.name == "MemoryL2Compression":
        return dict(rule.focus).get(COMPRESSED, 0) > 0
    if rule.name != "TheoreticalOccupancy":
        return True
    achieved, limit = figures.get("achieved_occupancy"), figures.get("theoretical_occupancy")
    return not achieved or not limit or achieved.value >= BINDING_SHARE * limit.value


def parts(metrics: ColumnTable) -> dict[str, float]:
    """Give each kernel's launches as a share of the durations of all; empty where not collected."""
    rows = metrics.rows("kernel", "metric", "value")
    sums = totals((str(kernel), value) for kernel, metric, value in rows if metric == DURATION)
    total = added(sums.values())
    return {kernel: duration / total for kernel, duration in sums.items()} if total > 0 else {}


def bottlenecks(
    rules: ColumnTable,
    lines: ColumnTable,
    figures: Mapping[str, Figure],
    kernel_shares: Mapping[str, float],
    levels: Mapping[str, float] = MappingProxyType({}),
) -> list[Bottleneck]:
    """Near roofs, then rules, each once per kernel: those with an estimate first, then those that
    bind, then those about the whole runtime, then by ncu's estimate, times the kernel's share of
    the durations. Without rules, the top stall reasons stand in. ``levels`` are the percent of its
    peak bandwidth that each level of memory reached.
    """
    columns = ("rule", "title", "kernel", "scope", "estimated_speedup_pct", "focus")
    every = (Rule(*values) for values in rules.rows(*columns))
    first: dict[tuple[str, str], Rule] = {}
    for rule in sorted(
        every, key=lambda rule: _rank(rule, figures, kernel_shares.get(rule.kernel, 1.0))
    ):
        first.setdefault((rule.name, rule.kernel), rule)
    limits = near_roofs(lines, figures, levels)
    if not first:
        return [*limits, *top_stalls(lines, figures)][:TOP]
    ranked = list(first.values())[: max(0, TOP - len(limits))]
    shares = (kernel_shares.get(rule.kernel, 1.0) for rule in ranked)
    limits += [_bottleneck(*pair, lines, figures) for pair in zip(ranked, shares, strict=True)]
    return limits[:TOP]


def bottlenecks_of(capture: Capture, figures: Mapping[str, Figure]) -> tuple[Bottleneck, ...]:
    """Rank the bottlenecks of a capture with these figures: see ``bottlenecks``."""
    metrics = capture.metrics
    levels = {level: 100 * ranked.share for level, ranked in used(metrics, {}).items()}
    ranked = bottlenecks(capture.rules, capture.lines, figures, parts(metrics), levels=levels)
    return tuple(ranked)


def near_roofs(
    lines: ColumnTable, figures: Mapping[str, Figure], levels: Mapping[str, float]
) -> list[Bottleneck]:
    """List levels of memory and pipes at 85 % of their peak or above, the nearest first."""
    reached = {
        f"{level.upper()} bandwidth": (METRICS[level], percent) for level, percent in levels.items()
    }
    for name in ("dram_pct", *PIPES):
        if name in figures:
            title = "DRAM bandwidth" if name == "dram_pct" else figures[name].label
            reached[title] = (figures[name].metric, figures[name].value)
    ranked = sorted(reached.items(), key=lambda item: (-item[1][1], item[0]))
    return [
        Bottleneck(title, metric=metric, value=percent, scope=ROOF, kernel=_first_kernel(lines))
        for title, (metric, percent) in ranked
        if NEAR_PCT <= percent <= 100 * ERROR_MARGIN
    ]


def _first_kernel(lines: ColumnTable) -> str:
    return str(lines["kernel"][0]) if len(lines) else ""


def _rank(
    rule: Rule, figures: Mapping[str, Figure], kernel_share: float
) -> tuple[bool, bool, bool, float, str, str]:
    rated = math.isfinite(rule.estimate)
    return (
        not rated,
        not is_binding(rule, figures),
        rule.scope != "global",
        -rule.estimate * kernel_share if rated else 0.0,
        rule.name,
        rule.title,
    )


def _bottleneck(
    rule: Rule, kernel_share: float, lines: ColumnTable, figures: Mapping[str, Figure]
) -> Bottleneck:
    counter = _counter(rule, lines)
    metric, value = _metric(rule, counter, figures if kernel_share >= 1 else {})
    return Bottleneck(
        title=rule.title or rule.about.title or rule.name,
        rule=rule.name,
        metric=metric,
        value=value,
        estimated_speedup_pct=rule.estimate,
        scope=rule.scope,
        kernel=rule.kernel,
        part=kernel_share,
        hot_line=hot_line(lines, rule.kernel, counter) if counter else None,
    )


def _metric(rule: Rule, counter: str | None, figures: Mapping[str, Figure]) -> tuple[str, float]:
    """The stall's metric, else the first in focus; ``figures`` are empty for several kernels."""
    if rule.name == STALL_RULE and counter and counter != ALL_STALLS and figures:
        share = figures.get(f"{STALL}{counter}")
        return STALL_PREFIX + counter, share.value if share else math.nan
    if not rule.focus:
        return "", math.nan
    metric, value = rule.focus[0]
    if rule.name == THROUGHPUT_RULE:  # it may name that of computing beside the value of memory
        value = next(
            (figure.value for figure in figures.values() if figure.metric == metric), value
        )
    return metric, value


def top_stalls(lines: ColumnTable, figures: Mapping[str, Figure]) -> Iterator[Bottleneck]:
    """The stall reasons as bottlenecks, the largest first, for a report without rule results."""
    kernel = _first_kernel(lines)
    for key, figure in figures.items():
        reason = key.removeprefix(STALL)
        if reason in (key, ISSUING) or figure.value < LEAST_STALL_PCT:
            continue
        yield Bottleneck(
            title=f"{stall_label(reason).capitalize()} stalls",
            metric=STALL_PREFIX + reason,
            value=figure.value,
            kernel=kernel,
            hot_line=hot_line(lines, kernel, reason),
        )
