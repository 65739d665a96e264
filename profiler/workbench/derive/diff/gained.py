"""The line at which more is waited than before. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from workbench.derive.diff.model import Line, SourceDiff


@dataclass(frozen=True)
class Gained:
    """A line of the newer side, and how many microseconds of stalls it has more."""

    file: str
    line: int
    microseconds: float


def gained(diff: SourceDiff) -> Gained | None:
    """None without costs of both sides, and where no line gained any."""
    if not diff.has_costs:
        return None
    most = max(_lines(diff), key=lambda one: one.microseconds, default=None)
    return most if most is not None and most.microseconds > 0 else None


def _lines(diff: SourceDiff) -> Iterator[Gained]:
    """All lines of the newer side; one that is new gained all that it costs."""
    for file in diff.files:
        for row in file.rows:
            if row.after is not None:
                more = _time(row.after) - _time(row.before)
                yield Gained(file.after, row.after.number, more)


def _time(line: Line | None) -> float:
    return (line.cost.microseconds or 0.0) if line else 0.0
