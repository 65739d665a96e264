"""Sends blocks to Dask workers, again where one is lost, and merges what comes back.

Few blocks are under way at a time: what waits here costs the scheduler nothing, and a worker that
dies takes few along. What a block left is kept beside the evidence until the whole command is done,
so that the same command goes on from there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from workbench.errors import ToolFailed
from workbench.places import blocks, workers
from workbench.places.blocks import Answer, Failed, Lacking, Left, Outcome
from workbench.places.carry import files_of, hashes
from workbench.places.landing import Landing
from workbench.places.plan import Errand, apart, in_one, whole_ones
from workbench.places.sending import Sending
from workbench.places.underway import Flight, State, Underway, Watching
from workbench.places.unfinished import Unfinished
from workbench.places.workers import Crew
from workbench.run.protocol import Broken, ErrorText, decode

TRIES = 3
SHORT_SECONDS = 1.0  # of a block: with shorter ones a worker has the next at hand
AHEAD = 16
TOGETHER = 8  # of them one task: they would cost more to send than to carry out
LOOK_SECONDS = 5.0  # how often workers are counted
WAIT_SECONDS = 0.5  # and while there are none
OUT_SECONDS = 60.0  # without a worker that was not left out


class Dispatch:
    """All errands of a command, side by side."""

    def __init__(
        self,
        crew: Crew,
        errands: Sequence[Errand],
        command: Sequence[str],
        watching: Watching,
        task: Callable[..., bytes] = workers.task,
    ) -> None:
        self.crew, self.errands, self.command = crew, errands, command
        self.watching, self.sending = watching, Sending(crew, task)
        self.outcomes = [Outcome() for _ in errands]
        self.number = crew.number()
        self.whole = whole_ones(errands, self.number)
        self.todo = deque(
            sorted(range(len(errands)), key=lambda i: (self.whole[i], errands[i].weight))[::-1]
        )
        self.kept: deque[tuple[Flight, Left]] = deque()  # finished by an interrupted command
        self.ready: deque[Flight] = deque()
        self.by_name: dict[str, Flight] = {}
        self.looked = self.staffed = time.monotonic()
        self.unfinished = Unfinished()
        self.gave_up = False
        self.done = self.ran = 0
        self.busy = 0.0
        self.landings: dict[Path, Landing] = {}
        self.sources: dict[Path, dict[str, str]] = {}

    def run(self) -> list[Outcome]:
        """Raises KeyboardInterrupt after Ctrl-C, when the remote work has ended; ToolFailed where
        the scheduler is gone, EnvironmentLacks where no worker is left. What was finished is
        merged, or kept for the next time.
        """
        with ExitStack() as last:
            last.callback(self.note_unfinished)
            self.sending.begin()
            last.callback(self.sending.end)
            last.callback(self.commit)
            while self.todo or self.by_name:
                self.send()
                if self.sending.flying:
                    self.land()
                elif not self.number:
                    time.sleep(WAIT_SECONDS)
        if not self.gave_up:
            for landing in self.landings.values():
                landing.spool.clear()
        return self.outcomes

    # ---- what is to be done ------------------------------------------------------------------
    def begin(self, i: int) -> None:
        """The first stage of an errand."""
        errand = self.errands[i]
        root, ladder = errand.folder.root, errand.study.ladder
        if root not in self.landings:
            self.landings[root] = Landing(errand.folder)
        if ladder.path not in self.sources:
            self.sources[ladder.path] = errand.sources
        landing, block = self.landings[root], errand.block(self.command, self.sources[ladder.path])
        landing.merger.learn(errand.study)
        if self.whole[i]:
            stages = in_one(block)
        else:
            cards = landing.spool.cards(block, self.number)
            undecided = errand.deciding.undecided(ladder, errand.config)
            stages = apart(block, cards, landing.merger, undecided)
        self.advance(Underway(errand, landing, stages, self.outcomes[i]), None)

    def advance(self, one: Underway, left: list[Left] | None) -> None:
        """The next stage of an errand, where there is one."""
        try:
            stage = next(one.stages) if left is None else one.stages.send(left)
        except StopIteration:
            return
        one.wanted = []
        for block in stage:
            data = blocks.encode(block)
            flight = Flight(blocks.id_of(data), data, block, one)
            one.wanted.append(flight.name)
            self.by_name[flight.name] = flight
            kept = one.landing.spool.get(flight.name)
            if kept is not None and one.landing.merger.still_has(kept):
                self.kept.append((flight, kept))
            else:
                self.ready.append(flight)

    @property
    def are_short(self) -> bool:
        """Whether those that were carried out took less than ``SHORT_SECONDS`` each."""
        return bool(self.ran) and self.busy / self.ran < SHORT_SECONDS

    def send(self) -> None:
        now = time.monotonic()
        if now - self.looked > (LOOK_SECONDS if self.number else WAIT_SECONDS):
            self.looked, self.number = now, self.crew.number()
            self.staffed = now if self.number else self.staffed
            if now - self.staffed > (OUT_SECONDS if self.crew.out else workers.WAIT_SECONDS):
                raise self.crew.nobody()
        ahead, each = (AHEAD, TOGETHER) if self.are_short else (1, 1)
        room = ahead * self.number - self.sending.number
        flights: list[Flight] = []
        while len(flights) < room and self.has_ready():
            flights.append(self.ready.popleft())
        if not self.todo:  # the last ones over all workers
            each = min(each, 1 + len(flights) // max(1, self.number))
        self.sending.send(flights, each)

    def has_ready(self) -> bool:
        """Whether there is a block to be measured, after all that comes before one."""
        while not self.ready:
            if self.kept:
                self.put(*self.kept.popleft())
            elif self.todo:
                self.begin(self.todo.popleft())
            elif not self.settle():
                return False
        return True

    # ---- what comes back ---------------------------------------------------------------------
    def land(self) -> None:
        """What has come in, on record together."""
        events, came = self.sending.land()
        for message in events:
            self.told(message)
        for flight, answer in sorted(came, key=lambda each: not isinstance(each[1], Left)):
            self.answered(flight, answer)
        self.settle()
        self.sending.require_scheduler()

    def told(self, message: dict[str, Any]) -> None:
        flight = self.by_name.get(message["block"])
        if flight is not None:
            with suppress(ToolFailed):
                event = decode(message["event"])
                self.unfinished.hear(flight.name, event)
                self.watching.event(flight.block, message["where"], event)

    def answered(self, flight: Flight, answer: Answer) -> None:
        flight.where = answer.where or flight.where
        match answer:
            case Lacking():
                paths = files_of(flight.of.errand.study)
                by_hash = {sha256: paths[name] for name, sha256 in hashes(paths).items()}
                if gone := [one for one in answer.sha256 if one not in by_hash]:
                    raise ToolFailed(
                        f"{len(gone)} sources were changed while they were being measured",
                        hint="run the same command again: it measures them as they are now",
                    )
                flight.blobs = {one: by_hash[one].read_bytes() for one in answer.sha256}
                self.ready.appendleft(flight)
            case Failed(unequal=True):
                self.crew.exclude(flight.where, answer.message, self.watching.note)
                self.ready.appendleft(flight)
            case Failed():
                self.again(flight, answer)
            case Left():
                flight.is_new = True
                self.put(flight, answer)

    def note(self, flight: Flight) -> None:
        """The sessions of a block that were heard of, and that it has not left."""
        one = flight.of
        self.unfinished.note(flight.name, flight.block, one.landing.merger, one.errand.folder)

    def note_unfinished(self) -> None:
        for flight in self.by_name.values():
            self.note(flight)

    def again(self, flight: Flight, failed: Failed) -> None:
        """Elsewhere, if it can be; after so many tries its variants have failed."""
        self.note(flight)
        why = failed.message + (f"\nhint: {failed.hint}" if failed.hint else "")
        flight.told.append(why)
        if len(flight.told) < TRIES and failed.again:
            self.watching.note(f"{flight.block.words}: {why}; it goes elsewhere")
            self.ready.append(flight)
            return
        self.gave_up = True
        tries = f" ({len(flight.told)} tries)" if len(flight.told) > 1 else ""
        left = Left(
            block=flight.name,
            gpu="",
            files={},
            sha256={},
            failures=dict.fromkeys(flight.block.variants, f"{why}{tries}"),
            told=Broken(
                error=ErrorText(
                    kind=failed.kind, message=f"{failed.message}{tries}", hint=failed.hint
                )
            ),
        )
        self.put(flight, left)

    def put(self, flight: Flight, left: Left) -> None:
        """To those that go on record together; again where it is not what the worker wrote."""
        landing = flight.of.landing
        if not landing.has_room(flight.block.shape):
            self.settle()
        try:
            landing.add(flight, left)
        except ToolFailed as error:
            failed = Failed(block=flight.name, kind="ToolFailed", message=error.message, again=True)
            self.again(flight, failed)
        else:
            self.unfinished.forget(flight.name)

    def settle(self) -> bool:
        """Put them on record, and go on to the next stages; whether there were any."""
        settled = self.commit()
        for flight, left in settled:
            del self.by_name[flight.name]
            if flight.is_new and left.gpu:
                self.spent(flight, left)
            one = flight.of
            one.outcome.add(left)
            one.left[flight.name] = left
            self.done += 1
            self.watching.done(self.state(), flight.block, left)
            if all(name in one.left for name in one.wanted):
                self.advance(one, [one.left.pop(name) for name in one.wanted])
        return bool(settled)

    def commit(self) -> list[tuple[Flight, Left]]:
        return [each for landing in self.landings.values() for each in landing.commit()]

    def spent(self, flight: Flight, left: Left) -> None:
        self.busy += left.seconds
        self.ran += 1
        if left.card is not None:
            seconds = flight.of.outcome.seconds
            seconds[left.card.name] = seconds.get(left.card.name, 0.0) + left.seconds

    def state(self) -> State:
        waiting = len(self.by_name) + len(self.todo)
        each = self.busy / self.ran if self.ran else None
        left = None if each is None else each * waiting / max(1, self.number)
        return State(self.done, self.done + waiting, self.number, left)
