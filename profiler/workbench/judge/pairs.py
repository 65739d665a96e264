"""Any two variants of a study at one shape, side by side. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workbench.derive.intervals import Ratio
from workbench.judge.comparability import file_warnings, ladder_warnings
from workbench.judge.comparison import Comparison
from workbench.judge.inputs import Snapshot
from workbench.judge.rows import Row
from workbench.judge.view import Views
from workbench.study.config import Config
from workbench.words import Regime


@dataclass(frozen=True)
class VariantPair:
    """Any two variants: how many times faster in every regime, and their captures compared; what
    is not collected is not there, or None.
    """

    before: Row
    after: Row
    speedups: Mapping[Regime, Ratio]
    comparison: Comparison | None
    warnings: tuple[str, ...]

    @property
    def speedup(self) -> Ratio | None:
        """Chained."""
        return self.speedups.get(Regime.CHAINED)


def judge_pair(snapshot: Snapshot, config: Config, before: Row, after: Row) -> VariantPair:
    """Two rows of the table that was judged on this snapshot."""
    names = (before.variant, after.variant)
    view = Views(snapshot, config, names).table
    return VariantPair(
        before=before,
        after=after,
        speedups={
            regime: ratio for regime in Regime if (ratio := view.times.ratio(*names, regime))
        },
        comparison=view.compare(*names),
        warnings=(*file_warnings(snapshot, names), *ladder_warnings([before, after], view)),
    )
