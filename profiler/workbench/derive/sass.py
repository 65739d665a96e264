"""Every instruction of a variant's launches with what it cost. Pure.

The time of an instruction is its share of the warp state samples, as that of a line is in
``derive.diff.costs``: by line they add up to the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from workbench.derive.diff.costs import NS_PER_US, sample_weights
from workbench.derive.figures import ISSUING
from workbench.derive.sums import added

if TYPE_CHECKING:
    from workbench.ncu.capture import Table
    from workbench.ncu.disassembly import Code

Place = tuple[str, int]
NO_STALLS: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True)
class Costed:
    """One instruction of one launch; ``address`` is in bytes from the first.

    ``executed`` counts warps, ``samples`` those that waited there, ``share`` is their part of all
    samples of the variant (0 to 1), and ``microseconds`` that share of the duration under ncu; None
    is not collected. ``stalls`` is stall reason to samples. ``place`` is the file and the line that
    it is charged to, and it is the one at ``index`` in ``code``.
    """

    launch: int
    address: int
    sass: str
    place: Place
    executed: float | None
    samples: float | None
    share: float | None
    microseconds: float | None
    stalls: Mapping[str, float] = field(default_factory=lambda: NO_STALLS)
    code: Code | None = field(default=None, repr=False, compare=False)
    index: int = 0

    @property
    def ptx(self) -> str:
        """What it was made of, "" where that is not known: see ``Code.ptx``."""
        return self.code.ptx[self.index] if self.code is not None else ""

    @property
    def top_stall(self) -> str:
        """The reason with the most samples; "" where there is none."""
        return min(self.stalls, key=lambda name: (-self.stalls[name], name), default="")


@dataclass(frozen=True)
class Listing:
    """All launches of a variant one after the other; ``duration`` is theirs, in microseconds under
    ncu. ``complete`` is whether every launch has its disassembly.
    """

    instructions: tuple[Costed, ...]
    duration: float | None
    complete: bool

    @cached_property
    def by_line(self) -> Mapping[Place, Sequence[Costed]]:
        found: dict[Place, list[Costed]] = {}
        for one in self.instructions:
            found.setdefault(one.place, []).append(one)
        return found


def listing(codes: Sequence[Code | None], metrics: Table) -> Listing:
    """From a capture's ``code`` and ``metrics``."""
    known = {launch: code for launch, code in enumerate(codes) if code is not None}
    taken = {launch: _samples(code) for launch, code in known.items()}
    weights, whole = sample_weights(taken, metrics)
    found = [
        one
        for launch, code in known.items()
        for one in _costed(launch, code, weights.get(launch), whole)
    ]
    duration = None if whole is None else whole / NS_PER_US
    return Listing(tuple(found), duration, len(known) == len(codes))


def _samples(code: Code) -> float:
    return added(count for found in code.samples.values() for count in found.values())


def _costed(launch: int, code: Code, weight: float | None, whole: float | None) -> Iterable[Costed]:
    """``weight`` of a sample in all of the variant's; None where the launch has none."""
    stalls: dict[int, dict[str, float]] = {}
    for reason, found in code.samples.items():
        if reason != ISSUING:
            for index, count in found.items():
                stalls.setdefault(index, {})[reason] = count
    for index, (address, sass, place) in enumerate(
        zip(code.addresses, code.sass, code.places, strict=True)
    ):
        mine = stalls.get(index, {})
        samples = added(mine.values())
        share = None if weight is None else samples * weight
        yield Costed(
            launch=launch,
            address=address,
            sass=sass,
            place=place,
            executed=code.executed[index] if code.executed is not None else None,
            samples=None if weight is None else samples,
            share=share,
            microseconds=None if share is None or whole is None else share * whole / NS_PER_US,
            stalls=MappingProxyType(mine) if mine else NO_STALLS,
            code=code,
            index=index,
        )
