"""``ablation.toml``: the only list of a study's variants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.errors import UsageError, nearest
from workbench.study.config import CHOICES, MOST
from workbench.study.model import Ladder, Prediction, Step, Variant
from workbench.study.params import base_name
from workbench.study.text import check_keys, is_number, is_plain_name, read_toml, stands
from workbench.words import Change, Written

TOP_KEYS = [
    *("schema_version", "title", "summary", "cache_control", "max_error", "partial"),
    *("step", "reference"),
]
STEP_KEYS = [
    "variant",
    "parent",
    "key_change",
    "kind",
    "shape",
    "chooses",
    "drops",
    "corrects",
    "bottleneck",
    "rationale",
    "lesson",
    "written",
    "prediction",
]
REFERENCE_KEYS = ["variant", "title", "primary", "needs"]
PREDICTION_KEYS = ["figure", "factor", "range", "written"]
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
    pair = isinstance(value, list) and len(value) == 2 and all(map(is_number, value))
    if not pair or not 0 <= value[0] <= value[1]:
        raise UsageError(
            f"{path}: {where} must be [low, high], not {value!r}",
            hint="two finite numbers, none of them below zero, the lower one first",
        )
    return float(value[0]), float(value[1])


def _variant(path: Path, where: str, table: dict[str, Any]) -> str:
    """The variant of a step or reference: a name that is one of a file in the study's folder."""
    name = _text(path, where, table, "variant", needed=True)
    if not (is_plain_name(name) and is_plain_name(f"{base_name(name)}.py")):
        raise UsageError(
            f"{path}: {where} has the variant '{name}', which is no name of a file",
            hint="a variant is called as its module beside study.py, without '/' and without .py",
        )
    return name


def _written(
    path: Path, where: str, table: dict[str, Any], otherwise: Written | None = None
) -> Written | None:
    value = table.get("written", otherwise)
    if value not in (None, *Written):
        raise UsageError(
            f"{path}: '{where}.written' is {value!r}, none of {', '.join(Written)}",
            hint="the first measurement of the step counts; leave it out and the journal says it",
        )
    return Written(value) if value else None


def _kind(path: Path, where: str, table: dict[str, Any]) -> Change | None:
    value = _text(path, where, table, "kind")
    if value and value not in list(Change):
        raise UsageError(
            f"{path}: '{where}.kind' is {value!r}, no kind of change",
            hint=nearest(value, list(Change)),
        )
    return Change(value) if value else None


def _prediction(
    path: Path, where: str, table: dict[str, Any], written: Written | None
) -> Prediction:
    """``written`` is the step's, for a prediction that has no word of its own."""
    check_keys(path, where, table, PREDICTION_KEYS)
    figure = _text(path, where, table, "figure", needed=True)
    factor = _pair(path, f"{where}.factor", table.get("factor"))
    bounds = _pair(path, f"{where}.range", table.get("range"))
    if (factor is None) == (bounds is None):
        raise UsageError(f"{path}: {where} needs either 'factor' or 'range'")
    return Prediction(
        figure=figure,
        factor=factor,
        range=bounds,
        written=_written(path, where, table, written),
    )


def _tables(path: Path, name: str, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise UsageError(f"{path}: '{name}' must be tables", hint=f"write [[{name}]]")
    return value


def _step(path: Path, table: dict[str, Any], earlier: list[str]) -> Step:
    check_keys(path, "step", table, STEP_KEYS)
    variant = _variant(path, "step", table)
    where = f"step '{variant}'"
    parent = _text(path, where, table, "parent") or None
    if variant in earlier:
        raise UsageError(f"{path}: {where} is listed twice")
    if earlier and parent is None:
        raise UsageError(f"{path}: {where} has no 'parent'", hint="only the first step has none")
    if parent is not None and parent not in earlier:
        hint = nearest(parent, earlier) if earlier else "the first step has no parent: leave it out"
        raise UsageError(f"{path}: {where} builds on '{parent}', not an earlier step", hint=hint)
    corrects = _text(path, where, table, "corrects")
    if corrects and parent is None:
        raise UsageError(
            f"{path}: {where} corrects something and has no 'parent'",
            hint="'corrects' says what the parent does wrong",
        )
    predictions = _tables(path, "step.prediction", table.get("prediction", []))
    written = _written(path, where, table)
    return Step(
        variant=variant,
        parent=parent,
        key_change=_text(path, where, table, "key_change", needed=True),
        kind=_kind(path, where, table),
        bottleneck=_text(path, where, table, "bottleneck"),
        rationale=_text(path, where, table, "rationale"),
        lesson=_text(path, where, table, "lesson"),
        predictions=tuple(
            _prediction(path, f"{where}.prediction", p, written) for p in predictions
        ),
        shape=_text(path, where, table, "shape"),
        chooses=_names(path, where, table, "chooses", "variants", '["fix1", "fix2[warps=8]"]'),
        drops=_names(path, where, table, "drops", "shapes", '["ragged"]'),
        corrects=corrects,
    )


def _names(
    path: Path, where: str, table: dict[str, Any], key: str, what: str, example: str
) -> tuple[str, ...]:
    names = table.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UsageError(
            f"{path}: '{where}.{key}' must be a list of {what}, not {names!r}",
            hint=f"such as {key} = {example}",
        )
    return tuple(names)


def _check_chosen(path: Path, steps: list[Step]) -> None:
    """A step chooses among other steps: of no other is there evidence at its shapes."""
    for step in steps:
        others = [other.variant for other in steps if other is not step]
        for name in step.chooses:
            if name not in others:
                raise UsageError(
                    f"{path}: step '{step.variant}' chooses '{name}', no other step of the ladder",
                    hint=nearest(name, others),
                )


def _flag(path: Path, where: str, table: dict[str, Any], key: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise UsageError(
            f"{path}: '{where}.{key}' must be true or false, not {value!r}",
            hint=f"write {key} = true, without quotes",
        )
    return value


def _reference(path: Path, table: dict[str, Any], folder: Path) -> tuple[Variant, bool]:
    """The reference, and whether it is the primary one."""
    check_keys(path, "reference", table, REFERENCE_KEYS)
    name = _variant(path, "reference", table)
    primary = _flag(path, f"reference '{name}'", table, "primary")
    reference = Variant(
        name=name,
        module=folder / f"{name}.py",
        is_reference=True,
        title=_text(path, "reference", table, "title") or name,
        needs=_text(path, f"reference '{name}'", table, "needs"),
    )
    return reference, primary


def _cache_control(path: Path, data: dict[str, Any]) -> str:
    known = CHOICES["profiler.cache_control"]
    value = _text(path, "top", data, "cache_control")
    if value and value not in known:
        raise UsageError(f"{path}: 'cache_control' is {value!r}", hint=nearest(value, known))
    return value


def _max_error(path: Path, data: dict[str, Any]) -> float | None:
    value, most = data.get("max_error"), MOST["gates.max_error"]
    if value is None:
        return None
    if not is_number(value) or not 0 < value <= most:
        raise UsageError(
            f"{path}: 'max_error' must be a number above zero and at most {most:g}, not {value!r}",
            hint="it is a multiple of the primary reference's error; leave it out for 2",
        )
    return float(value)


def read_ladder(path: Path, study: str, folder: Path) -> Ladder:
    """Raises UsageError naming the file and key for anything wrong in it."""
    if not stands(path):
        raise UsageError(
            f"study '{study}' has no {path}", hint="it lists the variants of the study"
        )
    data = read_toml(path)
    check_keys(path, "", data, TOP_KEYS)
    version = data.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise UsageError(
            f"{path}: schema_version must be {SCHEMA_VERSION}",
            hint=f"write schema_version = {SCHEMA_VERSION} at its top",
        )
    steps: list[Step] = []
    for table in _tables(path, "step", data.get("step", [])):
        steps.append(_step(path, table, [s.variant for s in steps]))
    if not steps:
        raise UsageError(f"{path} has no steps", hint="write one [[step]] for the baseline")
    _check_chosen(path, steps)
    tables = _tables(path, "reference", data.get("reference", []))
    read = [_reference(path, table, folder) for table in tables]
    references = [reference for reference, _ in read]
    primary = [reference.name for reference, is_primary in read if is_primary]
    names = [s.variant for s in steps] + [r.name for r in references]
    if len(set(names)) != len(names):
        raise UsageError(f"{path}: a variant is listed twice")
    if references and len(primary) != 1:
        raise UsageError(f"{path}: exactly one reference must have primary = true")
    return Ladder(
        study=study,
        path=path,
        steps=tuple(steps),
        references=tuple(references),
        primary_reference=primary[0] if primary else "",
        title=_text(path, "top", data, "title") or study,
        summary=_text(path, "top", data, "summary"),
        cache_control=_cache_control(path, data),
        max_error=_max_error(path, data),
        partial=_names(path, "top", data, "partial", "shapes", '["S=16384"]'),
    )
