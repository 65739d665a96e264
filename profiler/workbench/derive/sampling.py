"""What is certain of stall samples: their standard errors, and which reason leads. Pure.

A share p of n samples has the standard error sqrt(p (1 - p) / n), and the difference of two shares
p and q of the same samples sqrt((p + q - (p - q)^2) / n): they are counts of one multinomial. Both
take samples for independent, which is the least error there can be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from workbench.derive.figures import ISSUING

NAMED = 3  # reasons; a tie of more says nothing


@dataclass(frozen=True)
class TopStall:
    """The reason with the most samples, and those that it does not lead by a standard error.

    ``share`` is the first one's, from 0 to 1, and ``error`` its standard error: None where the
    number of samples is not known. ``reasons`` has more than one where they tie.
    """

    reasons: tuple[str, ...]
    share: float
    error: float | None

    @property
    def ties(self) -> bool:
        return len(self.reasons) > 1


def standard_error(share: float, samples: float | None) -> float | None:
    """Of a share from 0 to 1 of this many samples; None where that is not known."""
    return math.sqrt(max(0.0, share * (1 - share)) / samples) if samples else None


def lead_error(first: float, second: float, samples: float) -> float:
    """Standard error of the difference of two shares of the same samples."""
    return math.sqrt(max(0.0, first + second - (first - second) ** 2) / samples)


def top_stall(shares: Mapping[str, float], samples: float | None) -> TopStall | None:
    """None where nothing stalled; issuing is no stall. ``shares`` are of all ``samples``."""
    stalls = {name: share for name, share in shares.items() if name != ISSUING and share > 0}
    ranked = sorted(stalls, key=lambda name: (-stalls[name], name))
    if not ranked:
        return None
    most = stalls[ranked[0]]
    tied = [
        name
        for name in ranked[1:]
        if samples and most - stalls[name] <= lead_error(most, stalls[name], samples)
    ]
    return TopStall((ranked[0], *tied), most, standard_error(most, samples))
