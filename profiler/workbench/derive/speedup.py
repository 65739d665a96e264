"""Times of variants and how many times faster one is than another, from timing sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, pstdev
from typing import TYPE_CHECKING, ClassVar

from workbench.derive.intervals import LEVEL, Interval, Ratio, ratio_interval, time_interval
from workbench.words import Regime

if TYPE_CHECKING:
    from workbench.evidence.timing import Series, Session


@dataclass(frozen=True)
class Time:
    """Microseconds that a call adds, a geometric mean over instances and sessions, with its 95 %
    interval (None of one session).

    ``sm_clock_mhz`` is the median inside of the timed graphs; None is not collected. ``unchecked``:
    of calls in a stream, which no graph can capture.
    """

    value: float
    low: float | None
    high: float | None
    regime: Regime
    sessions: int
    instances: int
    sm_clock_mhz: float | None = None
    unchecked: bool = field(default=False, repr=False)
    level: ClassVar[int] = LEVEL


@dataclass(frozen=True)
class InstanceTime:
    """One instance: microseconds and kilocycles that a call adds, medians over its rounds.

    ``kilocycles`` (microseconds × MHz ÷ 1000) and ``sm_clock_mhz`` are None where not collected.
    """

    microseconds: float
    kilocycles: float | None
    sm_clock_mhz: float | None
    unchecked: bool = False


SessionTimes = Mapping[int, tuple[InstanceTime, ...]]  # the instances of a variant by session
Key = tuple[str, Regime, bool]  # variant, regime, whether it is the twin


def instance_time(series: Series) -> InstanceTime:
    """Of one instance, whatever the method."""
    return InstanceTime(
        microseconds=median(series.added),
        kilocycles=_kilocycles(series),
        sm_clock_mhz=median(series.mhz) if series.mhz else None,
        unchecked=series.unchecked,
    )


def _kilocycles(series: Series) -> float | None:
    """Each graph's by the clock inside of it."""
    if not series.mhz or (series.around and not series.around_mhz):
        return None
    whole = [t * mhz for t, mhz in zip(series.microseconds, series.mhz, strict=True)]
    if series.around:
        around = zip(series.around, series.around_mhz, strict=True)
        whole = [w - t * mhz for w, (t, mhz) in zip(whole, around, strict=True)]
    return median(whole) / 1e3


AGREE, AGREE_US = 0.03, 0.5  # of the time, or µs: both clocks from 1 KB to 1 GB, docs/measuring.md
SCATTER = 3  # standard deviations of their difference between instances


@dataclass(frozen=True)
class TwoClocks:
    """Chained microseconds of a call by stamps and by events, means over instances of all sessions,
    and the standard deviation of their difference.
    """

    stamps: float
    events: float
    scatter: float

    @property
    def disagree(self) -> bool:
        """Whether they differ by more than both ways do in the benchmark, and than they scatter."""
        bound = max(AGREE * self.stamps, AGREE_US) + SCATTER * self.scatter
        return abs(self.stamps - self.events) > bound


def two_clocks(sessions: Iterable[Session]) -> Mapping[str, TwoClocks]:
    """By variant; empty of method 1, which has one clock."""
    found: dict[str, list[tuple[float, float]]] = {}
    for session in sessions:
        for series in session.series:
            if series.by_events:
                both = median(series.microseconds), median(series.by_events)
                found.setdefault(series.variant, []).append(both)
    return {
        variant: TwoClocks(
            stamps=fmean(stamps for stamps, _ in both),
            events=fmean(events for _, events in both),
            scatter=pstdev(stamps - events for stamps, events in both),
        )
        for variant, both in found.items()
    }


def wrong_outputs(sessions: Iterable[Session]) -> Mapping[str, str]:
    """Variants of which a timed call gave a wrong output, and what was wrong with it."""
    audits = (audit for session in sessions for audit in session.audits)
    return {audit.variant: audit.why for audit in audits if audit.why}


def session_times(sessions: Iterable[Session]) -> Mapping[Key, SessionTimes]:
    """By variant, regime and twin, of some sessions. A variant has none in any of them if an output
    of a timed call was wrong, or if the two clocks disagree.
    """
    every = list(sessions)
    wrong = {name for name, clocks in two_clocks(every).items() if clocks.disagree}
    wrong |= wrong_outputs(every).keys()
    found: dict[Key, list[tuple[Session, Series]]] = {}
    for session in every:
        for series in session.series:
            if series.variant not in wrong:
                key = (series.variant, series.regime, series.twin)
                found.setdefault(key, []).append((session, series))
    return _WhenAsked(found)


class _WhenAsked(Mapping[Key, SessionTimes]):
    """The times of each key from when they are first asked for: a verdict asks for few of them."""

    def __init__(self, measured: Mapping[Key, Sequence[tuple[Session, Series]]]) -> None:
        self._measured = measured
        self._found: dict[Key, SessionTimes] = {}

    def __getitem__(self, key: Key) -> SessionTimes:
        if key not in self._found:
            by_session: dict[int, list[InstanceTime]] = {}
            for session, series in self._measured[key]:
                one = instance_time(series)
                by_session.setdefault(session.number, []).append(one)
            self._found[key] = {number: tuple(times) for number, times in by_session.items()}
        return self._found[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._measured)

    def __len__(self) -> int:
        return len(self._measured)


def adds_nothing(times: SessionTimes) -> bool:
    """Whether an instance takes no time at all, or less: such a call has no logarithm."""
    return any(one.microseconds <= 0 for session in times.values() for one in session)


def time_of(times: SessionTimes, regime: Regime) -> Time | None:
    """None without a session, and where a call adds nothing."""
    if not times or adds_nothing(times):
        return None
    known = time_interval([[one.microseconds for one in session] for session in times.values()])
    clocks = [o.sm_clock_mhz for s in times.values() for o in s if o.sm_clock_mhz is not None]
    return Time(
        value=known.value,
        low=known.low,
        high=known.high,
        regime=regime,
        sessions=known.sessions,
        instances=sum(len(session) for session in times.values()),
        sm_clock_mhz=median(clocks) if clocks else None,
        unchecked=any(one.unchecked for session in times.values() for one in session),
    )


def ratio_of(before: SessionTimes, after: SessionTimes, planned: int = 0) -> Ratio | None:
    """How many times faster ``after`` is, from the sessions that have both; None without any.

    Where these are more than were ``planned`` (0: as many as there are), its interval has been
    looked at before.
    """
    shared = [number for number in before if number in after]
    one = {number: before[number] for number in shared}
    other = {number: after[number] for number in shared}
    if not shared or adds_nothing(one) or adds_nothing(other):
        return None
    first, second = (
        [[o.microseconds for o in session] for session in side.values()] for side in (one, other)
    )
    again = len(shared) > planned > 0
    known = ratio_interval(first, second, again=again)
    cycles = _in_cycles(one, other, again)
    return Ratio(known.value, known.low, known.high, known.sessions, cycles, known.level)


def _in_cycles(before: SessionTimes, after: SessionTimes, again: bool) -> Interval | None:
    """None where the clock of an instance was not collected."""
    cycles = [
        [[one.kilocycles or 0.0 for one in session] for session in side.values()]
        for side in (before, after)
    ]
    if any(value <= 0 for side in cycles for session in side for value in session):
        return None
    return ratio_interval(*cycles, again=again)
