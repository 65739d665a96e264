"""The largest changes between two captures: by surprise against noise, and by part in the time.

score = part x log2(1 + surprise). The surprise is in standard deviations between two captures of
the same kernel. The part is how much of the time a figure speaks of: a factor's part in the change
of the duration, or the share of warp samples, before or after, in the stall reasons that the figure
feeds (``part`` in ``metrics.toml``). Launch parameters are chosen, not measured: they are listed,
not ranked.

How far a figure moves between two captures of the same kernel is assumed by its kind. The sizes are
those of two captures of one cuDNN kernel on an H200, rounded up: executed instructions differed by
up to 1 % (its warps poll barriers), durations by 0.6 %, issue rates and resident warps by 4 to 6 %,
hit rates by up to 4 points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from workbench.derive.factors import FACTORS, LABELS, SpeedupFactors
from workbench.derive.figures import STALL, Figure, added, stall_label
from workbench.ncu.catalog import FigureSpec, catalog

FROM_NOTHING = 1e3  # a change from or to zero has no factor; it counts as one of this size


@dataclass(frozen=True)
class Size:
    """Standard deviation: relative, and for percentages at least this many points."""

    relative: float
    points: float = 0.0


ASSUMED: Mapping[str, Size] = MappingProxyType(
    {
        "launch": Size(0.001),
        "counter": Size(0.01),
        "time": Size(0.01),
        "rate": Size(0.04, 0.5),
        "cache": Size(0.05, 3.0),
        "pace": Size(0.05, 0.5),
    }
)


def kind(figure: str) -> str:
    """Return the kind of noise of a figure; one that the catalogue does not know is a pace."""
    spec = catalog().get(figure)
    return spec.noise if spec else "pace"


def surprise(before: Figure, after: Figure) -> float:
    """The move in standard deviations of a difference between two captures: percentages by points,
    all else by the logarithm of the factor.
    """
    spec = catalog().get(before.id)
    values = [max(figure.value, spec.floor) if spec else figure.value for figure in (before, after)]
    if values[0] == values[1]:
        return 0.0
    size = ASSUMED[kind(before.id)]
    if before.unit.startswith("%"):  # whose moves count in points
        spread = math.hypot(*(max(size.relative * abs(v), size.points) for v in values))
        return abs(after.value - before.value) / spread if spread else math.inf
    return abs(log_factor(*values)) / (math.sqrt(2) * size.relative)


def log_factor(before: float, after: float) -> float:
    """Logarithm of after over before; ``FROM_NOTHING`` where one of them is zero or below."""
    if before == after:
        return 0.0
    if before <= 0 or after <= 0:
        return math.copysign(math.log(FROM_NOTHING), after - before)
    return math.log(after / before)


TOP = 6
CERTAIN = 3.0  # standard deviations; less is noise
LEAST_PART = 0.02  # so that a new spill is seen even where nothing waits for it yet
NEGLIGIBLE = 1e-3  # of the warp instructions: fewer events than this do not count
EVENTS = ("M", "inst")  # units of what is counted, as warp instructions are
SAME = 0.01  # logarithms of factors that differ by less, of their size, are the same


@dataclass(frozen=True)
class FigureChange:
    """A figure before and after. ``alike`` are the labels of others that changed by its factor."""

    figure: str
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
        return max(self.part, LEAST_PART) * math.log2(1 + self.surprise)

    @property
    def log(self) -> float:
        return log_factor(self.before, self.after)


@dataclass(frozen=True)
class LargestChanges:
    """The ``figures`` by score, ``launch`` parameters, and amounts that only follow the time."""

    figures: tuple[FigureChange, ...]
    launch: tuple[FigureChange, ...]
    following_duration: tuple[str, ...]


def largest_changes(
    before: Mapping[str, Figure],
    after: Mapping[str, Figure],
    factors: SpeedupFactors | None,
    top: int = TOP,
) -> LargestChanges:
    """The figures of the catalogue that changed beyond the noise, each fact once."""
    shared = (spec for key, spec in catalog().items() if key in before and key in after)
    certain = [
        _figure_change(spec, before, after, factors, size)
        for spec in shared
        if spec.part and (size := surprise(*counted(spec, before, after))) >= CERTAIN
    ]
    launch = [change for change in certain if kind(change.figure) == "launch"]
    paced = [change for change in certain if _is_paced(change, factors)]
    rest = [change for change in certain if change not in launch and change not in paced]
    ranked = sorted(rest, key=lambda change: -change.score)  # stable: ties in catalogue order
    return LargestChanges(
        figures=tuple(_once(ranked)[:top]),
        launch=tuple(launch),
        following_duration=tuple(change.label for change in paced),
    )


def _figure_change(
    spec: FigureSpec,
    before: Mapping[str, Figure],
    after: Mapping[str, Figure],
    factors: SpeedupFactors | None,
    size: float,
) -> FigureChange:
    old, new = before[spec.id], after[spec.id]
    share, words = _part(spec.part, factors, before, after)
    return FigureChange(
        figure=spec.id,
        label=new.label,
        before=old.value,
        after=new.value,
        unit=new.unit,
        metric=new.metric,
        surprise=size,
        part=share,
        speaks_of=words,
    )


def _is_paced(change: FigureChange, factors: SpeedupFactors | None) -> bool:
    """Whether an amount per time changed only because the time did."""
    if kind(change.figure) != "pace" or factors is None:
        return False
    return same(change.log, math.log(factors.ratio))


def counted(
    spec: FigureSpec, before: Mapping[str, Figure], after: Mapping[str, Figure]
) -> tuple[Figure, Figure]:
    """A figure before and after, and a count as at least what matters: 36 bank conflicts among
    millions of instructions against 0 are no infinite change.
    """
    old, new = before[spec.id], after[spec.id]
    executed = [f["warp_instructions"].value for f in (before, after) if "warp_instructions" in f]
    if spec.unit not in EVENTS or not executed:
        return old, new
    least = NEGLIGIBLE * max(executed) / catalog()["warp_instructions"].scale * spec.scale
    return replace(old, value=max(old.value, least)), replace(new, value=max(new.value, least))


def same(first: float, second: float) -> bool:
    """Whether two logarithms of factors, taken up or down, are one fact."""
    return abs(abs(first) - abs(second)) <= SAME * max(abs(first), abs(second))


def _once(ranked: list[FigureChange]) -> list[FigureChange]:
    """Changes by one factor that speak of the same thing are one fact: the first by rank stands
    for the others. Changes from or to zero have no factor and each stand for themselves.
    """
    kept: list[FigureChange] = []
    for change in ranked:
        same = next((i for i, other in enumerate(kept) if _tell_the_same(change, other)), None)
        if same is None:
            kept.append(change)
        else:
            kept[same] = replace(kept[same], alike=(*kept[same].alike, change.label))
    return kept


def _tell_the_same(first: FigureChange, second: FigureChange) -> bool:
    if not first.factor or not second.factor or not same(first.log, second.log):
        return False
    return bool(set(catalog()[first.figure].part) & set(catalog()[second.figure].part))


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
