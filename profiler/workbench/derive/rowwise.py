"""Tall tables row by row, without what pandas takes for each single value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def rows(table: pd.DataFrame, *columns: str) -> Iterator[tuple[Any, ...]]:
    """The values of some columns, one tuple a row."""
    return zip(*(table[name].tolist() for name in columns), strict=True)
