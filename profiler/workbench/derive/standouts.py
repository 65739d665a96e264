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
from workbench.derive.figures import Figure, stall_label
from workbench.derive.noise import Noise, kind, log_factor
from workbench.ncu.catalog import FigureSpec, catalog

TOP = 6
CERTAIN = 3.0  # standard deviations; less is noise
LEAST_PART = 0.02  # so that a new spill is seen even where nothing waits for it yet
NEGLIGIBLE = 1e-3  # of the warp instructions: fewer events than this do not count
EVENTS = ("M", "inst")  # units of what is counted, as warp instructions are
SAME = 0.01  # logarithms of factors that differ by less, of their size, tell the same


@dataclass(frozen=True)
class Standout:
    """A figure before and after. ``alike`` are the labels of others that moved by its factor."""

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
        return self.after / self.before if self.before and self.after else None

    @property
    def score(self) -> float:
        return max(self.part, LEAST_PART) * math.log2(1 + self.surprise)

    @property
    def log(self) -> float:
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
    anatomy: SpeedupFactors | None,
    noise: Noise,
    top: int = TOP,
) -> Standouts:
    """The figures of the catalogue that moved beyond the noise, each fact once."""
    found, launch, paced = [], [], []
    for key, spec in catalog().items():
        if key not in before or key not in after or not spec.part:
            continue
        was, came = before[key], after[key]
        surprise = noise.surprise(*_counted(spec, before, after))
        if surprise < CERTAIN:
            continue
        part, words = _part(spec.part, anatomy, before, after)
        move = Standout(
            key, came.label, was.value, came.value, came.unit, came.metric, surprise, part, words
        )
        if kind(key) == "launch":
            launch.append(move)
        elif kind(key) == "pace" and anatomy and same(move.log, math.log(anatomy.measured)):
            paced.append(move.label)
        else:
            found.append(move)
    ranked = sorted(found, key=lambda move: -move.score)  # stable: ties in catalogue order
    return Standouts(tuple(_once(ranked)[:top]), tuple(launch), tuple(paced))


def _counted(
    spec: FigureSpec, before: Mapping[str, Figure], after: Mapping[str, Figure]
) -> tuple[Figure, Figure]:
    """A figure before and after; a count with the least value that matters.

    A few events among millions are as good as none: 36 bank conflicts against 0 are no infinite
    change.
    """
    was, came = before[spec.id], after[spec.id]
    known = [f["warp_instructions"].value for f in (before, after) if "warp_instructions" in f]
    if spec.unit not in EVENTS or not known:
        return was, came
    least = NEGLIGIBLE * max(known) / catalog()["warp_instructions"].scale * spec.scale
    return replace(was, value=max(was.value, least)), replace(came, value=max(came.value, least))


def same(first: float, second: float) -> bool:
    """Whether two logarithms of factors, taken up or down, tell one fact."""
    return abs(abs(first) - abs(second)) <= SAME * max(abs(first), abs(second))


def _once(ranked: list[Standout]) -> list[Standout]:
    """Moves by one factor that speak of the same thing are one fact: the first by rank stands
    for the others. Changes from or to zero have no factor and each stand for themselves.
    """
    kept: list[Standout] = []
    for move in ranked:
        twin = next(
            (
                i
                for i, other in enumerate(kept)
                if move.factor
                and other.factor
                and same(move.log, other.log)
                and set(catalog()[move.id].part) & set(catalog()[other.id].part)
            ),
            None,
        )
        if twin is None:
            kept.append(move)
        else:
            other = kept[twin]
            kept[twin] = replace(other, alike=(*other.alike, move.label))
    return kept


def _part(
    names: tuple[str, ...],
    anatomy: SpeedupFactors | None,
    before: Mapping[str, Figure],
    after: Mapping[str, Figure],
) -> tuple[float, str]:
    """The larger of the part of its factors and of its stalls, and what that is, in words."""
    factors = [(anatomy.part(n), LABELS[n][0].lower()) for n in names if n in FACTORS and anatomy]
    stalls = [n for n in names if n not in FACTORS]
    shares = [sum(f[n].value for n in stalls if n in f) / 100 for f in (before, after)]
    present = [n for n in stalls if n in before or n in after]
    waiting = (max(shares), ", ".join(stall_label(n.removeprefix("stall.")) for n in present))
    return max([*factors, waiting], key=lambda item: item[0])
