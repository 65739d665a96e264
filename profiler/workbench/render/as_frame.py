"""Judged values as DataFrames: the keys of the JSON are the columns, numbers stay numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from workbench.derive.figures import Figure, figure_label
from workbench.judge.rows import Ablation
from workbench.ncu.report import Launch
from workbench.render.as_json import ladder, launches, plain_data
from workbench.words import Status

if TYPE_CHECKING:
    import pandas as pd

OWN = ("value", "ratio")  # of a number with an interval: it stands under the key itself


def parts(key: str, value: Any) -> dict[str, Any]:
    """The columns of a key: itself, or those of an object as ``microseconds_low``. Lists, and what
    lies deeper, stay in the JSON.
    """
    if isinstance(value, Mapping):
        inner = {k: v for k, v in value.items() if not isinstance(v, Mapping | list | tuple)}
        return {key if k in OWN else f"{key}_{k}": v for k, v in inner.items()}
    return {} if isinstance(value, list | tuple) else {key: value}


def frame(rows: Iterable[Mapping[str, Any]], index: str) -> pd.DataFrame:
    """One row each, under the value of ``index``. What a row has not is NaN or None."""
    import pandas as pd

    data = [plain_data(row) for row in rows]
    columns: list[str] = []
    for key in dict.fromkeys(key for row in data for key in row):
        objects = [row[key] for row in data if row.get(key) is not None]
        its = dict.fromkeys(name for each in objects for name in parts(key, each))
        columns += its or [key]
    flat = [{k: v for key in row for k, v in parts(key, row[key]).items()} for row in data]
    table = pd.DataFrame(flat, columns=columns).set_index(index)
    return table.apply(_numbers)


def _numbers(column: pd.Series[Any]) -> pd.Series[Any]:
    """NaN for None where all else are numbers."""
    known = [value for value in column if value is not None]
    if len(known) == len(column) or not all(type(v) in (int, float) for v in known):
        return column
    return column.astype(float)


def versions(found: Ablation) -> pd.DataFrame:
    """One row a step, then the references: what the columns of the ladder have, with intervals."""
    return frame(
        (
            {**ladder.columns(found, row), "status": row.status, "problem": row.problem}
            for row in found.everything
        ),
        "variant",
    )


def figures(known: Mapping[str, Figure]) -> pd.DataFrame:
    """One row a figure, by its id: what it is called, its value and unit, and the ncu metric."""
    return frame(
        (
            {
                "figure": name,
                "label": figure_label(name)[0],
                "value": each.value if math.isfinite(each.value) else None,
                "unit": each.unit,
                "metric": each.metric,
            }
            for name, each in known.items()
        ),
        "figure",
    )


def launched(known: Iterable[Launch]) -> pd.DataFrame:
    """One row a launch; grid and block as ``x*y*z``."""
    return frame(
        (
            {
                **launches.launch(each),
                **{k: "*".join(map(str, getattr(each, k) or ())) for k in ("grid", "block")},
            }
            for each in known
        ),
        "launch",
    )


def states(known: Mapping[str, Mapping[str, Status]]) -> pd.DataFrame:
    """One row a variant: the state of its build, check, timing and capture."""
    return frame(({"variant": name, **state} for name, state in known.items()), "variant")
