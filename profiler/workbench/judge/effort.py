"""What a variant does beside what its work needs: operations, bytes, and how evenly. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.derive.factors import duration_parts
from workbench.derive.roofline.ceilings import DRAM
from workbench.derive.roofline.counted import counted_flops, used
from workbench.derive.sums import added

if TYPE_CHECKING:
    from workbench.ncu.capture import Capture
    from workbench.study.model import Work


@dataclass(frozen=True)
class Effort:
    """``needed`` and ``done``: FLOPs of the work, and those counted in the capture, which also has
    what is computed for rows of a tile that nobody has. ``dram`` and ``l2``: bytes to and from
    DRAM, and between L2 and the SMs, over the least that the work needs. ``balance``: what an
    average SM was active of the busiest one's time. None is not collected, or not needed.
    """

    needed: float | None = None
    done: float | None = None
    dram: float | None = None
    l2: float | None = None
    balance: float | None = None

    @property
    def operations(self) -> float | None:
        """Done over needed."""
        return self.done / self.needed if self.done is not None and self.needed else None


def effort(capture: Capture, work: Work | None) -> Effort:
    """Of all launches of a call."""
    metrics, least = capture.metrics, work.bytes if work else 0
    counted, parts = counted_flops(metrics), duration_parts(metrics)
    dram, l2 = used(metrics, {}).get(DRAM), [one.l2_bytes for one in capture.launched or ()]
    whole = [amount for amount in l2 if amount is not None]
    return Effort(
        needed=(work.flops or None) if work else None,
        done=added(counted.values()) if counted is not None else None,
        dram=dram.bytes / least if dram and least else None,
        l2=added(whole) / least if whole and len(whole) == len(l2) and least else None,
        balance=parts.balance if parts else None,
    )
