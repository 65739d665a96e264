"""Which source lines the warps wait at: stall samples and counters by line, as shares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.derive.figures import ISSUING

if TYPE_CHECKING:
    import pandas as pd

COUNTERS = ("instructions", "excess_global_sectors", "excess_shared_wavefronts")


@dataclass(frozen=True)
class LineHeat:
    """One source line, in shares from 0 to 1 of the variant's totals over all its kernels.

    ``stalls``: reason to share of all stall samples, largest first; a warp that issued is no
    stall. ``counters``: key of ``COUNTERS`` to share of that counter.
    """

    stalls: Mapping[str, float]
    counters: Mapping[str, float]

    @property
    def share(self) -> float:
        return sum(self.stalls.values())


@dataclass(frozen=True)
class Heat:
    """A variant's lines by the file name of its line table, and what no line could be told of.

    ``unknown`` is the share of stall samples without a source line: 1 for a library kernel.
    """

    files: Mapping[str, Mapping[int, LineHeat]]
    unknown: float

    def share(self, file: str) -> float:
        """The part of all stall samples that fell on lines of ``file``."""
        return sum(line.share for line in self.files.get(file, {}).values())


def heat(lines: pd.DataFrame) -> Heat | None:
    """``lines`` as in ``Capture``. None where no stall sample was collected by line."""
    stalls: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    counters: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    totals: dict[str, float] = defaultdict(float)
    sampled = 0.0
    columns = (lines[name] for name in ("file", "line", "counter", "value"))
    for file, line, counter, value in zip(*columns, strict=True):
        if counter == ISSUING:
            continue
        where, amount = (str(file), int(line)), float(value)
        into = counters if counter in COUNTERS else stalls
        into[where][counter] = into[where].get(counter, 0.0) + amount
        if counter in COUNTERS:
            totals[counter] += amount
        else:
            sampled += amount
    if not sampled:
        return None
    files: dict[str, dict[int, LineHeat]] = defaultdict(dict)
    for file, line in sorted(stalls.keys() | counters.keys()):
        if line > 0:
            reasons = sorted(stalls[file, line].items(), key=lambda item: (-item[1], item[0]))
            files[file][line] = LineHeat(
                {reason: samples / sampled for reason, samples in reasons},
                {key: amount / totals[key] for key, amount in counters[file, line].items()},
            )
    known = sum(line.share for each in files.values() for line in each.values())
    return Heat(files, max(0.0, 1 - known))
