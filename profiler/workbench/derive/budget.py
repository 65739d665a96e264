"""The duration under ncu as the time of the busiest SM: shares that add up to one.

From the factors of the duration (see ``factors``) and the warp state samples:

    head and tail   1 - busiest                  no SM is active
    issuing         busiest x issue rate         a scheduler issues
    waiting         busiest x (1 - issue rate)   it has warps, and none that can go

The rate is that of an average scheduler while it is active, taken for the busiest one's. Beside
them stands the imbalance, busiest x (1 - balance): what an even spread of the work would save.

The waiting is apportioned by the samples of warps that could not go: those of ``selected`` and
``not_selected`` could. With one warp per scheduler this is the warp's own time, exactly; with more
it is who stood there when nobody issued, not a promise of what would be saved.
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
    """Shares of the duration, 0 to 1. ``waits``: stall reason to its part of ``waiting``, empty
    where no samples were taken. ``balance`` is the average SM's active time over the busiest one's.
    """

    head_tail: float
    issuing: float
    waiting: float
    balance: float
    waits: Mapping[str, float]

    @property
    def imbalance(self) -> float:
        """What an even spread would save."""
        return (1 - self.head_tail) * (1 - self.balance)

    def waits_for(self, *reasons: str) -> float:
        """The shares of some reasons together."""
        return added(self.waits.get(reason, 0.0) for reason in reasons)


def budget(parts: DurationParts, stalls: Mapping[str, float]) -> Budget | None:
    """``stalls``: reason to its share of all samples, those that issued among them. None where the
    busiest scheduler's cycles were not collected.
    """
    if parts.busiest is None or parts.balance is None:
        return None
    busiest, rate = min(1.0, parts.busiest), min(1.0, parts.issue_rate)
    waiting = busiest * (1 - rate)
    held = {reason: share for reason, share in stalls.items() if reason not in COULD_GO}
    total = added(held.values())
    return Budget(
        head_tail=1 - busiest,
        issuing=busiest * rate,
        waiting=waiting,
        balance=min(1.0, parts.balance),
        waits={r: waiting * share / total for r, share in held.items()} if total else {},
    )
