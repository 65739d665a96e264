"""Describe a study and its ladder, read from ``ablation.toml``: the only list of variants.

These are plain values: importing this costs nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from workbench.errors import UsageError, nearest
from workbench.study.files import TomlTable, convert, is_plain_name, read_toml, shown_path, stands
from workbench.study.users_code import users_code
from workbench.study.values import Shape as Shape
from workbench.study.values import Tolerance as Tolerance
from workbench.study.values import ToleranceRule as ToleranceRule
from workbench.study.values import Work as Work
from workbench.study.values import tolerance_at as tolerance_at
from workbench.words import VIRTUAL_ROOT, Change, Parameter, Written

EXAMPLE = "see 'A whole workspace' in docs/variants.md"


@dataclass(frozen=True)
class Variant:
    """One implementation: a module with a ``run``, the sources it names, and parameters.

    ``name`` is that of the module, and of the parameters that differ from its own values:
    ``fix2`` or ``fix2[warps=12]``. A reference that ``needs`` a package is measured
    where that is installed, and not collected elsewhere.
    """

    name: str
    module: Path
    is_reference: bool = False
    title: str = ""
    needs: str = ""
    params: tuple[tuple[str, Parameter], ...] = ()


class Prediction(TomlTable, frozen=True):
    """Expected value of a figure: either a factor of the parent's value, or a range.

    figure: ``time``, ``dram_bandwidth``, ``stall.<reason>`` or an id of ``metrics.toml``.
    factor: Lowest and highest factor, inclusive.
    range: Lowest and highest value, inclusive, in the figure's unit.
    written: ``before`` or ``after`` the first measurement; default: as the journal shows.
    """

    figure: str
    factor: tuple[float, float] | None = None
    range: tuple[float, float] | None = None
    written: Written | None = None


class Step(TomlTable, frozen=True):
    """One step of the ladder: a variant with one change to its parent.

    variant: Name of the module without ``.py``, or ``name[param=value,...]``.
    parent: Step that this one changes. Only the first step has none.
    key_change: The one change, in one line. Required.
    label: The same in 20 characters at most, for charts and narrow tables.
    bottleneck: What limited the parent.
    rationale: Why the change should help.
    lesson: The result, for the next reader.
    prediction: Tables of predictions, as below.
    shape: Shape at which the step is judged; default: the shape of the command.
    chooses: Steps among which this dispatcher chooses. The fastest of them is compared.
    drops: Shapes that the parent supports and this step does not.
    kind: Kind of change, by its id in the catalogue of advice.
    corrects: Bug of the parent that this step fixes. The step need not be faster if a recorded
        check shows the bug.
    written: Default of ``written`` for the predictions of the step.
    expected: ``"wrong"`` for a step that is kept as an example of a wrong result. ``check`` accepts
        that, and refuses any other result.
    """

    variant: str
    parent: str | None = None
    key_change: str = ""
    label: Annotated[str, msgspec.Meta(max_length=20)] = ""
    bottleneck: str = ""
    rationale: str = ""
    lesson: str = ""
    predictions: tuple[Prediction, ...] = msgspec.field(default=(), name="prediction")
    shape: str = ""
    chooses: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()
    kind: Change | None = None
    corrects: str = ""
    written: Written | None = None
    expected: Literal["wrong"] | None = None

    def digest(self, prediction: Prediction) -> str:
        """Digest all that a prediction of this step says: another one has another."""
        says = [self.variant, self.parent, self.shape, prediction.figure]
        text = json.dumps([*says, prediction.factor, prediction.range])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Ladder:
    """``ablation.toml``: the steps in order, baseline first, and the reference variants.

    At the ``partial`` shapes only a part of the steps is measured: see ``measured_at``.
    """

    study: str
    path: Path
    steps: tuple[Step, ...]
    references: tuple[Variant, ...]
    primary_reference: str
    title: str = ""
    summary: str = ""
    partial: tuple[str, ...] = ()

    def step(self, variant: str) -> Step | None:
        return next((s for s in self.steps if s.variant == variant), None)

    def chain(self, variants: list[str]) -> list[Step]:
        """The named steps with all their ancestors, in ladder order."""
        wanted: set[str] = set()
        for name in variants or [s.variant for s in self.steps]:
            step = self.step(name)
            while step is not None and step.variant not in wanted:
                wanted.add(step.variant)
                step = self.step(step.parent) if step.parent else None
        wanted.add(self.steps[0].variant)
        return [s for s in self.steps if s.variant in wanted]

    def chosen_among(self, variants: Iterable[str]) -> list[str]:
        """List the steps that dispatchers among the variants could choose."""
        steps = filter(None, map(self.step, variants))
        return list(dict.fromkeys(part for step in steps for part in step.chooses))

    def measured_at(self, shape: str, steps: Sequence[Step]) -> list[Step]:
        """Pick the steps that are measured at a shape: all, unless it is ``partial``.

        There, where the first of the ladder may take seconds a call, they are those that are judged
        there, what they start from, and their outcome with those that it chooses among.
        """
        if shape not in self.partial:
            return list(steps)
        judged, last = [s for s in self.steps if s.shape == shape], outcome(steps)
        names = {last.variant, *last.chooses, *(s.variant for s in judged)}
        names |= {s.parent for s in judged if s.parent}
        return [s for s in steps if s.variant in names]

    def is_measured_at(self, shape: str, variant: str) -> bool:
        """Whether a step is, when all of them are."""
        return any(step.variant == variant for step in self.measured_at(shape, self.steps))


def outcome(steps: Sequence[Step]) -> Step:
    """The step that a ladder comes to: the last that chooses among others, else the last. Those
    behind a choice are for the next one, and may have few shapes.
    """
    return outcomes(steps)[-1]


def outcomes(steps: Sequence[Step]) -> list[Step]:
    """List the outcome of the ladder, after those that it had when it had come no further."""
    return [step for step in steps if step.chooses] or [steps[-1]]


@dataclass(frozen=True)
class Study:
    """``study.py`` read: the shapes and work of one operation, and where its files stand.

    ``derived`` are the parameters of those of its shapes that ``study.py`` does not list: see
    ``study.params``.
    """

    name: str
    folder: Path
    shapes: Mapping[str, Shape]
    default_shape: str
    tolerance: ToleranceRule
    ladder: Ladder
    variants: Mapping[str, Variant] = field(default_factory=dict)
    module: Any = None
    derived: dict[str, dict[str, Parameter]] = field(default_factory=dict)

    def work(self, shape: str) -> Work:
        """Raises UsageError for a ``work`` of study.py that fails, or gives anything else."""
        path = self.folder / "study.py"
        with users_code(path, f"has a work() that fails at '{shape}'"):
            result = self.module.work(self.shapes[shape])
        if isinstance(result, Work) and all(map(_is_amount, (result.flops, result.bytes))):
            return result
        raise UsageError(
            f"{path}: work() must return workbench.Work with flops and bytes as numbers, "
            f"not {result!r} at '{shape}'",
            hint=EXAMPLE,
        )

    def in_place(self, message: str) -> str:
        """Put the paths of the user's files for the names under which they are compiled."""
        return message.replace(f"{VIRTUAL_ROOT}/{self.name}/", f"{shown_path(self.folder)}/")


def _is_amount(value: object) -> bool:
    return isinstance(value, numbers.Real) and 0 <= float(value) < math.inf


def base_name(name: str) -> str:
    """``fix2`` of ``fix2[warps=12]``."""
    return name.partition("[")[0]


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


def _check_prediction(path: Path, where: str, prediction: Prediction) -> None:
    if (prediction.factor is None) == (prediction.range is None):
        raise UsageError(f"{path}: {where} needs either 'factor' or 'range'")
    low, high = prediction.factor or prediction.range or (0.0, 0.0)
    if not 0 <= low <= high < math.inf:
        key = "range" if prediction.factor is None else "factor"
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
    for prediction in step.predictions:
        _check_prediction(path, f"{where}.prediction", prediction)
    written = (
        replace(prediction, written=prediction.written or step.written)
        for prediction in step.predictions
    )
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
                name=listed.variant,
                module=folder / f"{listed.variant}.py",
                is_reference=True,
                title=listed.title or listed.variant,
                needs=listed.needs,
            )
            for listed in top.reference
        ),
        primary_reference=primary[0] if primary else "",
        title=top.title or study,
        summary=top.summary,
        partial=top.partial,
    )


def shapes_of(steps: Sequence[Step], table: str) -> list[str]:
    """Every shape at which some step is judged; that of the table first."""
    return list(dict.fromkeys([table, *(step.shape for step in steps if step.shape)]))


def steps_shown(steps: Sequence[Step], names: Sequence[str], shape: str) -> list[Step]:
    """The baseline, the steps named, and those at this shape that start from one of them."""
    return [
        step
        for step in steps
        if step is steps[0]
        or step.variant in names
        or (step.parent in names and (step.shape or shape) == shape)
    ]


def judged_at(steps: Sequence[Step], shape: str, table: str) -> list[Step]:
    """Steps judged at a shape; one without a shape of its own is judged at the table's."""
    return [step for step in steps if (step.shape or table) == shape]


def shown_at(steps: Sequence[Step], shape: str, table: str) -> list[Step]:
    """Steps judged at a shape and those that they start from, in the order of the ladder."""
    judged = judged_at(steps, shape, table)
    names = {step.variant for step in judged} | {step.parent for step in judged}
    return [step for step in steps if step.variant in names]
