"""What goes on at a place, on stderr."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from workbench.commands.progress import Progress
from workbench.run.protocol import (
    Captured,
    CeilingMeasured,
    Checked,
    Failed,
    Start,
    Timed,
    WorkerEvent,
)

if TYPE_CHECKING:
    from workbench.places.blocks import Block, Left, Outcome
    from workbench.places.underway import State


class Board:
    """All blocks in one place on stderr: what each card does, how many are done, the time left;
    ``quiet``: only for as long as it goes on.
    """

    def __init__(
        self,
        place: str,
        hear: Callable[[WorkerEvent], None] = lambda event: None,
        *,
        quiet: bool = False,
    ) -> None:
        self.place, self.hear, self.quiet = place, hear, quiet
        self.progress = Progress()
        self.doing: dict[str, str] = {}
        self.counted = ""

    def done(self, state: State, block: Block, left: Left) -> None:
        self.doing.clear()  # whoever works on tells so again
        self.counted = f"{state.done} of {state.total} blocks"
        if state.seconds_left is not None and state.done < state.total:
            self.counted += f", about {state.seconds_left:.0f} s left on {state.workers} cards"
        if self.quiet:
            return
        failed = [name for name in left.failures if name in block.variants]
        for name in failed:
            what = left.failures[name].partition("\n")[0]
            self.progress.line(f"failed {name} at {block.shape}: {what}")
        if left.card is not None:
            where = f"{left.card.uuid[:12]} in {left.seconds:.0f} s"
            self.progress.line(f"{block.words}, on {where} ({self.counted})")

    def event(self, block: Block, where: str, event: WorkerEvent) -> None:
        self.hear(event)
        match event:
            case CeilingMeasured():
                self.doing[where] = f"measured {event.id}"
            case Start():
                self.doing[where] = f"{block.shape}: {event.phase} {event.variant}"
            case Checked():
                self.doing[where] = f"{block.shape}: checked {event.variant}"
            case Timed():
                self.doing[where] = f"{block.shape}: session {event.session.number + 1}"
            case Captured():
                self.doing[where] = f"{block.shape}: captured {event.variant}"
            case Failed():
                self.doing[where] = f"{block.shape}: failed {event.variant}"
            case _:
                return
        all_of_them = "; ".join(f"{name} {what}" for name, what in sorted(self.doing.items()))
        self.progress.live(f"{self.counted or self.place} · {all_of_them}")

    def told(self, outcomes: Sequence[Outcome]) -> str:
        """GPU seconds by card, where there were any."""
        seconds: dict[str, float] = {}
        for outcome in outcomes:
            for card, spent in outcome.seconds.items():
                seconds[card] = seconds.get(card, 0.0) + spent
        told = ", ".join(f"{card} {spent:.0f} s" for card, spent in seconds.items())
        return f" at '{self.place}' (GPU time: {told})" if told else f" at '{self.place}'"
