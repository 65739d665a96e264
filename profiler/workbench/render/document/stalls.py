"""Shares of stall samples with their standard errors, and the reason that leads, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workbench.derive.diff.costs import Cost
from workbench.derive.figures import ISSUING, SAMPLES, Figure, stall_label
from workbench.derive.stalls import NAMED, UNSAMPLED, TopStall, standard_error
from workbench.derive.stalls import top_stall as leading
from workbench.judge.rows import Row
from workbench.render.numbers import percent

LEAST = 0.05  # points of a standard error that are shown


def samples(figures: Mapping[str, Figure]) -> float | None:
    """Warp state samples of a capture; None where not collected."""
    return figures[SAMPLES].value if SAMPLES in figures else None


def top_stall(row: Row) -> TopStall | None:
    """The reason with the largest share of all samples, and those that tie with it."""
    return leading(row.stalls, samples(row.figures))


def stall_words(name: str) -> str:
    if name == UNSAMPLED:
        return "not sampled"
    return "issuing, not stalled" if name == ISSUING else stall_label(name)


def reasons(found: Sequence[str]) -> str:
    """``long scoreboard or wait``: those that tie; a tie of many names none."""
    if len(found) > NAMED:
        return f"{len(found)} reasons tie"
    return " or ".join(stall_label(name) for name in found)


def share(value: float, error: float | None) -> str:
    """``13.8 ± 1.5 %``; without an error that is no tenth of a point."""
    if error is None or 100 * error < LEAST:
        return percent(value)
    return f"{100 * value:.1f} ± {100 * error:.1f} %"


def share_of(value: float, figures: Mapping[str, Figure]) -> str:
    """A share of all samples of a capture, with its standard error."""
    return share(value, standard_error(value, samples(figures)))


def of_line(cost: Cost) -> str:
    """The reason for which a line stalled, and those that tie; "" for none."""
    return reasons(cost.top_stalls)


def in_column(found: Sequence[str], width: int) -> str:
    """No wider than that: the first reason, and ``+1`` for one that ties."""
    if len(found) < 2:
        return reasons(found)[:width]
    more = f" +{len(found) - 1}"
    return stall_label(found[0])[: width - len(more)] + more
