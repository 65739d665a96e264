"""A timing: sessions of some variants timed together, as it stands on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import msgspec

from workbench.evidence.records import Count, Measure, Number, Provenance, Record
from workbench.words import NodeKind, Regime, grouped

METHOD = 2  # how times are measured now; see Timing
STEADY_WINDOWS = 3  # the last of a kernel alone, whose time counts


class GraphNode(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A node of a variant's CUDA graph; ``kernel`` is the mangled name, extents are x, y, z."""

    kind: NodeKind
    kernel: str = ""
    grid: tuple[int, int, int] = (0, 0, 0)
    block: tuple[int, int, int] = (0, 0, 0)
    shared_bytes: Count = 0


class Series(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One instance of a variant in one regime, by round.

    ``microseconds`` are of one of the ``calls`` in a graph, less the time between two stamps with
    nothing between them, of which ``gap`` is the median. ``by_events`` is the same by a second
    clock: means of some calls, in every other round. ``unchecked``: no graph can capture a call,
    because of the line ``refused_at``, and these were queued in a stream. Method 1 has the time of
    a call with all that is around it, and in ``around`` that of the same graph without the variant
    in the same round. ``mhz`` and ``around_mhz`` are SM clocks inside of these graphs. ``control``:
    it is a second group of instances of the variant, which must come out as equal. Alone it has
    a value for every window of time in place of rounds, in which no other kernel ran: the time
    counts once it has settled.
    """

    variant: str
    instance: Count
    regime: Regime
    calls: Count
    microseconds: tuple[Measure, ...]
    around: tuple[Measure, ...] = ()
    mhz: tuple[Measure, ...] = ()
    around_mhz: tuple[Measure, ...] = ()
    control: bool = msgspec.field(default=False, name="twin")
    gap: Measure | None = None
    by_events: tuple[Number, ...] = ()
    unchecked: bool = False
    refused_at: str = ""

    def __post_init__(self) -> None:
        rounds = len(self.microseconds)
        for name in ("around", "mhz", "around_mhz"):
            if len(getattr(self, name)) not in (0, rounds):
                raise ValueError(f"has '{name}' of another length than 'microseconds', {rounds}")
        if not rounds or self.calls < 1:
            raise ValueError("has no rounds, or no calls")

    @property
    def settled(self) -> Series:
        """Without the windows before clock and power had settled."""
        if self.regime != Regime.ALONE:
            return self
        last = slice(-STEADY_WINDOWS, None)
        return msgspec.structs.replace(
            self, microseconds=self.microseconds[last], mhz=self.mhz[last]
        )

    @property
    def added(self) -> list[float]:
        """Microseconds that a call takes or, by method 1, adds to its neighbours, by round."""
        if not self.around:
            return list(self.microseconds)
        return [t - around for t, around in zip(self.microseconds, self.around, strict=True)]


class Audit(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Outputs of timed calls against the float64 reference, after the timing: the worst
    ``relative`` error in norm, and ``why`` one is wrong.
    """

    variant: str
    outputs: Count
    relative: Number | None = None
    why: str = ""


class Session(Record, frozen=True, kw_only=True, omit_defaults=True):
    """One timing process. ``alone``: it held references only, no step's code was in it.

    ``throttled`` is the share of rounds in which the GPU said that it slowed itself down, by what
    (``reasons``, NVML's names); ``temperature_c`` at its end. ``instances`` a variant.
    """

    number: Count
    instances: Count
    series: tuple[Series, ...]
    audits: tuple[Audit, ...] = ()
    alone: bool = False
    temperature_c: Number | None = None
    throttled: Measure | None = None
    reasons: tuple[str, ...] = ()


Call = tuple[GraphNode, ...]  # its nodes


def other_ways(*every: Call) -> tuple[Call, ...]:
    """Of calls those that differ from the first and from each other, in whatever order."""
    ways = {frozenset(Counter(call).items()): call for call in reversed(every)}
    ways.pop(frozenset(Counter(every[0]).items()))
    return tuple(reversed(ways.values()))


class Timing(Record, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """``<shape>/timings/<date>.json.zst``: some variants timed together, in several sessions.

    ``method`` 1 timed a graph and took off the time of the same graph without the variant, which
    finds other things in L2; 2 has stamps around each call. ``fingerprints`` are those of the
    variants, ``nodes`` the graph of one call of each. Of ``stride`` pieces of 16 bytes the
    neighbours write and read one (method 2: all); what is constant is held in so many ``copies``,
    which calls have in turn. ``planned`` sessions hold every variant; more came
    where a verdict was open. ``ways`` are the other nodes that calls of some instances launched, of
    variants that choose them in their first calls.
    """

    schema: ClassVar[int] = 2

    study: str
    shape: str
    fingerprints: dict[str, str]
    nodes: dict[str, tuple[GraphNode, ...]]
    stride: Count
    sessions: tuple[Session, ...]
    provenance: Provenance
    method: Count = 1
    copies: Count = 1
    planned: Count = 0  # not recorded
    ways: dict[str, tuple[Call, ...]] = msgspec.field(default_factory=dict)

    @cached_property
    def by_variant(self) -> Mapping[str, list[Series]]:
        """What each variant was timed in, of all sessions."""
        return grouped((one.variant, one) for session in self.sessions for one in session.series)

    @cached_property
    def audits(self) -> Mapping[str, list[Audit]]:
        """By variant, of all sessions."""
        return grouped((one.variant, one) for session in self.sessions for one in session.audits)

    @cached_property
    def chained(self) -> frozenset[str]:
        """The variants that were timed in the regime that decides."""
        return frozenset(
            variant
            for variant, every in self.by_variant.items()
            if any(one.regime == Regime.CHAINED and not one.control for one in every)
        )

    @cached_property
    def together(self) -> tuple[Session, ...]:
        """The sessions that held steps and references side by side: ratios are theirs."""
        return tuple(session for session in self.sessions if not session.alone)

    @cached_property
    def first_planned(self) -> int:
        """As ``planned``; where that is not recorded, how many sessions hold every variant."""
        held = Counter(
            name for one in self.together for name in {series.variant for series in one.series}
        )
        return self.planned or min(held.values(), default=0)

    @property
    def is_complete(self) -> bool:
        """Whether it has the sessions that were planned: a process that is killed leaves fewer."""
        return len(self.together) >= self.planned


UNREAD = msgspec.Raw(b"")


def _head(kind: type[Record], **read: Any) -> Any:
    """A record of ``kind`` of which some fields are read, and the others kept as they are."""
    fields = [
        (field.name, read.get(field.name, msgspec.Raw))
        + (() if field.required else (field.default if field.name in read else UNREAD,))
        for field in msgspec.structs.fields(kind)
    ]
    return msgspec.defstruct(
        f"{kind.__name__}Head", fields, bases=(Record,), namespace={"schema": kind.schema},
        omit_defaults=True, kw_only=True, frozen=True,
    )  # fmt: skip


# What a timing is of, without its measurements: a quarter of the time to read.
TimingHead = _head(
    Timing,
    fingerprints=dict[str, str],
    sessions=tuple[_head(Session, alone=bool), ...],  # type: ignore[misc]
    planned=Count,
)
