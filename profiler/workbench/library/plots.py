"""A ladder as matplotlib draws it, for notebooks and papers."""

from __future__ import annotations

from math import dist, log
from typing import TYPE_CHECKING, Any

from workbench.errors import EnvironmentLacks, UsageError, nearest
from workbench.judge.rows import Ablation
from workbench.words import ABSENT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TERA = 1e12
APART = 0.25  # of logarithms: a point that is closer to a faster one has no name


def plot(found: Ablation, kind: str, axes: Any = None) -> Axes:
    """``times`` or ``roofline``, into ``axes`` or a new figure. Raises EnvironmentLacks without
    matplotlib, UsageError for any other kind.
    """
    kinds = {"times": _times, "roofline": _roofline}
    if kind not in kinds:
        raise UsageError(f"a ladder has no plot '{kind}'", hint=nearest(kind, kinds))
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as error:
        raise EnvironmentLacks(
            f"plot() needs matplotlib: {error}", hint="pip install matplotlib"
        ) from error
    drawn: Axes = pyplot.subplots()[1] if axes is None else axes
    drawn.set_title(f"{found.title}, {found.shape}, {found.gpu}")
    kinds[kind](found, drawn)
    return drawn


def _times(found: Ablation, axes: Any) -> None:
    """Microseconds by step on the path to the best one, references as lines."""
    known = [(row.variant, row.time) for row in found.path if row.time]
    axes.plot([name for name, _ in known], [time.value for _, time in known], marker="o")
    for number, row in enumerate(row for row in found.references if row.time):
        assert row.time is not None
        style = {"color": f"C{number + 1}", "label": row.title or row.variant}
        axes.axhline(row.time.value, linestyle="--", **style)
    axes.set_yscale("log")
    axes.set_ylabel("time per call (µs)")
    for label in axes.get_xticklabels():
        label.set(rotation=45, horizontalalignment="right")
    if found.references:
        axes.legend()


def _roofline(found: Ablation, axes: Any) -> None:
    """FLOP/s over FLOP per byte of the level that inputs come from, with the roof over the best."""
    rows = [row for row in (*found.path, *found.references) if row.roofline]
    if not rows or found.ceilings is None:
        raise EnvironmentLacks(f"a roofline needs captures: {ABSENT}", hint="workbench profile")
    points = [(row, row.roofline) for row in rows if row.roofline]
    points.sort(key=lambda pair: -pair[1].flops_per_second)
    named: list[tuple[float, float]] = []
    for row, point in points:
        axes.scatter(point.flop_per_byte, point.flops_per_second / TERA)
        at = log(point.flop_per_byte), log(point.flops_per_second)
        if all(dist(at, other) > APART for other in named):
            named.append(at)
            place = point.flop_per_byte, point.flops_per_second / TERA
            axes.annotate(row.variant, place, (4, 4), textcoords="offset points", fontsize=8)
    bandwidth = found.ceilings.rates.get(found.base)
    best = max((point for _, point in points), key=lambda p: p.flops_per_second)
    peak = best.flops_per_second / best.share_of_arithmetic_peak
    if bandwidth:
        ridge = peak / bandwidth
        ends = [min(p.flop_per_byte for _, p in points) / 2, ridge, 4 * ridge]
        axes.plot(ends, [min(x * bandwidth, peak) / TERA for x in ends], color="black")
    axes.set(xscale="log", yscale="log")
    axes.set_xlabel(f"FLOP per byte of {found.base.upper()}")
    axes.set_ylabel("TFLOP/s")
