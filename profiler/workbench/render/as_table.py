"""Judged values as tables for other tools: DataFrames, whose columns are the keys of the JSON with
numbers left numbers, and CSV.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workbench.derive.figures import Figure
from workbench.judge.advice_rules import Advice
from workbench.judge.findings import sentence
from workbench.judge.ladder import Ablation
from workbench.ncu.report_file import Launch
from workbench.render.as_json import plain_data, shown_fields
from workbench.render.document.hunks import SourceLine
from workbench.render.document.printed_ladder import Where, data
from workbench.render.text import printable

if TYPE_CHECKING:
    import pandas as pd

OWN = ("value", "ratio")  # of a number with an interval: it stands under the key itself


def parts(key: str, value: object) -> dict[str, object]:
    """The columns of a key: itself, or those of an object as ``microseconds_low``. Lists, and what
    lies deeper, stay in the JSON.
    """
    if isinstance(value, Mapping):
        inner = {k: v for k, v in value.items() if not isinstance(v, Mapping | list | tuple)}
        return {key if k in OWN else f"{key}_{k}": v for k, v in inner.items()}
    return {} if isinstance(value, list | tuple) else {key: value}


def frame(rows: Iterable[object], index: str) -> pd.DataFrame:
    """One row each, under the value of ``index``. What a row has not is NaN, None or no text."""
    import pandas as pd

    data = [plain_data(row) for row in rows]
    columns: list[str] = []
    for key in dict.fromkeys(key for row in data for key in row):
        objects = [row[key] for row in data if row.get(key) is not None]
        its = dict.fromkeys(name for each in objects for name in parts(key, each))
        columns += its or [key]
    flat = [{k: v for key in row for k, v in parts(key, row[key]).items()} for row in data]
    return pd.DataFrame(flat, columns=columns or [index]).set_index(index).apply(_texts)


def _texts(column: pd.Series[Any]) -> pd.Series[Any]:
    """No text for None where there are texts."""
    return column.fillna("") if any(isinstance(value, str) for value in column) else column


def variants(*ladders: Ablation) -> pd.DataFrame:
    """One row a variant, then the references: the values of the ladder's columns, all of ``shape``
    but the verdict of a row with ``judged_at``.
    """
    rows = (
        {"shape": ladder.shape, **data(ladder, row, Where.CSV), "judged_at": row.judged_at}
        for ladder in ladders
        for row in ladder.everything
    )
    return frame(rows, "variant")


def figures(by_id: Mapping[str, Figure], **more: object) -> pd.DataFrame:
    """One row a figure, by its id: what it is called, its value and unit, and the ncu metric."""
    rows = (
        {"figure": key, **more, **shown_fields(figure, "id", "better")}
        for key, figure in by_id.items()
    )
    return frame(rows, "figure")


def joined(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat(tables)


def launch_row(launch: Launch) -> dict[str, object]:
    """A launch; grid and block as ``x*y*z``."""
    extents = {key: "*".join(map(str, getattr(launch, key) or ())) for key in ("grid", "block")}
    return {**plain_data(launch), **extents}


def advised(advice: Iterable[Advice]) -> pd.DataFrame:
    """One row a change, under its kind, the best first."""
    rows = (
        {
            "change": each.change,
            "limit": each.limit.id,
            "metric": each.limit.metric,
            "share_of_duration": each.limit.share,
            "file": each.spot.file if each.spot else None,
            "line": each.spot.line if each.spot else None,
            "why": sentence(each.why),
        }
        for each in advice
    )
    return frame(rows, "change")


def source_lines(files: Mapping[str, Sequence[SourceLine]]) -> pd.DataFrame:
    """One row a line that ran, the one with the most stall samples first."""
    ran = [(file, one) for file, lines in files.items() for one in lines if one.ran]
    ran.sort(key=lambda item: -(item[1].samples or 0))
    return frame(({"file": file, **shown_fields(one)} for file, one in ran), "file")


FORMULA = ("=", "+", "-", "@")  # what a spreadsheet takes for one


def as_csv(table: pd.DataFrame) -> str:
    """Unrounded numbers, and texts that no spreadsheet runs; what is missing is empty."""
    return table.reset_index().map(safe).to_csv(index=False, lineterminator="\n").rstrip("\n")


def safe(value: Any) -> str:
    """Text that no spreadsheet runs: what begins like a formula and is no number is quoted."""
    if value is None or value != value:
        return ""
    text = printable(str(value).lower() if isinstance(value, bool) else str(value))
    if text.startswith(FORMULA):
        try:
            float(text)
        except ValueError:
            return f"'{text}"
    return text
