"""The duration under ncu as shares that add up to one: what each scheduler's cycles went to.

From the factors of the duration (see ``factors``) and the warp state samples:

    head and tail   1 - busiest                      no SM is active
    imbalance       busiest x (1 - balance)          some are, an average one is not
    issuing         active x issue rate              a scheduler issues
    waiting         active x (1 - issue rate)        it has warps, and none that can go

The waiting is apportioned by the samples of warps that could not go: those of ``selected`` and
``not_selected`` could. With one warp per scheduler this is the warp's own time, exactly; with more it
is who stood there when nobody issued, not a promise of what would be saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.derive.figures import ISSUING
from workbench.derive.sums import added

if TYPE_CHECKING:
    from workbench.derive.factors import DurationParts

COULD_GO = (ISSUING, "not_selected")


@dataclass(frozen=True)
class Budget:
    """Shares of the duration, 0 to 1. ``waits``: stall reason to its part of ``waiting``, empty where
    no samples were taken. ``head_tail`` and ``imbalance`` are None where the busiest scheduler's
    cycles were not collected; ``idle`` is both.
    """

    head_tail: float | None
    imbalance: float | None
    idle: float
    issuing: float
    waiting: float
    waits: Mapping[str, float]

    def waits_for(self, *reasons: str) -> float:
        """The shares of some reasons together."""
        return added(self.waits.get(reason, 0.0) for reason in reasons)


def budget(parts: DurationParts, stalls: Mapping[str, float]) -> Budget:
    """``stalls``: reason to its share of all samples, those that issued among them."""
    active = min(1.0, parts.active)
    waiting = active * max(0.0, 1 - parts.issue_rate)
    held = {reason: share for reason, share in stalls.items() if reason not in COULD_GO}
    total = added(held.values())
    busiest = min(1.0, parts.busiest) if parts.busiest is not None else None
    return Budget(
        head_tail=1 - busiest if busiest is not None else None,
        imbalance=max(0.0, busiest - active) if busiest is not None else None,
        idle=1 - active,
        issuing=active * min(1.0, parts.issue_rate),
        waiting=waiting,
        waits={r: waiting * share / total for r, share in held.items()} if total else {},
    )
