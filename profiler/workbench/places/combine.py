"""Sessions of one comparison that ran on several cards, as the one timing that they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from workbench.errors import ToolFailed
from workbench.evidence.records import GraphNode, Provenance, Session, Timing, differing

# What cards and libraries of the sessions of one comparison have in common.
EQUAL = (
    *("gpu", "compute_capability", "sm_count", "l2_bytes", "memory_bytes", "driver"),
    *("cuda", "nvrtc", "cudnn", "torch", "cuda_core", "packages"),
)


def combined(timings: Sequence[Timing], out: set[str], planned: int) -> Timing:
    """One timing of several, in this order; ``out`` are variants that failed in one of them.

    A session that ran on another card than the others says on which. Raises ToolFailed where cards,
    drivers or libraries are not equal.
    """
    first = timings[0]
    for other in timings[1:]:
        if told := differences(first.provenance, other.provenance):
            raise ToolFailed(
                f"sessions of {first.shape} ran on unequal cards: {told}",
                hint="the workers of a place that measures one comparison must be equal",
            )
    cards = {timing.provenance.gpu_uuid for timing in timings}
    several = len(cards) > 1
    sessions: list[Session] = []
    numbers = {True: 0, False: 0}
    for timing in timings:
        for session in timing.sessions:
            series = tuple(one for one in session.series if one.variant not in out)
            if not series:
                continue
            sessions.append(
                structs.replace(
                    session,
                    number=numbers[session.alone],
                    series=series,
                    audits=tuple(one for one in session.audits if one.variant not in out),
                    card=(timing.provenance.gpu_uuid or "") if several else "",
                )
            )
            numbers[session.alone] += 1
    hosts = {timing.provenance.host for timing in timings}
    origin = structs.replace(
        first.provenance,
        gpu_uuid=None if several else first.provenance.gpu_uuid,
        host=None if len(hosts) > 1 else first.provenance.host,
    )
    nodes: dict[str, tuple[GraphNode, ...]] = {}
    unsteady: set[str] = set()
    for timing in timings:
        unsteady |= {*timing.unsteady, *differing(nodes, timing.nodes)}
        nodes = {**timing.nodes, **nodes}
    prints = {name: found for timing in timings for name, found in timing.fingerprints.items()}
    return structs.replace(
        first,
        fingerprints={name: prints[name] for name in sorted(prints) if name not in out},
        nodes={name: found for name, found in nodes.items() if name not in out},
        sessions=tuple(sessions),
        provenance=origin,
        planned=planned,
        unsteady=tuple(sorted(unsteady - out)),
    )


def differences(one: Provenance, other: Provenance) -> str:
    """What keeps the sessions of two cards from being compared, in words."""
    pairs: Mapping[str, tuple[object, object]] = {
        name: (getattr(one, name), getattr(other, name)) for name in EQUAL
    }
    return ", ".join(f"{name} {a} and {b}" for name, (a, b) in pairs.items() if a != b)
