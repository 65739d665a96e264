"""A ladder as matplotlib draws it, for notebooks and papers."""

from __future__ import annotations

from math import dist, log
from typing import TYPE_CHECKING, Any

from workbench.errors import EnvironmentLacks, UsageError, nearest
from workbench.judge.rows import Ablation
from workbench.render.chart.roofline_plot import NO_ARITHMETIC, marks_at, roofs
from workbench.words import ABSENT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    """As the page has it: the FLOP that the problem needs, over the time and the bytes moved."""
    known = roofs(found)
    marks = sorted(marks_at(found, known) if known else (), key=lambda mark: -mark.at[1])
    marks = [mark for mark in marks if mark.row in (*found.path, *found.references)]
    if known is None or not marks:
        why = NO_ARITHMETIC if found.moves_only else f"a roofline needs captures: {ABSENT}"
        raise EnvironmentLacks(why, hint="`workbench profile` has the shares of each ceiling")
    named: list[tuple[float, ...]] = []
    for mark in marks:
        axes.scatter(*mark.at)
        at = tuple(map(log, mark.at))
        if all(dist(at, other) > APART for other in named):
            named.append(at)
            axes.annotate(mark.row.variant, mark.at, (4, 4), textcoords="offset points", fontsize=8)
    low = min(mark.at[0] for mark in marks) / 2
    high = 2 * max(*(mark.at[0] for mark in marks), *map(known.ridge, known.compute))
    for roof in known.compute:
        ridge = known.ridge(roof)
        start = min(low * known.memory.rate, roof.rate)
        ends = [low, max(low, ridge), high]
        axes.plot(ends, [start, roof.rate, roof.rate], color="black", label=roof.name)
        axes.annotate(roof.name, (high, roof.rate), ha="right", va="bottom", fontsize=8)
    axes.set(xscale="log", yscale="log")
    axes.tick_params(which="minor", labelbottom=False)
    axes.set_xlabel(f"required FLOP per {known.memory.name} byte moved")
    axes.set_ylabel("required TFLOP/s")
