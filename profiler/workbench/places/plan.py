"""How the measuring of a study at some shapes is taken apart into blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from msgspec import structs

from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.records import Timing
from workbench.judge.deciding import Deciding
from workbench.places.blocks import Block, Left, with_sessions
from workbench.places.carry import files_of, hashes
from workbench.places.merge import Merger
from workbench.run.plan import Plan
from workbench.run.protocol import CeilingsJob, TrialJob
from workbench.study.config import Config
from workbench.study.model import Study
from workbench.study.shapes import parameters_of_derived

T = TypeVar("T")
FEWEST = 4  # variants of a block: a process that imports torch costs ten seconds

# Blocks that can be done side by side, and what each of them left, in their order.
Stages = Generator[list[Block], list[Left], None]


@dataclass(frozen=True)
class Errand:
    """A plan that is carried out elsewhere, and where its evidence goes; or a job ``instead``."""

    study: Study
    config: Config
    folder: EvidenceFolder
    plan: Plan
    deciding: Deciding = field(default_factory=Deciding)
    instead: TrialJob | CeilingsJob | None = None

    @property
    def sources(self) -> dict[str, str]:
        """The sha256 of the files as they are now; ceilings need none."""
        return {} if isinstance(self.instead, CeilingsJob) else hashes(files_of(self.study))

    def block(self, command: Sequence[str], sources: dict[str, str] | None = None) -> Block:
        """All of it; ``sources`` where they are known."""
        plan, config = self.plan, self.config
        return Block(
            study=self.study.name,
            shape=plan.shape,
            checked=plan.checked,
            timed=plan.timed,
            captured=plan.captured,
            proven=plan.proven,
            everywhere=plan.everywhere,
            derived=parameters_of_derived(self.study),
            sources=self.sources if sources is None else sources,
            timing=config.timing,
            limits=config.limits,
            profiler=config.profiler,
            gates=config.gates,
            gate=config.gate,
            deciding=self.deciding,
            command=tuple(command),
            instead=self.instead,
        )

    @property
    def weight(self) -> tuple[int, int]:
        """The longest come first."""
        return (len(self.plan.captured), len(self.plan.variants))


def whole_ones(errands: Sequence[Errand], cards: int) -> list[bool]:
    """Which of them are one block each. With at least one a card, the longest are, as many as the
    cards do without one of them waiting for another's last; the others are taken apart.
    """
    order = sorted(range(len(errands)), key=lambda i: errands[i].weight, reverse=True)
    number = len(errands) // max(cards, 1) * max(cards, 1)
    whole = set(order[:number])
    return [i in whole for i in range(len(errands))]


def shares(names: Sequence[T], most: int) -> list[tuple[T, ...]]:
    """``names`` in at most so many parts, none of fewer than ``FEWEST`` where that can be."""
    number = max(1, min(most, len(names) // FEWEST))
    size, rest = divmod(len(names), number)
    ends = [size * i + min(i, rest) for i in range(number + 1)]
    return [tuple(names[a:b]) for a, b in pairwise(ends) if names[a:b]]


def in_one(block: Block) -> Stages:
    """On one card from the first build to the last capture."""
    yield [block]


def apart(
    block: Block,
    cards: int,
    merger: Merger,
    undecided: Callable[[Timing], Sequence[str]],
) -> Stages:
    """Build and check over all cards; then the sessions while the other cards capture.

    Sessions are spread where every one can have a card of its own, else they stay on one. What
    would only be handed from one process to the next is one block.
    """
    is_spread = bool(block.timed) and cards >= block.timing.sessions > 1
    if not (is_spread or block.captured or len(shares(block.plan.built, cards)) > 1):
        yield [block]
        return
    out: set[str] = set()
    if built := block.plan.built:
        bare = structs.replace(block, timed=(), captured=())
        done = yield [structs.replace(bare, checked=part) for part in shares(built, cards)]
        out = {name for left in done for name in (*left.failures, *left.unsupported, *left.refused)}
    timed = tuple(name for name in block.timed if name not in out)
    captured = tuple(name for name in block.captured if name not in out)
    timing = structs.replace(block, checked=(), timed=timed, captured=(), proven=True)
    busy = block.timing.sessions if is_spread else 1
    left_over = max(1, cards - busy) if timed else cards
    captures = [
        structs.replace(timing, timed=(), captured=part) for part in shares(captured, left_over)
    ]
    if not timed or not is_spread:
        yield [*([timing] if timed else []), *captures]
        return
    sessions, began = block.timing.sessions, time.monotonic()
    done_shares: list[tuple[Block, Left]] = []
    more: tuple[str, ...] = timed
    while True:
        first = len(done_shares)
        parts = [
            structs.replace(
                timing, timed=more, share=first + i, timing=with_sessions(block.timing, 1)
            )
            for i in range(sessions)
        ]
        done = yield [*parts, *captures]
        done_shares += zip(parts, done[: len(parts)], strict=True)
        captures = []
        found = merger.gathered(done_shares, sessions)
        if found is None:
            return
        is_over = time.monotonic() - began > block.timing.seconds
        is_over |= len(done_shares) + sessions > block.timing.max_sessions
        more = () if is_over else tuple(undecided(found))
        if not more:
            return merger.spread(found)
