"""Which figures stand out: by surprise against noise, and by their part in the time.

score = part x log2(1 + surprise). The surprise is in standard deviations between two captures of
the same kernel (see ``noise.py``). The part is how much of the time a figure speaks of: a factor's
part in the change of the duration, or the share of warp samples, before or after, in the stall
reasons that the figure feeds (``part`` in ``metrics.toml``). Launch parameters are chosen, not
measured: they are listed, not ranked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from workbench.derive.factors import FACTORS, LABELS, SpeedupFactors
from workbench.derive.figures import STALL, Figure, stall_label
from workbench.derive.noise import kind, log_factor, surprise
from workbench.derive.sums import added
from workbench.ncu.catalog import FigureSpec, catalog

TOP = 6
CERTAIN = 3.0  # standard deviations; less is noise
LEAST_PART = 0.02  # so that a new spill is seen even where nothing waits for it yet
NEGLIGIBLE = 1e-3  # of the warp instructions: fewer events than this do not count
EVENTS = ("M", "inst")  # units of what is counted, as warp instructions are
SAME = 0.01  # logarithms of factors that differ by less, of their size, tell the same


@dataclass(frozen=True)
class Standout:
    """A figure before and after. ``alike`` are the labels of others that changed by its factor."""

    id: str
    label: str
    before: float
    after: float
    unit: str
    metric: str
    surprise: float
    part: float
    speaks_of: str
    alike: tuple[str, ...] = ()

    @property
    def factor(self) -> float | None:
        """After over before; None from or to zero."""
        return self.after / self.before if self.before and self.after else None

    @property
    def score(self) -> float:
        """By which figures are ranked."""
        return max(self.part, LEAST_PART) * math.log2(1 + self.surprise)

    @property
    def log(self) -> float:
        """The logarithm of its factor; see ``noise.log_factor``."""
        return log_factor(self.before, self.after)


@dataclass(frozen=True)
class Standouts:
    """``top`` by score, and the launch parameters that are not as before.

    ``paced`` only follow the duration: amounts per time whose amount did not change.
    """

    top: tuple[Standout, ...]
    launch: tuple[Standout, ...]
    paced: tuple[str, ...]


def standouts(
    before: Mapping[str, Figure],
    after: Mapping[str, Figure],
    factors: SpeedupFactors | None,
    top: int = TOP,
) -> Standouts:
    """The figures of the catalogue that changed beyond the noise, each fact once."""
    shared = (spec for key, spec in catalog().items() if key in before and key in after)
    certain = [
        _standout(spec, before, after, factors, size)
        for spec in shared
        if spec.part and (size := surprise(*counted(spec, before, after))) >= CERTAIN
    ]
    launch = [one for one in certain if kind(one.id) == "launch"]
    paced = [one for one in certain if _is_paced(one, factors)]
    rest = [one for one in certain if one not in launch and one not in paced]
    ranked = sorted(rest, key=lambda one: -one.score)  # stable: ties in catalogue order
    return Standouts(
        top=tuple(_once(ranked)[:top]),
        launch=tuple(launch),
        paced=tuple(one.label for one in paced),
    )


def _standout(
    spec: FigureSpec,
    before: Mapping[str, Figure],
    after: Mapping[str, Figure],
    factors: SpeedupFactors | None,
    size: float,
) -> Standout:
    old, new = before[spec.id], after[spec.id]
    part, words = _part(spec.part, factors, before, after)
    return Standout(
        id=spec.id,
        label=new.label,
        before=old.value,
        after=new.value,
        unit=new.unit,
        metric=new.metric,
        surprise=size,
        part=part,
        speaks_of=words,
    )


def _is_paced(one: Standout, factors: SpeedupFactors | None) -> bool:
    """Whether an amount per time changed only because the time did."""
    if kind(one.id) != "pace" or factors is None:
        return False
    return same(one.log, math.log(factors.measured))


def counted(
    spec: FigureSpec, before: Mapping[str, Figure], after: Mapping[str, Figure]
) -> tuple[Figure, Figure]:
    """A figure before and after; a count with the least value that matters.

    A few events among millions are as good as none: 36 bank conflicts against 0 are no infinite
    change.
    """
    old, new = before[spec.id], after[spec.id]
    executed = [f["warp_instructions"].value for f in (before, after) if "warp_instructions" in f]
    if spec.unit not in EVENTS or not executed:
        return old, new
    least = NEGLIGIBLE * max(executed) / catalog()["warp_instructions"].scale * spec.scale
    return replace(old, value=max(old.value, least)), replace(new, value=max(new.value, least))


def same(first: float, second: float) -> bool:
    """Whether two logarithms of factors, taken up or down, tell one fact."""
    return abs(abs(first) - abs(second)) <= SAME * max(abs(first), abs(second))


def _once(ranked: list[Standout]) -> list[Standout]:
    """Changes by one factor that speak of the same thing are one fact: the first by rank stands
    for the others. Changes from or to zero have no factor and each stand for themselves.
    """
    kept: list[Standout] = []
    for one in ranked:
        twin = next((i for i, other in enumerate(kept) if _tell_the_same(one, other)), None)
        if twin is None:
            kept.append(one)
        else:
            kept[twin] = replace(kept[twin], alike=(*kept[twin].alike, one.label))
    return kept


def _tell_the_same(one: Standout, other: Standout) -> bool:
    if not one.factor or not other.factor or not same(one.log, other.log):
        return False
    return bool(set(catalog()[one.id].part) & set(catalog()[other.id].part))


def _part(
    names: tuple[str, ...],
    factors: SpeedupFactors | None,
    before: Mapping[str, Figure],
    after: Mapping[str, Figure],
) -> tuple[float, str]:
    """The larger of the part of its factors and of its stalls, and what that is, in words."""
    parts = [(factors.part(n), LABELS[n][0].lower()) for n in names if n in FACTORS and factors]
    stalls = [n for n in names if n not in FACTORS]
    shares = [added(f[n].value for n in stalls if n in f) / 100 for f in (before, after)]
    present = [n for n in stalls if n in before or n in after]
    waiting = (max(shares), ", ".join(stall_label(n.removeprefix(STALL)) for n in present))
    return max([*parts, waiting], key=lambda item: item[0])
