"""One variant in every regime, and where another regime than the chained one judges otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.derive.intervals import Ratio
from workbench.derive.speedup import Time
from workbench.judge.gates import speed_verdict
from workbench.study.config import Gates
from workbench.words import Regime, Verdict

if TYPE_CHECKING:
    from workbench.judge.view import View

ONLY = {
    Regime.CHAINED: "only between neighbours",
    Regime.BACK_TO_BACK: "only behind itself",
    Regime.COLD: "only when cold",
}
NOT = {
    Regime.CHAINED: "not between neighbours",
    Regime.BACK_TO_BACK: "not behind itself",
    Regime.COLD: "not when cold",
}


@dataclass(frozen=True)
class InRegime:
    """Its time in one regime, and how many times faster than others it is there; None is not
    collected. ``fastest`` names the reference that ``over_fastest`` is over: the fastest there.
    """

    time: Time | None = None
    over_baseline: Ratio | None = None
    over_parent: Ratio | None = None
    over_reference: Ratio | None = None
    over_fastest: Ratio | None = None
    fastest: str = ""


@dataclass(frozen=True)
class Elsewhere:
    """A regime that judges otherwise than the chained one: ``kept`` says what it would say."""

    regime: Regime
    kept: bool
    ratio: Ratio

    @property
    def where(self) -> str:
        """``only behind itself``, ``not when cold``."""
        return (ONLY if self.kept else NOT)[self.regime]


def in_regimes(view: View, variant: str, parent: str | None = None) -> Mapping[Regime, InRegime]:
    """A variant in the regimes that it was timed in, as it is now."""
    return {
        regime: known for regime in Regime if (known := _in_regime(view, variant, parent, regime))
    }


def _in_regime(view: View, variant: str, parent: str | None, regime: Regime) -> InRegime | None:
    times, ladder = view.times, view.ladder
    time = times.time(variant, regime)
    if time is None:
        return None
    fastest, over = fastest_reference(view, variant, regime)
    return InRegime(
        time=time,
        over_baseline=times.ratio(ladder.steps[0].variant, variant, regime),
        over_parent=times.ratio(parent, variant, regime),
        over_reference=times.ratio(ladder.primary_reference, variant, regime),
        over_fastest=over,
        fastest=fastest,
    )


def fastest_reference(view: View, variant: str, regime: Regime) -> tuple[str, Ratio | None]:
    """The reference over which the ratio is the smallest, of those timed beside the variant."""
    names = [reference.name for reference in view.ladder.references]
    ratios = {name: view.times.ratio(name, variant, regime) for name in names}
    known = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    fastest = min(known, key=lambda name: known[name].ratio, default="")
    return fastest, known.get(fastest)


def elsewhere(over_parent: Mapping[Regime, Ratio], gates: Gates) -> tuple[Elsewhere, ...]:
    """The regimes in which a step would be kept, or rejected, that is not: what cannot be told in
    another regime is no other verdict.
    """
    chained = over_parent.get(Regime.CHAINED)
    if chained is None:
        return ()
    verdicts = {regime: speed_verdict(ratio, gates) for regime, ratio in over_parent.items()}
    return tuple(
        Elsewhere(regime, verdict == Verdict.KEPT, over_parent[regime])
        for regime, verdict in verdicts.items()
        if verdict not in (verdicts[Regime.CHAINED], Verdict.INCONCLUSIVE)
    )
