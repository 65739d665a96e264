"""What a capture used of each bandwidth: the share of the duration that its traffic needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.derive.figures import DURATION, by_launch
from workbench.derive.roofline.ceilings import LEVELS, bandwidth, traffic
from workbench.derive.sums import added

if TYPE_CHECKING:
    from workbench.ncu.capture import Table


@dataclass(frozen=True)
class Used:
    """One level of memory: its bytes over all launches, and the ``share`` of the duration that they
    need at its bandwidth: the one the card was ``measured`` to reach, else the theoretical one.
    """

    bytes: float
    share: float
    measured: bool


def used(metrics: Table, ceilings: Mapping[str, float]) -> dict[str, Used]:
    """Level to what was used of it; without those that some launch has no counters of.

    ``ceilings`` are the measured ones by id, in bytes/s. A share of a measured ceiling that passes
    one, as at a higher clock, is of the theoretical one instead.
    """
    launches = list(by_launch(metrics).values())
    if not launches or not all(values.get(DURATION) for values in launches):
        return {}
    seconds = added(values[DURATION] for values in launches) * 1e-9
    found: dict[str, Used] = {}
    for level in LEVELS:
        amounts = [traffic(values, level) for values in launches]
        known = [amount for amount in amounts if amount is not None]
        if len(known) < len(launches):
            continue
        rates = [bandwidth(values, level) for values in launches]
        least = added(a / r for a, r in zip(known, rates, strict=True) if r)
        theory = least / seconds if all(rates) else math.nan
        ceiling = ceilings.get(level)
        share = added(known) / ceiling / seconds if ceiling else math.nan
        by_measured = math.isfinite(share) and share <= 1
        if by_measured or math.isfinite(theory):
            found[level] = Used(added(known), share if by_measured else theory, by_measured)
    return found
