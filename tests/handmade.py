"""Tables of a few rows for tests, as a capture has them."""

from __future__ import annotations

from workbench.ncu.capture import METRIC_COLUMNS, ColumnTable


def metrics(*launches: dict[str, float]) -> ColumnTable:
    """Of one kernel a launch: metric name to value."""
    rows = [
        (i, f"k{i}", name, value, "")
        for i, found in enumerate(launches)
        for name, value in found.items()
    ]
    return ColumnTable(rows, columns=METRIC_COLUMNS)
