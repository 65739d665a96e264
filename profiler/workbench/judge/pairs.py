"""Any two variants of a study at one shape, side by side. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.derive.speedup import Ratio
from workbench.judge.comparability import file_warnings, ladder_warnings
from workbench.judge.comparison import Comparison
from workbench.judge.inputs import Snapshot
from workbench.judge.rows import Row
from workbench.judge.view import Views
from workbench.study.config import Config


@dataclass(frozen=True)
class VariantPair:
    """Any two variants; ``speedup`` and ``comparison`` are None as for a step and its parent."""

    before: Row
    after: Row
    speedup: Ratio | None
    comparison: Comparison | None
    warnings: tuple[str, ...]


def judge_pair(snapshot: Snapshot, config: Config, before: Row, after: Row) -> VariantPair:
    """Two rows of the table that was judged on this snapshot."""
    names = (before.variant, after.variant)
    view = Views(snapshot, config, names).table
    return VariantPair(
        before=before,
        after=after,
        speedup=view.times.ratio(*names),
        comparison=view.compare(*names),
        warnings=(*file_warnings(snapshot, names), *ladder_warnings([before, after], view)),
    )
