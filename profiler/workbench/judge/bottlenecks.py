"""What limits a variant: ncu's rules ranked, each with its metric and its hottest line."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.derive.figures import Figure, stall_label
from workbench.ncu.catalog import STALL_PREFIX

if TYPE_CHECKING:
    import pandas as pd

TOP = 3
BINDING_SHARE = 0.8
# A rule's line is the one with the most of this counter; others get the line with most samples.
LINE_COUNTER = {
    "UncoalescedGlobalAccess": "excess_global_sectors",
    "MemoryCacheAccessPattern": "excess_global_sectors",
    "UncoalescedSharedAccess": "excess_shared_wavefronts",
    "SharedMemoryConflicts": "excess_shared_wavefronts",
    "IssueSlotUtilization": "stalls",
}
# Rules that speak of the launch as a whole, not of a place in the source.
NO_LINE = frozenset(
    {
        "LaunchConfiguration",
        "AchievedOccupancy",
        "TheoreticalOccupancy",
        "WorkloadImbalance",
        "SOLBottleneck",
        "HighPipeUtilization",
    }
)
READABLE = {
    "AchievedOccupancy": "Achieved occupancy below theoretical",
    "TheoreticalOccupancy": "Theoretical occupancy",
    "IssueSlotUtilization": "Issue slots idle",
    "UncoalescedGlobalAccess": "Uncoalesced global accesses",
    "UncoalescedSharedAccess": "Uncoalesced shared accesses",
    "CPIStall": "Warp stalls",
}
_MARKUP = re.compile(r"@(?:url|section|source|sass):([^:@]*)(?::[^@]*)?@")


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

    ``estimated_speedup_pct`` is ncu's own: percent of runtime (scope ``global``) or of the part
    the rule speaks of (``local``). Estimates overlap and are never added.
    """

    title: str
    rule: str
    metric: str
    value: float
    estimated_speedup_pct: float
    scope: str
    message: str
    kernel: str
    hot_line: HotLine | None


def plain(message: str) -> str:
    """A rule's message without ncu's link markup."""
    return _MARKUP.sub(lambda match: match[1], message)


def hot_line(lines: pd.DataFrame, kernel: str, counter: str) -> HotLine | None:
    """None where the capture has no source lines for the kernel."""
    mine = lines[(lines["kernel"] == kernel) & (lines["line"] > 0)]
    if counter == "stalls":
        known = {"instructions", "excess_global_sectors", "excess_shared_wavefronts", "selected"}
        mine = mine[~mine["counter"].isin(known)]
    else:
        mine = mine[mine["counter"] == counter]
    if mine.empty:
        return None
    sums: dict[tuple[str, int], float] = {}
    for file, line, value in zip(mine["file"], mine["line"], mine["value"], strict=True):
        sums[file, line] = sums.get((file, line), 0.0) + value
    (file, line), most = max(sums.items(), key=lambda item: item[1])
    return HotLine(str(file), int(line), counter, most / sum(sums.values()))


def _counter(rule: str, title: str, lines: pd.DataFrame) -> str | None:
    if rule in NO_LINE:
        return None
    if rule == "CPIStall":
        reason = title.lower().replace(" stalls", "").replace(" ", "_")
        return reason if reason in set(lines["counter"]) else "stalls"
    return LINE_COUNTER.get(rule, "stalls")


# Stalls a warp sits in because of what a rule speaks of: no fix can win back more than their share.
RELATED_STALLS = {
    "MemoryCacheAccessPattern:load": ("long_scoreboard", "lg_throttle"),
    "MemoryCacheAccessPattern:store": ("lg_throttle", "drain", "membar"),
    "UncoalescedGlobalAccess": ("long_scoreboard", "lg_throttle", "drain"),
    "UncoalescedSharedAccess": ("short_scoreboard", "mio_throttle"),
    "SharedMemoryConflicts": ("short_scoreboard", "mio_throttle"),
    "MemoryL2Compression": ("long_scoreboard",),
}


def attainable(rule: str, title: str, estimate: float, found: Mapping[str, Figure]) -> float:
    """NVIDIA's estimate, but at most the share of samples in the stalls the rule is about.

    The access-pattern rules estimate from sector counts alone and can promise 35 % for a store
    in whose shadow no warp ever waits.
    """
    kind = "store" if "store" in title.lower() else "load"
    reasons = RELATED_STALLS.get(rule) or RELATED_STALLS.get(f"{rule}:{kind}")
    if reasons is None or "stall.selected" not in found:
        return estimate
    shares = [found[f"stall.{r}"].value for r in reasons if f"stall.{r}" in found]
    return min(estimate, sum(shares))


def is_binding(rule: str, found: Mapping[str, Figure]) -> bool:
    """False for a limit on resident warps that the launch does not come near.

    ncu names theoretical occupancy even where the grid is too small to reach it: raising the
    limit would change nothing there.
    """
    if rule != "TheoreticalOccupancy":
        return True
    achieved, limit = found.get("achieved_occupancy"), found.get("theoretical_occupancy")
    if achieved is None or limit is None:
        return True
    return achieved.value >= BINDING_SHARE * limit.value


def bottlenecks(
    rules: pd.DataFrame, lines: pd.DataFrame, found: Mapping[str, Figure], top: int = TOP
) -> list[Bottleneck]:
    """The rules with the largest estimates, each rule once per kernel.

    First those that bind, then by scope (the whole runtime before a rule's own part of it), then
    by what is attainable of the estimate. Without rules, the top stall reasons stand in.
    """
    records: list[dict[str, Any]] = [
        {str(key): value for key, value in record.items()} for record in rules.to_dict("records")
    ]
    ranked = sorted(
        (r for r in records if math.isfinite(r["estimated_speedup_pct"])),
        key=lambda r: (
            not is_binding(r["rule"], found),
            r["scope"] != "global",
            -attainable(r["rule"], r["title"], r["estimated_speedup_pct"], found),
            r["rule"],
            r["title"],
        ),
    )
    result: list[Bottleneck] = []
    seen: set[tuple[str, str]] = set()
    for r in ranked:
        if (r["rule"], r["kernel"]) in seen or len(result) == top:
            continue
        seen.add((r["rule"], r["kernel"]))
        metric, value = r["focus"][0] if r["focus"] else ("", math.nan)
        counter = _counter(r["rule"], r["title"], lines)
        if counter and r["rule"] == "CPIStall" and counter in set(lines["counter"]):
            share = found.get(f"stall.{counter}")
            metric, value = STALL_PREFIX + counter, share.value if share else math.nan
        result.append(
            Bottleneck(
                title=r["title"] or READABLE.get(r["rule"], r["rule"]),
                rule=r["rule"],
                metric=metric,
                value=value,
                estimated_speedup_pct=r["estimated_speedup_pct"],
                scope=r["scope"],
                message=plain(r["message"]),
                kernel=r["kernel"],
                hot_line=hot_line(lines, r["kernel"], counter) if counter else None,
            )
        )
    return result or top_stalls(lines, found, top)


def top_stalls(
    lines: pd.DataFrame, found: Mapping[str, Figure], top: int = TOP
) -> list[Bottleneck]:
    """The largest stall reasons as bottlenecks, for a report without rule results."""
    stalls = [(k, f) for k, f in found.items() if k.startswith("stall.") and k != "stall.selected"]
    kernel = str(lines["kernel"].iloc[0]) if len(lines) else ""
    return [
        Bottleneck(
            f"{stall_label(key[6:]).capitalize()} stalls",
            "",
            STALL_PREFIX + key[6:],
            figure.value,
            math.nan,
            "",
            "",
            kernel,
            hot_line(lines, kernel, key[6:]),
        )
        for key, figure in stalls[:top]
    ]
