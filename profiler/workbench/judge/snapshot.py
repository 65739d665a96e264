"""Pulls all that a judgement needs out of evidence and captures: after it no file is opened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

from workbench.derive.speedup import Ratio
from workbench.errors import BadCapture
from workbench.evidence.journal import known_between, load_journal
from workbench.evidence.layout import is_there
from workbench.evidence.recorded import Evidence
from workbench.evidence.records import Build, Check
from workbench.judge.known_evidence import (
    ShapeEvidence,
    ShapeTimes,
    Snapshot,
    TimedTogether,
    VariantEvidence,
    asked_for,
    main_timing,
    shapes_of,
    shown_at,
)
from workbench.ncu.capture import Capture
from workbench.ncu.captures import current_capture, reports_of
from workbench.ncu.catalog import catalog
from workbench.study.front_ends import front_ends_of
from workbench.study.model import Step, outcomes
from workbench.study.sources import source_files, source_texts
from workbench.study.unseen import unseen_shapes
from workbench.words import CheckResult, Status


class UnseenEvidence(TypedDict, total=False):
    """Fields of ``VariantEvidence``."""

    unseen: Mapping[str, Check | None]
    unseen_over: Ratio | None
    seed: str


@dataclass(frozen=True)
class ShapeRequest:
    """Which variants at one shape, and whether their captures and texts."""

    variants: tuple[str, ...]
    captures: bool = False
    texts: Texts | None = None


class Texts:
    """Sources of variants by their name in the line table, each read once."""

    def __init__(self) -> None:
        self._known: dict[str, Mapping[str, str]] = {}

    def of(self, evidence: Evidence, variant: str) -> Mapping[str, str]:
        if variant not in self._known:
            study = evidence.study
            self._known[variant] = source_texts(study, study.variants[variant])
        return self._known[variant]


def snapshot(
    evidence: Evidence,
    steps: Sequence[Step],
    *,
    sources: bool = False,
    timed: Sequence[Step] | None = None,
    only: Sequence[str] = (),
    everywhere: bool = True,
) -> Snapshot:
    """What is recorded of ``steps`` and of all references at the shape of ``evidence``, and of
    steps that are judged at another shape what decides about them there.

    ``everywhere``: also what tables at these shapes need, the times of the outcomes of ``steps``
    (or of ``timed``) at all shapes. ``only`` these variants are to be shown, and what they are
    compared with comes along. ``sources``: their texts as well.
    """
    catalog()  # a file, too
    study = evidence.study
    everywhere = everywhere and not only
    if timed is None:
        timed = outcomes(steps) if steps and not only else []
    judged = asked_for(steps, only, evidence.shape) if only else steps
    wanted = dict(_wanted(evidence, judged, timed, Texts() if sources else None))
    journal = load_journal(evidence.folder)
    shapes = {shape: _shape(evidence.at(shape), wanted[shape]) for shape in wanted}
    return Snapshot(
        study=study.name,
        gpu=evidence.folder.gpu,
        ladder=study.ladder,
        steps=tuple(steps),
        shape=evidence.shape,
        default_shape=study.default_shape,
        shapes=shapes,
        calibration=evidence.calibration,
        notes=(*reports_of(evidence).notes, *journal.notes),
        journal=journal,
        only=tuple(only),
        everywhere=everywhere,
        between=known_between(evidence.folder.gpu),
    )


def at_one_shape(evidence: Evidence, variants: Sequence[str], *, captures: bool) -> ShapeEvidence:
    """What is recorded of some variants, at the shape of ``evidence`` alone."""
    catalog()  # a file, too
    return _shape(evidence, ShapeRequest(_once(variants), captures=captures))


def _wanted(
    evidence: Evidence, steps: Sequence[Step], timed: Sequence[Step], texts: Texts | None
) -> Iterator[tuple[str, ShapeRequest]]:
    """Shape to what is wanted there, in the order of the study; ``timed`` steps at all of them."""
    study, table = evidence.study, evidence.shape
    ladders = shapes_of(steps, table)
    references = [reference.name for reference in study.ladder.references]
    for name, shape in study.shapes.items():
        if name in ladders:
            beside = (study.ladder.steps[0].variant, *references)
            variants = [*_compared(steps, name, table), *_names(timed), *beside]
            yield name, ShapeRequest(_once(variants), captures=True, texts=texts)
        elif shape.profiled and timed and table == study.default_shape:
            yield name, ShapeRequest(_once([*_names(timed), *references]))


def _compared(steps: Sequence[Step], shape: str, table: str) -> Iterator[str]:
    """What the ladder at a shape shows and compares."""
    for step in steps if shape == table else shown_at(steps, shape, table):
        yield step.variant
        yield from step.chooses
        yield step.parent or ""


def _names(steps: Iterable[Step]) -> Iterator[str]:
    return (step.variant for step in steps)


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(names) if name)


def _shape(evidence: Evidence, wanted: ShapeRequest) -> ShapeEvidence:
    shape = evidence.study.shapes[evidence.shape]
    return ShapeEvidence(
        shape=evidence.shape,
        parameters=shape.parameters,
        timings=tuple(
            TimedTogether(file.name, frozenset(evidence.timed(file.timing)), file.timing)
            for file in evidence.timings
        ),
        variants={name: _variant(evidence, name, wanted) for name in wanted.variants},
        work=evidence.study.work(evidence.shape) if shape.profiled else None,
    )


def _opened(evidence: Evidence, variant: str) -> tuple[Capture | None, str]:
    """A capture, or what is wrong with it: that costs the variant its capture, and nothing else."""
    try:
        return current_capture(evidence, variant), ""
    except BadCapture as error:
        return None, error.message


@dataclass(frozen=True)
class _Everywhere:
    """What is the same of a variant at every shape: its checks by shape, and its sources'."""

    checks: Mapping[str, Check | None]
    build: Build | None
    front_ends: tuple[str, ...]


def _everywhere(evidence: Evidence, variant: str) -> _Everywhere:
    """Read once for all shapes that are looked at."""
    kept, name, study = evidence.files.opened, f"everywhere {variant}", evidence.study
    if name not in kept:
        kept[name] = _Everywhere(
            checks={
                shape: found.current
                for shape, found in evidence.checks(variant, study.shapes).items()
            },
            build=evidence.build(variant).current,
            front_ends=front_ends_of(source_files(study, study.variants[variant])),
        )
    found = kept[name]
    assert isinstance(found, _Everywhere)
    return found


def _variant(evidence: Evidence, variant: str, wanted: ShapeRequest) -> VariantEvidence:
    study = evidence.study
    check = evidence.check(variant).record
    everywhere = _everywhere(evidence, variant)
    checks = everywhere.checks
    own = {shape: found for shape, found in checks.items() if shape not in study.derived}
    missing = [shape for shape, found in own.items() if found is None and shape != evidence.shape]
    always = {shape for shape in missing if study.shapes[shape].always_checked}
    capture, damage = _opened(evidence, variant) if wanted.captures else (None, "")
    index = evidence.capture_index(variant)
    state = evidence.state(variant)
    if damage:
        state = {**state, "capture": Status.DAMAGED}
    return VariantEvidence(
        variant=variant,
        title=study.variants[variant].title,
        state=state,
        correct=check is not None and check.status == CheckResult.CORRECT,
        build=everywhere.build,
        checks={shape: record for shape, record in checks.items() if record is not None},
        due=tuple(shape for shape in missing if shape in always),
        unchecked=tuple(shape for shape in missing if shape not in always),
        index=None if damage else index.current,
        capture=capture,
        texts=wanted.texts.of(evidence, variant) if wanted.texts else {},
        damage=damage or index.why,
        tables_only=capture is not None and not is_there(capture.path),
        front_ends=everywhere.front_ends,
        **_unseen(evidence, variant),
    )


def _unseen(evidence: Evidence, variant: str) -> UnseenEvidence:
    """At the shapes that are drawn for a step; nothing for a study without ranges."""
    step, drawn = evidence.study.ladder.step(variant), None
    if step is not None and step.parent and evidence.shape not in evidence.study.derived:
        drawn = unseen_shapes(evidence.study, variant)
    if step is None or drawn is None or not drawn.names:
        return {}
    whole = Evidence(drawn.study, drawn.names[0], evidence.folder)
    checks = {n: found.current for n, found in whole.checks(variant, drawn.names).items()}
    names = [step.parent or "", variant]
    first = at_one_shape(whole, names, captures=False)
    over = ShapeTimes(first, main_timing(first, names)).ratio(step.parent, variant, every=True)
    return {"unseen": checks, "unseen_over": over, "seed": drawn.seed}
