"""Pulls all that a judgement needs out of evidence and captures: after it no file is opened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from workbench.derive.speedup import Ratio
from workbench.errors import BadCapture
from workbench.evidence.journal import known_between, load_journal
from workbench.evidence.layout import is_there
from workbench.evidence.recorded import Evidence
from workbench.evidence.records import Check
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
    journal = load_journal(evidence.folder)
    shapes = {
        shape: _shape(evidence.at(shape), variants, captures=whole, sources=sources and whole)
        for shape, variants, whole in _wanted(evidence, judged, timed)
    }
    between, between_of = known_between(evidence.folder.gpu)
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
        between=between,
        between_of=between_of,
    )


def at_one_shape(evidence: Evidence, variants: Sequence[str], *, captures: bool) -> ShapeEvidence:
    """What is recorded of some variants, at the shape of ``evidence`` alone."""
    catalog()  # a file, too
    return _shape(evidence, variants, captures=captures)


def _wanted(
    evidence: Evidence, steps: Sequence[Step], timed: Sequence[Step]
) -> Iterator[tuple[str, list[str], bool]]:
    """Shapes in the order of the study, the variants that are wanted there, and whether with their
    captures: those of a table. ``timed`` steps are wanted at all of them.
    """
    study, table = evidence.study, evidence.shape
    ladders = shapes_of(steps, table)
    references = [reference.name for reference in study.ladder.references]
    for name, shape in study.shapes.items():
        if name in ladders:
            beside = (study.ladder.steps[0].variant, *references)
            yield name, [*_compared(steps, name, table), *_names(timed), *beside], True
        elif shape.profiled and timed and table == study.default_shape:
            yield name, [*_names(timed), *references], False


def _compared(steps: Sequence[Step], shape: str, table: str) -> Iterator[str]:
    """What the ladder at a shape shows and compares."""
    for step in steps if shape == table else shown_at(steps, shape, table):
        yield step.variant
        yield from step.chooses
        yield step.parent or ""


def _names(steps: Iterable[Step]) -> Iterator[str]:
    return (step.variant for step in steps)


def _shape(
    evidence: Evidence, variants: Iterable[str], *, captures: bool, sources: bool = False
) -> ShapeEvidence:
    names = filter(None, dict.fromkeys(variants))
    shape = evidence.study.shapes[evidence.shape]
    return ShapeEvidence(
        shape=evidence.shape,
        parameters=shape.parameters,
        timings=tuple(
            TimedTogether(file.name, frozenset(evidence.timed(file.timing)), file.timing)
            for file in evidence.timings
        ),
        variants={
            name: _variant(evidence, name, captures=captures, sources=sources) for name in names
        },
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

    evidence: Evidence
    variant: str

    @cached_property
    def checks(self) -> Mapping[str, Check | None]:
        found = self.evidence.checks(self.variant, self.evidence.study.shapes)
        return {shape: one.current for shape, one in found.items()}

    @cached_property
    def front_ends(self) -> tuple[str, ...]:
        study = self.evidence.study
        return front_ends_of(source_files(study, study.variants[self.variant]))

    @cached_property
    def texts(self) -> Mapping[str, str]:
        study = self.evidence.study
        return source_texts(study, study.variants[self.variant])


def _everywhere(evidence: Evidence, variant: str) -> _Everywhere:
    """Read once for all shapes that are looked at."""
    known = _Everywhere(evidence, variant)
    found = evidence.files.opened.setdefault(f"everywhere {variant}", known)
    assert isinstance(found, _Everywhere)
    return found


def _variant(evidence: Evidence, variant: str, *, captures: bool, sources: bool) -> VariantEvidence:
    study = evidence.study
    check = evidence.check(variant).record
    everywhere = _everywhere(evidence, variant)
    checks = everywhere.checks
    own = {shape: found for shape, found in checks.items() if shape not in study.derived}
    missing = [shape for shape, found in own.items() if found is None and shape != evidence.shape]
    always = {shape for shape in missing if study.shapes[shape].always_checked}
    capture, damage = _opened(evidence, variant) if captures else (None, "")
    index = evidence.capture_index(variant)
    unseen, unseen_over, seed = _unseen(evidence, variant)
    state = evidence.state(variant)
    if damage:
        state = {**state, "capture": Status.DAMAGED}
    return VariantEvidence(
        variant=variant,
        title=study.variants[variant].title,
        state=state,
        correct=check is not None and check.status == CheckResult.CORRECT,
        build=evidence.build(variant).current,
        checks={shape: record for shape, record in checks.items() if record is not None},
        due=tuple(shape for shape in missing if shape in always),
        unchecked=tuple(shape for shape in missing if shape not in always),
        index=None if damage else index.current,
        capture=capture,
        texts=everywhere.texts if sources else {},
        damage=damage or index.why,
        tables_only=capture is not None and not is_there(capture.path),
        front_ends=everywhere.front_ends,
        unseen=unseen,
        unseen_over=unseen_over,
        seed=seed,
    )


def _unseen(
    evidence: Evidence, variant: str
) -> tuple[Mapping[str, Check | None], Ratio | None, str]:
    """Checks at the shapes drawn for a step, its ratio over the parent at the first, the seed."""
    step, drawn = evidence.study.ladder.step(variant), None
    if step is not None and step.parent and evidence.shape not in evidence.study.derived:
        drawn = unseen_shapes(evidence.study, variant)
    if step is None or drawn is None or not drawn.names:
        return {}, None, ""
    whole = Evidence(drawn.study, drawn.names[0], evidence.folder)
    checks = {n: found.current for n, found in whole.checks(variant, drawn.names).items()}
    names = [step.parent or "", variant]
    first = at_one_shape(whole, names, captures=False)
    over = ShapeTimes(first, main_timing(first, names)).ratio(step.parent, variant, every=True)
    return checks, over, drawn.seed
