"""``ablation.toml``: the only list of a study's variants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.errors import UsageError, nearest
from workbench.study.config import check_keys, read_toml
from workbench.study.model import Ladder, Prediction, Step, Variant

TOP_KEYS = ["schema_version", "title", "summary", "step", "reference"]
STEP_KEYS = [
    "variant",
    "parent",
    "key_change",
    "shape",
    "bottleneck",
    "rationale",
    "lesson",
    "prediction",
    "chooses",
]
REFERENCE_KEYS = ["variant", "title", "primary", "captured"]
PREDICTION_KEYS = ["figure", "factor", "range"]
SCHEMA_VERSION = 1


def _text(path: Path, where: str, table: dict[str, Any], key: str, *, needed: bool = False) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise UsageError(f"{path}: '{where}.{key}' must be a string, not {value!r}")
    if needed and not value:
        raise UsageError(f"{path}: {where} has no '{key}'")
    return " ".join(value.split())


def _pair(path: Path, where: str, value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    numbers = isinstance(value, list) and len(value) == 2
    if not numbers or not all(type(v) in (int, float) for v in value) or value[0] > value[1]:
        raise UsageError(f"{path}: {where} must be [low, high], not {value!r}")
    return float(value[0]), float(value[1])


def _prediction(path: Path, where: str, table: dict[str, Any]) -> Prediction:
    check_keys(path, where, table, PREDICTION_KEYS)
    figure = _text(path, where, table, "figure", needed=True)
    factor = _pair(path, f"{where}.factor", table.get("factor"))
    bounds = _pair(path, f"{where}.range", table.get("range"))
    if (factor is None) == (bounds is None):
        raise UsageError(f"{path}: {where} needs either 'factor' or 'range'")
    return Prediction(figure, factor, bounds)


def _tables(path: Path, name: str, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise UsageError(f"{path}: '{name}' must be tables", hint=f"write [[{name}]]")
    return value


def _chooses(path: Path, where: str, value: Any, earlier: list[str]) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise UsageError(f"{path}: '{where}.chooses' must be a list of variants, not {value!r}")
    for name in value:
        if name not in earlier:
            hint = nearest(name, earlier)
            raise UsageError(f"{path}: {where} chooses '{name}', not an earlier step", hint=hint)
    return tuple(value)


def _step(path: Path, table: dict[str, Any], earlier: list[str]) -> Step:
    check_keys(path, "step", table, STEP_KEYS)
    variant = _text(path, "step", table, "variant", needed=True)
    where = f"step '{variant}'"
    parent = _text(path, where, table, "parent") or None
    if variant in earlier:
        raise UsageError(f"{path}: {where} is listed twice")
    if earlier and parent is None:
        raise UsageError(f"{path}: {where} has no 'parent'", hint="only the first step has none")
    if parent is not None and parent not in earlier:
        hint = nearest(parent, earlier)
        raise UsageError(f"{path}: {where} builds on '{parent}', not an earlier step", hint=hint)
    predictions = _tables(path, "step.prediction", table.get("prediction", []))
    return Step(
        variant,
        parent,
        _text(path, where, table, "key_change", needed=True),
        _text(path, where, table, "bottleneck"),
        _text(path, where, table, "rationale"),
        _text(path, where, table, "lesson"),
        tuple(_prediction(path, f"{where}.prediction", p) for p in predictions),
        _text(path, where, table, "shape"),
        _chooses(path, where, table.get("chooses", []), earlier),
    )


def read_ladder(path: Path, study: str, folder: Path) -> Ladder:
    """Raises UsageError naming the file and key for anything wrong in it."""
    if not path.is_file():
        raise UsageError(
            f"study '{study}' has no {path}", hint="it lists the variants of the study"
        )
    data = read_toml(path)
    check_keys(path, "", data, TOP_KEYS)
    if data.get("schema_version") != SCHEMA_VERSION:
        raise UsageError(f"{path}: schema_version must be {SCHEMA_VERSION}")
    steps: list[Step] = []
    for table in _tables(path, "step", data.get("step", [])):
        steps.append(_step(path, table, [s.variant for s in steps]))
    if not steps:
        raise UsageError(f"{path} has no steps", hint="write one [[step]] for the baseline")
    references: list[Variant] = []
    primary: list[str] = []
    for table in _tables(path, "reference", data.get("reference", [])):
        check_keys(path, "reference", table, REFERENCE_KEYS)
        name = _text(path, "reference", table, "variant", needed=True)
        title = _text(path, "reference", table, "title") or name
        captured = table.get("captured", False)
        if not isinstance(captured, bool):
            raise UsageError(f"{path}: 'reference.captured' must be true or false")
        if captured and table.get("primary"):
            raise UsageError(
                f"{path}: reference '{name}' is only captured, so it cannot be primary",
                hint="the primary reference is timed beside every variant",
            )
        references.append(Variant(name, folder / f"{name}.py", True, title, captured))
        if table.get("primary"):
            primary.append(name)
    names = [s.variant for s in steps] + [r.name for r in references]
    if len(set(names)) != len(names):
        raise UsageError(f"{path}: a variant is listed twice")
    if any(not r.captured for r in references) and len(primary) != 1:
        raise UsageError(f"{path}: exactly one reference must have primary = true")
    return Ladder(
        study,
        path,
        tuple(steps),
        tuple(references),
        primary[0] if primary else "",
        _text(path, "top", data, "title") or study,
        _text(path, "top", data, "summary"),
    )
