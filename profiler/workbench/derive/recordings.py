"""Ratios of several recordings taken together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from workbench.derive.speedup import LEVEL_AGAIN, T_975, T_995, Interval, Ratio, quantile_of

TINY = 1e-12  # the least variance of a logarithm


@dataclass(frozen=True)
class OverRecordings:
    """A ratio over recordings on GPUs of one model, with the interval of 95 percent of its mean and
    that in which a later recording lies. ``between`` is the standard deviation of its logarithm
    between recordings; ``low`` to ``between`` are None where nothing is known of that.
    ``between_of`` is the model of GPU that it was measured on, if that is another one.
    """

    ratio: float
    low: float | None
    high: float | None
    later_low: float | None
    later_high: float | None
    between: float | None
    recordings: int
    gpus: int = 1
    between_of: str = ""


def over_recordings(
    ratios: Sequence[Ratio], known: float | None = None, gpus: int = 1
) -> OverRecordings:
    """Random effects: a recording varies with its sessions and between recordings. That variance
    is estimated by Paule and Mandel (Consensus values and weighting factors, J. Res. NBS 87, 1982;
    its interval with Student's t by Hartung and Knapp, Statistics in Medicine 20, 2001), and is
    not taken to be less than what is ``known`` of such ratios: few recordings say little of it.
    """
    values = [math.log(one.ratio) for one in ratios]
    own = [variance_of(one) for one in ratios]
    freedom = len(values) - 1
    between = max(paule_mandel(values, own), (known or 0.0) ** 2)
    middle, mean, _ = _weighted(values, own, between)
    ratio = math.exp(middle)
    if known is None and not freedom:
        return OverRecordings(ratio, None, None, None, None, None, 1, gpus)
    quantile = T_975[-1] if known is not None else quantile_of(T_975, freedom)
    ends = [
        math.exp(middle + sign * quantile * math.sqrt(square))
        for square in (mean, mean + between + fmean(own))
        for sign in (-1, 1)
    ]
    low, high, later_low, later_high = ends
    return OverRecordings(
        *(ratio, low, high, later_low, later_high, math.sqrt(between), len(values), gpus)
    )


def paule_mandel(values: Sequence[float], own: Sequence[float]) -> float:
    """The variance between values, each with a variance of its ``own``, at which the sum of their
    weighted squares is their degrees of freedom; 0 where it is less without any.
    """
    low, high = 0.0, (max(values) - min(values)) ** 2 * len(values)
    if _weighted(values, own, low)[2] <= len(values) - 1:
        return low
    for _ in range(60):
        middle = (low + high) / 2
        too_many = _weighted(values, own, middle)[2] > len(values) - 1
        low, high = (middle, high) if too_many else (low, middle)
    return high


def _weighted(
    values: Sequence[float], own: Sequence[float], between: float
) -> tuple[float, float, float]:
    """Their mean, its variance, and the sum of their squares around it."""
    weights = [1 / max(one + between, TINY) for one in own]
    total = math.fsum(weights)
    middle = math.fsum(w * value for w, value in zip(weights, values, strict=True)) / total
    squares = (w * (v - middle) ** 2 for w, v in zip(weights, values, strict=True))
    return middle, 1 / total, math.fsum(squares)


def variance_of(ratio: Ratio) -> float:
    """Of the logarithm, by its interval; 0 of one session, whose interval is not known."""
    own = Interval(ratio.ratio, ratio.low, ratio.high, ratio.sessions)
    quantiles = T_995 if ratio.level == LEVEL_AGAIN else T_975
    if own.half_width is None or ratio.sessions < 2:
        return 0.0
    return (own.half_width / quantile_of(quantiles, ratio.sessions - 1)) ** 2
