"""The evidence of a snapshot, one shape at a time, as a judgement looks at it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from workbench.derive.figures import TIME, Figure, figure_label
from workbench.judge.advice.advise import Advice, advise
from workbench.judge.advice.subject import subject
from workbench.judge.comparison import Comparison, compare
from workbench.judge.inputs import ShapeEvidence, Snapshot, VariantEvidence
from workbench.judge.times import Times, main_timing
from workbench.study.config import Config, for_study
from workbench.study.model import Ladder

if TYPE_CHECKING:
    from workbench.evidence.journal import Journal


@dataclass(frozen=True, eq=False)
class View:
    """One shape. ``ceilings`` are the measured ones by id, empty where nothing was calibrated."""

    evidence: ShapeEvidence
    times: Times
    ladder: Ladder
    config: Config
    ceilings: Mapping[str, float]
    journal: Journal | None = None

    @property
    def shape(self) -> str:
        """Its name."""
        return self.evidence.shape

    def variant(self, name: str) -> VariantEvidence:
        """What is on record of a variant at this shape."""
        return self.evidence.variants[name]

    def advice(self, variant: str) -> tuple[Advice, ...] | None:
        """By its capture alone, whatever was tried since; None where there is none."""
        if variant not in self._advice:
            known = self.variant(variant)
            self._advice[variant] = (
                advise(subject(known.capture, known.figures, self.ceilings, self.evidence.work))
                if known.capture
                else None
            )
        return self._advice[variant]

    @cached_property
    def _advice(self) -> dict[str, tuple[Advice, ...] | None]:
        return {}

    def figure(self, variant: str | None, name: str) -> Figure | None:
        """``time`` is the chained time, everything else from a capture made here:
        predictions are about what was measured.
        """
        if variant is None:
            return None
        if name != TIME:
            evidence = self.variant(variant)
            return evidence.figures.get(name) if evidence.was_profiled else None
        time = self.times.time(variant)
        label, unit = figure_label(TIME)
        return Figure(TIME, label, time.value, unit, "", "lower") if time else None

    def compare(self, before: str, after: str, where: str = "") -> Comparison | None:
        """None where either variant has no capture that counts; ``where`` is added to the names."""
        one, other = self.variant(before), self.variant(after)
        if one.capture is None or other.capture is None:
            return None
        return compare(
            one.capture,
            other.capture,
            names=(before + where, after + where),
            noise=self.evidence.noise,
            known=(one.figures, other.figures),
        )


@dataclass(frozen=True, eq=False)
class Views:
    """All shapes of a snapshot; ``variants`` decide which timing is a table's."""

    snapshot: Snapshot
    config: Config
    variants: tuple[str, ...]

    @property
    def table(self) -> View:
        """The shape that is looked at."""
        return self.at(self.snapshot.shape)

    def at(self, shape: str) -> View:
        """Another shape of the snapshot."""
        if shape not in self._views:
            self._views[shape] = self._view(self.snapshot.shapes[shape])
        return self._views[shape]

    @cached_property
    def _views(self) -> dict[str, View]:
        return {}

    def _view(self, evidence: ShapeEvidence) -> View:
        calibration = self.snapshot.calibration
        return View(
            evidence=evidence,
            times=Times(
                evidence=evidence,
                table=main_timing(evidence, self.variants),
            ),
            ladder=self.snapshot.ladder,
            config=for_study(self.config, self.snapshot.ladder),
            ceilings=calibration.values if calibration else {},
            journal=self.snapshot.journal,
        )
