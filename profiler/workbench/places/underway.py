"""What is under way: errands and their blocks, blocks on their way, and who hears of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from workbench.places.blocks import Block, Left, Outcome
from workbench.places.landing import Landing
from workbench.places.plan import Errand, Stages
from workbench.run.protocol import WorkerEvent


@dataclass
class Underway:
    """An errand, the blocks of its stage, and what those that are in have left."""

    errand: Errand
    landing: Landing
    stages: Stages
    outcome: Outcome
    wanted: list[str] = field(default_factory=list)
    left: dict[str, Left] = field(default_factory=dict)


@dataclass
class Flight:
    """A block on its way: where it was tried last, and what was said of each try."""

    name: str
    data: bytes
    block: Block
    of: Underway
    blobs: dict[str, bytes] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    where: str = ""
    is_new: bool = False  # measured for this command

    @property
    def is_share(self) -> bool:
        """Whether it has some of the sessions of a comparison."""
        return self.block.share >= 0


@dataclass(frozen=True)
class State:
    """How far all blocks are; those of later stages are not known yet."""

    done: int
    total: int
    workers: int
    seconds_left: float | None


@dataclass(frozen=True)
class Watching:
    """Who hears what goes on: a block that is done, an event of one, a line for the user."""

    done: Callable[[State, Block, Left], None] = lambda state, block, left: None
    event: Callable[[Block, str, WorkerEvent], None] = lambda block, where, event: None
    note: Callable[[str], None] = lambda text: None
