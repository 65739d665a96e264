"""A timed variant with all that can testify of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from workbench.derive.roofline.ceilings import DRAM, peaks
from workbench.words import Regime

if TYPE_CHECKING:
    from workbench.evidence.records import GraphNode, Series, Timing
    from workbench.judge.inputs import VariantEvidence
    from workbench.judge.view import View
    from workbench.ncu.capture import Launched
    from workbench.study.model import Work


@dataclass(frozen=True, eq=False)
class Case:
    """A timed variant with all that can testify: its capture, the timing, the work of one call.

    ``ceilings`` are measured, in FLOP/s and bytes/s by id.
    """

    evidence: VariantEvidence
    timing: Timing | None
    work: Work | None = None
    ceilings: Mapping[str, float] = field(default_factory=dict)

    @property
    def variant(self) -> str:
        """Its name."""
        return self.evidence.variant

    @property
    def launched(self) -> Sequence[Launched] | None:
        """Of a capture made here; None where there is none, or it does not tell."""
        capture = self.evidence.capture
        return capture.launched if capture and self.evidence.was_profiled else None

    @property
    def was_flushed(self) -> bool:
        """Whether ncu emptied the caches before the capture."""
        index = self.evidence.index
        flags = " ".join(index.ncu_flags) if index else ""
        return "--cache-control none" not in flags

    @property
    def nodes(self) -> tuple[GraphNode, ...] | None:
        """Of the graph of one call; None where they were not recorded."""
        return self.timing.nodes.get(self.variant) if self.timing else None


def case_of(view: View, variant: str, beside: str | None = None) -> Case:
    """What is on record of a variant at the shape of a view, by the timing that its ratio over, or
    to, ``beside`` is of; where they were not timed together, by that of the variant.
    """
    both = view.times.together(variant, beside) if beside else None
    together = both or view.times.together(variant)
    return Case(
        evidence=view.variant(variant),
        timing=together.timing if together else None,
        work=view.evidence.work,
        ceilings=view.ceilings,
    )


@dataclass(frozen=True)
class Added:
    """What a call adds in the chained graph: µs, and the SM clock in GHz (None: not collected)."""

    microseconds: float
    ghz: float | None


def added_time(case: Case) -> Added | None:
    """The median over the instances of all sessions."""
    every = case.timing.by_variant.get(case.variant, ()) if case.timing else ()
    own = [series for series in every if series.regime == Regime.CHAINED]
    if not own:
        return None
    clocks = [mhz for series in own for mhz in series.mhz]
    return Added(median(map(_added, own)), median(clocks) / 1e3 if clocks else None)


def _added(series: Series) -> float:
    if not series.around:
        return float(median(series.microseconds))
    pairs = zip(series.microseconds, series.around, strict=True)
    return float(median(whole - around for whole, around in pairs))


def rates_of(case: Case) -> Mapping[str, float]:
    """Theoretical peaks at the clock of the timing where the capture has them, else measured."""
    capture = case.evidence.capture
    found = peaks(capture.metrics) if capture else None
    if found is None:
        return case.ceilings
    time = added_time(case)
    faster = max(1.0, time.ghz * 1e9 / found.sm_clock) if time and time.ghz else 1.0
    scaled = {name: rate * (1.0 if name == DRAM else faster) for name, rate in found.rates.items()}
    return {**case.ceilings, **scaled}
