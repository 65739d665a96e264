"""Times and ratios with their intervals, by hand-made numbers, and how often the intervals hold."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

import pytest
from msgspec import structs

from answers import not_none
from made_evidence import MHZ, series, session, timing, with_series
from workbench.derive.speedup import (
    T_975,
    Ratio,
    between_sessions,
    instance_time,
    over_recordings,
    over_sessions,
    paule_mandel,
    ratio_of,
    session_times,
    time_of,
)
from workbench.evidence.journal import medians
from workbench.evidence.records import Series, Session
from workbench.render.doc import time_words
from workbench.words import Regime

CHAINED = Regime.CHAINED


def test_what_a_call_adds_is_the_median_of_the_differences_with_its_neighbours() -> None:
    known = Series(
        variant="a",
        instance=0,
        regime=CHAINED,
        calls=12,
        microseconds=(13.5, 14.0, 99.0),
        around=(3.5, 3.5, 3.5),
        mhz=(1000.0, 1000.0, 1000.0),
        around_mhz=(2000.0, 2000.0, 2000.0),
    )
    found = instance_time(known)
    assert found.microseconds == pytest.approx(10.5)
    assert found.kilocycles == pytest.approx((14.0 * 1000 - 3.5 * 2000) / 1e3)
    assert found.sm_clock_mhz == 1000
    alone = instance_time(series("a", 7.0, Regime.BACK_TO_BACK))
    assert alone.microseconds == 7
    assert alone.kilocycles == pytest.approx(7 * MHZ / 1e3)


def test_the_same_times_by_either_method_are_the_same() -> None:
    first = timing("large", {"a": 5.0, "b": 2.5})
    by_stamps = with_series(
        first,
        lambda _, s: structs.replace(s, microseconds=tuple(s.added), around=(), around_mhz=()),
    )
    second = structs.replace(by_stamps, method=2)
    assert set(medians(first)) == {"a", "b"}
    assert medians(second) == pytest.approx(medians(first))
    for key, times in session_times(first.together).items():
        one, other = time_of(times, key[1]), time_of(session_times(second.together)[key], key[1])
        assert other is not None
        assert other.value == pytest.approx(not_none(one).value)


def test_a_time_in_a_stream_is_unchecked() -> None:
    one = structs.replace(series("a", 4.3, Regime.BACK_TO_BACK), regime=CHAINED)
    found = session_times([Session(number=1, instances=1, series=(one,))])
    checked = not_none(time_of(found["a", CHAINED, False], CHAINED))
    assert not checked.unchecked
    assert time_words(checked) == "4.30"
    in_stream = structs.replace(one, unchecked=True)
    found = session_times([Session(number=1, instances=1, series=(in_stream,))])
    time = not_none(time_of(found["a", CHAINED, False], CHAINED))
    assert time_words(time) == "4.30 unchecked"


def test_the_interval_between_sessions_that_share_nothing_takes_one_spread_for_both() -> None:
    found = between_sessions([0.01], [0.02, 0.03, 0.04])
    assert found.value == pytest.approx(math.exp(0.02))
    assert found.half_width == pytest.approx(4.303 * 0.01 * math.sqrt(1 + 1 / 3))
    both = between_sessions([0.0, 0.02], [0.02, 0.03, 0.04])
    pooled = math.sqrt((2 * 0.01**2 + 2 * 0.01**2) / 3)
    assert both.half_width == pytest.approx(3.182 * pooled * math.sqrt(1 / 2 + 1 / 3))
    assert between_sessions([0.01], [0.02]).low is None


def test_the_table_of_students_t_ends_in_a_wide_one() -> None:
    assert len(T_975) == 30
    assert list(T_975) == sorted(T_975, reverse=True)
    logs = [0.1 * (-1) ** n for n in range(60)]
    sd = 0.1 * math.sqrt(60 / 59)
    assert over_sessions(logs).half_width == pytest.approx(2.042 * sd / math.sqrt(60))


def test_a_ratio_is_of_the_sessions_that_have_both() -> None:
    both = [session(n, {"a": 20.0, "b": 10.0}, spread=0.0) for n in (1, 2, 3)]
    lone = session(4, {"a": 400.0}, spread=0.0)
    times = session_times([*both, lone])
    found = not_none(ratio_of(times["a", CHAINED, False], times["b", CHAINED, False]))
    assert found.ratio == pytest.approx(2)
    assert found.sessions == 3
    never = session_times([lone])["a", CHAINED, False]
    assert ratio_of(never, times["b", CHAINED, False]) is None


def test_a_ratio_that_the_clock_makes_says_so_in_cycles() -> None:
    def run(number: int) -> tuple[Series, ...]:
        return series("a", 20.0, mhz=1500.0), series("b", 10.0, mhz=1000.0 + number)

    sessions = [Session(number=n, instances=1, series=run(n)) for n in range(3)]
    times = session_times(sessions)
    found = not_none(ratio_of(times["a", CHAINED, False], times["b", CHAINED, False]))
    assert not_none(found.cycles).value == pytest.approx(3.0, rel=0.01)
    assert found.differs_in_cycles
    assert not Ratio(2.0, 1.9, 2.1, 5).differs_in_cycles


def test_intervals_of_controls_leave_out_one_as_often_as_they_should() -> None:
    """Sessions that differ and instances that differ: as measured, 0.4 % and 0.6 %."""
    draw = random.Random(5)
    missed = 0
    for _ in range(1000):
        logs = []
        for _ in range(5):
            shared = draw.gauss(0, 0.004)
            sides = [sum(shared + draw.gauss(0, 0.006) for _ in range(4)) / 4 for _ in range(2)]
            logs.append(sides[0] - sides[1])
        found = over_sessions(logs)
        assert found.high is not None
        missed += not not_none(found.low) <= 1.0 <= found.high
    assert 30 <= missed <= 80


SESSIONS = 5


def recorded(draw: random.Random, between: float, own: float) -> Ratio:
    """A recording of a ratio of 1.2: five sessions around what this GPU makes of it that day."""
    middle = draw.gauss(math.log(1.2), between)
    found = over_sessions([draw.gauss(middle, own * math.sqrt(SESSIONS)) for _ in range(SESSIONS)])
    return Ratio(found.value, found.low, found.high, SESSIONS)


def coverage(known: float | None, spread: Sequence[float], count: int) -> tuple[float, float]:
    """How often the interval holds the true ratio, and that of a later recording the later one."""
    draw, held, later = random.Random(count), 0, 0
    for _ in range(TRIALS):
        between = draw.choice(spread)
        told = over_recordings([recorded(draw, between, 0.002) for _ in range(count)], known)
        assert None not in (told.low, told.high, told.later_low, told.later_high)
        held += (told.low or 9.0) <= 1.2 <= (told.high or 0.0)
        next_one = recorded(draw, between, 0.002).ratio
        later += (told.later_low or 9.0) <= next_one <= (told.later_high or 0.0)
    return held / TRIALS, later / TRIALS


TRIALS = 1000
MIXED = (0.003,) * 6 + (0.008,) * 3 + (0.0185,)  # root of the mean square: 0.0078


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("spread", [(0.0,), (0.0078,), MIXED])
def test_a_later_recording_lies_in_the_interval(count: int, spread: Sequence[float]) -> None:
    assert min(coverage(0.0078, spread, count)) >= 0.9


@pytest.mark.parametrize("between", [0.0, 0.003, 0.03])
def test_without_a_known_spread_several_recordings_tell_it(between: float) -> None:
    assert min(coverage(None, (between,), 3)) >= 0.9


def test_a_single_recording_of_an_unknown_gpu_says_nothing_of_others() -> None:
    told = over_recordings([Ratio(1.2, 1.19, 1.21, SESSIONS)])
    assert (told.ratio, told.recordings, told.between, told.later_low) == (1.2, 1, None, None)


def test_the_variance_between_is_that_of_paule_and_mandel() -> None:
    """Equal own variances have it in closed form: the variance of the values, less their own."""
    values = [0.10, 0.13, 0.11, 0.18]
    found = paule_mandel(values, [1e-4] * 4)
    assert found == pytest.approx(statistics.variance(values) - 1e-4, rel=1e-6)
    assert paule_mandel(values, [1e-2] * 4) == 0
    uneven = [1e-4, 4e-4, 1e-4, 9e-4]
    between = paule_mandel(values, uneven)
    weights = [1 / (own + between) for own in uneven]
    middle = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    squares = sum(w * (v - middle) ** 2 for w, v in zip(weights, values, strict=True))
    assert squares == pytest.approx(3, rel=1e-6)
