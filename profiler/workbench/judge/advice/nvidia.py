"""NVIDIA's estimates as kinds of change: what the rules of ncu promise, for comparison only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from workbench.judge.rules import rule_words
from workbench.words import Change

if TYPE_CHECKING:
    from workbench.ncu.capture import Table

WHOLE = "global"
# Rule, or rule and words of its title, to the kinds that its message recommends or that follow from
# it: several where it leaves the way open, which is to its favour in a comparison.
KINDS: Mapping[str, tuple[Change, ...]] = MappingProxyType(
    {
        "AchievedOccupancy": (Change.BALANCE, Change.TAIL, Change.SPLIT),
        "TheoreticalOccupancy": (Change.WARPS, Change.REGISTERS),
        "LaunchConfiguration:Small Grid": (Change.SPLIT,),
        "LaunchConfiguration:Tail Effect": (Change.TAIL, Change.BALANCE),
        "WorkloadImbalance": (Change.BALANCE, Change.TAIL),
        "IssueSlotUtilization": (Change.WARPS, Change.SPLIT, Change.OVERLAP),
        "HighPipeUtilization:Low": (Change.WARPS, Change.SPLIT),
        "HighPipeUtilization:High": (Change.OTHER_PIPE, Change.TENSOR),
        "FPInstructions": (Change.LESS_WORK,),
        "ThreadDivergence": (Change.LESS_WORK,),
        "SlowPipeLimiter": (Change.OTHER_PIPE, Change.TENSOR),
        "MemoryCacheAccessPattern": (Change.COALESCE, Change.VECTOR),
        "UncoalescedGlobalAccess": (Change.COALESCE, Change.VECTOR, Change.TILE_SHARED),
        "UncoalescedSharedAccess": (Change.SWIZZLE,),
        "SharedMemoryConflicts": (Change.SWIZZLE,),
        "LocalMemoryUsage": (Change.REGISTERS,),
        "CPIStall:Long Scoreboard": (
            Change.TILE_SHARED,
            Change.ASYNC_COPY,
            Change.BULK_COPY,
            Change.VECTOR,
            Change.REUSE,
        ),
        "CPIStall:Wait": (Change.OVERLAP,),
        "CPIStall:Barrier": (Change.BARRIERS, Change.SPECIALISE, Change.BALANCE),
        "CPIStall:Short Scoreboard": (Change.SWIZZLE, Change.REUSE, Change.OTHER_PIPE),
        "CPIStall:MIO Throttle": (Change.VECTOR, Change.REUSE, Change.OTHER_PIPE),
        "CPIStall:LG Throttle": (Change.VECTOR, Change.COALESCE),
        "CPIStall:Math Pipe": (Change.OTHER_PIPE, Change.WARPS),
        "CPIStall:Dispatch": (Change.OPERANDS,),
        "CPIStall:No Instruction": (Change.SMALLER_CODE,),
        "CPIStall:GMMA": (Change.OVERLAP, Change.SPECIALISE),
    }
)


@dataclass(frozen=True)
class Promise:
    """A rule of ncu at a variant: ``cut`` is the share of the runtime (``scope`` global) or of the
    rule's own part of it (local) that it promises to save.
    """

    rule: str
    title: str
    scope: str
    cut: float

    @property
    def words(self) -> str:
        """Which rule it is, for people."""
        return rule_words(self.rule, self.title)

    @property
    def kinds(self) -> tuple[Change, ...]:
        """Empty for a rule that recommends none of the catalogue."""
        for known, kinds in KINDS.items():
            rule, _, title = known.partition(":")
            if rule == self.rule and self.title.startswith(title):
                return kinds
        return ()


def promises(rules: Table) -> tuple[Promise, ...]:
    """Those with an estimate, the whole runtime first and then by size, each rule once."""
    found: dict[tuple[str, str], Promise] = {}
    columns = ("rule", "title", "scope", "estimated_speedup_pct")
    for rule, title, scope, estimate in rules.rows(*columns):
        if math.isfinite(estimate):
            one = Promise(str(rule), str(title), str(scope), float(estimate) / 100)
            known = found.get((one.rule, one.title))
            if known is None or _rank(one) < _rank(known):
                found[one.rule, one.title] = one
    return tuple(sorted(found.values(), key=_rank))


def _rank(one: Promise) -> tuple[bool, float, str, str]:
    return one.scope != WHOLE, -one.cut, one.rule, one.title
