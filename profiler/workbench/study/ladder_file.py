"""``ablation.toml``: the only list of a study's variants."""

from __future__ import annotations

import math
from pathlib import Path

from msgspec.structs import replace

from workbench.errors import UsageError, nearest
from workbench.study.files import TomlTable, convert, is_plain_name, read_toml, stands
from workbench.study.model import Ladder, Prediction, Step, Variant
from workbench.study.params import base_name

SCHEMA_VERSION = 1


class Reference(TomlTable, frozen=True):
    """A variant to compare with; not a step of the ladder.

    variant: Name of the module, without ``.py``.
    title: Name in the report; default: the variant.
    primary: Whether errors are compared with this reference. True for exactly one.
    needs: Package without which the reference is not collected.
    """

    variant: str
    title: str = ""
    primary: bool = False
    needs: str = ""


class LadderFile(TomlTable, frozen=True):
    """Top of the file, below ``schema_version = 1``.

    title: Title of the report; default: the study.
    summary: Introduction of the report.
    partial: Shapes at which ``ablate`` measures only the steps judged there, their ancestors, the
        last step and the references.
    """

    title: str = ""
    summary: str = ""
    partial: tuple[str, ...] = ()
    step: tuple[Step, ...] = ()
    reference: tuple[Reference, ...] = ()


def _joined(value: object) -> object:
    """A file whose texts may be broken over lines."""
    if isinstance(value, dict):
        return {key: _joined(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [inner if isinstance(inner, str) else _joined(inner) for inner in value]
    return " ".join(value.split()) if isinstance(value, str) else value


def _check_variant(path: Path, where: str, name: str) -> None:
    """The variant of a step or reference: a name that is one of a file in the study's folder."""
    if not (is_plain_name(name) and is_plain_name(f"{base_name(name)}.py")):
        raise UsageError(
            f"{path}: {where} has the variant '{name}', which is no name of a file",
            hint="a variant is called as its module beside study.py, without '/' and without .py",
        )


def _check_prediction(path: Path, where: str, found: Prediction) -> None:
    if (found.factor is None) == (found.range is None):
        raise UsageError(f"{path}: {where} needs either 'factor' or 'range'")
    low, high = found.factor or found.range or (0.0, 0.0)
    if not 0 <= low <= high < math.inf:
        key = "range" if found.factor is None else "factor"
        raise UsageError(
            f"{path}: '{where}.{key}' must be [low, high], not {[low, high]}",
            hint="two finite numbers, none of them below zero, the lower one first",
        )


def _checked(path: Path, step: Step, earlier: list[str]) -> Step:
    """The step, each of its predictions with a word on when it was written."""
    where = f"step '{step.variant}'"
    _check_variant(path, "step", step.variant)
    if not step.key_change:
        raise UsageError(f"{path}: {where} has no 'key_change'")
    if step.variant in earlier:
        raise UsageError(f"{path}: {where} is listed twice")
    if step.corrects and step.parent is None:
        raise UsageError(
            f"{path}: {where} corrects something and has no 'parent'",
            hint="'corrects' says what the parent does wrong",
        )
    if earlier and step.parent is None:
        raise UsageError(f"{path}: {where} has no 'parent'", hint="only the first step has none")
    if step.parent is not None and step.parent not in earlier:
        raise UsageError(
            f"{path}: {where} builds on '{step.parent}', not an earlier step",
            hint=nearest(step.parent, earlier)
            if earlier
            else "the first step has no parent: leave it out",
        )
    for each in step.predictions:
        _check_prediction(path, f"{where}.prediction", each)
    written = (replace(each, written=each.written or step.written) for each in step.predictions)
    return replace(step, predictions=tuple(written))


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


def read_ladder(path: Path, study: str, folder: Path) -> Ladder:
    """Raises UsageError naming the file and key for anything wrong in it."""
    if not stands(path):
        raise UsageError(
            f"study '{study}' has no {path}", hint="it lists the variants of the study"
        )
    data = read_toml(path)
    version = data.pop("schema_version", None)
    if type(version) is not int or version != SCHEMA_VERSION:
        raise UsageError(
            f"{path}: schema_version must be {SCHEMA_VERSION}",
            hint=f"write schema_version = {SCHEMA_VERSION} at its top",
        )
    top = convert(_joined(data), LadderFile, path)
    steps: list[Step] = []
    for step in top.step:
        steps.append(_checked(path, step, [s.variant for s in steps]))
    if not steps:
        raise UsageError(f"{path} has no steps", hint="write one [[step]] for the baseline")
    _check_chosen(path, steps)
    for reference in top.reference:
        _check_variant(path, "reference", reference.variant)
    primary = [reference.variant for reference in top.reference if reference.primary]
    names = [s.variant for s in steps] + [r.variant for r in top.reference]
    if len(set(names)) != len(names):
        raise UsageError(f"{path}: a variant is listed twice")
    if top.reference and len(primary) != 1:
        raise UsageError(f"{path}: exactly one reference must have primary = true")
    return Ladder(
        study=study,
        path=path,
        steps=tuple(steps),
        references=tuple(
            Variant(
                name=one.variant,
                module=folder / f"{one.variant}.py",
                is_reference=True,
                title=one.title or one.variant,
                needs=one.needs,
            )
            for one in top.reference
        ),
        primary_reference=primary[0] if primary else "",
        title=top.title or study,
        summary=top.summary,
        partial=top.partial,
    )
