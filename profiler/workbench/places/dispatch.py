"""Sends blocks to Dask workers, again where one is lost, and merges what comes back.

Few blocks are under way at a time, two a worker: what waits here costs the scheduler nothing, and a
worker that dies takes two along. Every answer is kept in a spool beside the evidence until the
whole command is done, so that the same command goes on from there.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from workbench.errors import ToolFailed
from workbench.places import blocks, workers
from workbench.places.blocks import Failed, Lacking, Left, Outcome
from workbench.places.carry import files_of, hashes
from workbench.places.merge import Merger
from workbench.places.plan import Errand, apart, in_one, whole_ones
from workbench.places.spool import Spool
from workbench.places.underway import Flight, State, Underway, Watching
from workbench.places.workers import Crew
from workbench.run.protocol import decode

TRIES = 3
SHORT_SECONDS = 1.0  # of a block: with shorter ones a worker has the next ones at hand
AHEAD = 8
LOOK_SECONDS = 5.0  # how often workers are counted
WAIT_SECONDS = 0.5  # and while there are none
GONE_SECONDS = 45.0  # without a scheduler, after which there is none
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
        self.watching, self.task = watching, task
        self.outcomes = [Outcome() for _ in errands]
        self.number = crew.number()
        self.whole = whole_ones(errands, self.number)
        self.todo = deque(
            sorted(range(len(errands)), key=lambda i: (self.whole[i], errands[i].weight))[::-1]
        )
        self.ready: deque[Flight] = deque()
        self.flying: dict[str, Flight] = {}
        self.by_name: dict[str, Flight] = {}
        self.landed: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.looked = self.heard = self.staffed = time.monotonic()
        self.gave_up = False
        self.topic = f"workbench-{time.time_ns()}"
        self.done = self.ran = self.attempts = 0
        self.busy = 0.0
        self.mergers: dict[Path, Merger] = {}
        self.spools: dict[Path, Spool] = {}

    def run(self) -> list[Outcome]:
        """Raises KeyboardInterrupt after Ctrl-C, when the remote work has ended; ToolFailed where
        the scheduler is gone, EnvironmentLacks where no worker is left. What was finished is
        merged, or kept for the next time.
        """
        self.crew.client.subscribe_topic(self.topic, self.landed.put)
        try:
            while self.todo or self.ready or self.flying:
                self.send()
                if self.flying:
                    self.land()
                elif not self.number:
                    time.sleep(WAIT_SECONDS)
        finally:
            self.end()
        if not self.gave_up:
            for spool in self.spools.values():
                spool.clear()
        return self.outcomes

    # ---- what is to be done ------------------------------------------------------------------
    def begin(self, i: int) -> None:
        """The first stage of an errand."""
        errand = self.errands[i]
        root, block = errand.folder.root, errand.block(self.command)
        if root not in self.mergers:
            self.mergers[root], self.spools[root] = Merger(errand.folder), Spool(root / ".blocks")
        merger, spool = self.mergers[root], self.spools[root]
        merger.learn(errand.study)
        undecided = errand.deciding.undecided(errand.study.ladder, errand.config)
        if self.whole[i]:
            stages = in_one(block)
        else:
            stages = apart(block, spool.cards(block, self.number), merger, undecided)
        self.advance(Underway(errand, merger, stages, self.outcomes[i]), None)

    def advance(self, one: Underway, left: list[Left] | None) -> None:
        """The next stage of an errand, until there is a block of it to be measured."""
        while True:
            try:
                stage = next(one.stages) if left is None else one.stages.send(left)
            except StopIteration:
                return
            one.wanted = []
            for block in stage:
                data = blocks.encode(block)
                flight = Flight(blocks.id_of(data), data, block, one)
                one.wanted.append(flight.name)
                kept = self.spools[one.errand.folder.root].get(flight.name)
                if kept is None or not one.merger.still_has(kept):
                    self.by_name[flight.name] = flight
                    self.ready.append(flight)
                else:  # an interrupted command has finished it
                    self.arrived(flight, kept)
            if not all(name in one.left for name in one.wanted):
                return
            left = [one.left.pop(name) for name in one.wanted]

    @property
    def ahead(self) -> int:
        """Blocks under way a worker."""
        return AHEAD if self.ran and self.busy / self.ran < SHORT_SECONDS else 1

    def send(self) -> None:
        now = time.monotonic()
        if now - self.looked > (LOOK_SECONDS if self.number else WAIT_SECONDS):
            self.looked, self.number = now, self.crew.number()
            self.staffed = now if self.number else self.staffed
            if now - self.staffed > (OUT_SECONDS if self.crew.out else workers.WAIT_SECONDS):
                raise self.crew.nobody()
        while len(self.flying) < self.ahead * self.number:
            while self.todo and not self.ready:
                self.begin(self.todo.popleft())
            if not self.ready:
                return
            flight = self.ready.popleft()
            self.attempts += 1
            key = f"{workers.PREFIX}{flight.name}-{self.attempts}"
            flight.future = self.crew.submit(
                self.task,
                flight.data,
                flight.blobs,
                self.crew.kind,
                self.topic,
                key=key,
                avoid=flight.where if flight.told else "",
            )
            self.flying[key] = flight
            flight.future.add_done_callback(self.landed.put)

    # ---- what comes back ---------------------------------------------------------------------
    def land(self) -> None:
        """What has come in; the answers of several blocks at once."""
        try:
            found = [self.landed.get(timeout=1.0)]
        except queue.Empty:
            self.require_scheduler()
            return
        with suppress(queue.Empty):
            while True:
                found.append(self.landed.get_nowait())
        self.heard = time.monotonic()
        for message in found:
            if isinstance(message, tuple):
                self.told(message[1])
        futures = [one for one in found if not isinstance(one, tuple) and one.key in self.flying]
        done = [one for one in futures if one.status == "finished"]
        answers = dict(zip((one.key for one in done), self.gathered(done), strict=True))
        for future in futures:
            flight = self.flying.pop(future.key)
            flight.future = None
            self.landing(flight, future, answers.get(future.key))
            future.release()

    def gathered(self, futures: list[Any]) -> list[Any]:
        """What they give, None where a worker went before it had handed that over."""
        if not futures:
            return []
        try:
            return list(self.crew.client.gather(futures))
        except Exception:  # one by one, to know which
            return [_or_none(one) for one in futures]

    def told(self, message: dict[str, Any]) -> None:
        flight = self.by_name.get(message["block"])
        if flight is not None:
            with suppress(ToolFailed):
                self.watching.event(flight.block, message["where"], decode(message["event"]))

    def landing(self, flight: Flight, future: Any, data: bytes | None) -> None:
        if data is not None:
            try:
                answer = blocks.decode_answer(data)
            except (ValueError, msgspec.DecodeError) as error:
                self.again(flight, f"its answer cannot be read: {error}")
                return
            self.answered(flight, answer)
        elif future.status == "error":
            raised = future.exception()
            flight.where = getattr(getattr(raised, "last_worker", None), "address", "")
            self.again(flight, _short(raised))
        else:
            self.require_scheduler(at_once=True)
            self.again(flight, "its worker was lost with what it had measured")

    def answered(self, flight: Flight, answer: blocks.Answer) -> None:
        flight.where = answer.where
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
                hint = f"\nhint: {answer.hint}" if answer.hint else ""
                self.again(flight, answer.message + hint, final=not answer.again)
            case Left():
                try:
                    self.keep(flight, answer)
                except ToolFailed as error:
                    self.again(flight, error.message)

    def again(self, flight: Flight, why: str, *, final: bool = False) -> None:
        """Elsewhere, if it can be; after so many tries its variants have failed."""
        flight.told.append(why)
        if len(flight.told) < TRIES and not final:
            self.watching.note(f"{flight.block.words}: {why}; it goes elsewhere")
            self.ready.append(flight)
            return
        self.gave_up = True
        tries = f" ({len(flight.told)} tries)" if len(flight.told) > 1 else ""
        told = f"{why}{tries}"
        failures = dict.fromkeys(flight.block.variants, told)
        self.keep(flight, Left(block=flight.name, gpu="", files={}, sha256={}, failures=failures))

    def keep(self, flight: Flight, left: Left) -> None:
        """Merge what stands by itself, and go on to the next stage when this one is in.

        Raises ToolFailed for what is not what the worker wrote.
        """
        one = flight.of
        is_share = flight.block.share >= 0
        if left.files and is_share:
            one.merger.gathered([(flight.block, left)], 1)
        elif left.files:
            one.merger.merge(flight.block, left)
        if left.files:
            left = left if is_share else structs.replace(left, files={})  # they are merged
            self.spools[one.errand.folder.root].put(left)
            self.busy += left.seconds
            self.ran += 1
            if left.card is not None:
                seconds = one.outcome.seconds
                seconds[left.card.name] = seconds.get(left.card.name, 0.0) + left.seconds
        del self.by_name[flight.name]
        self.arrived(flight, left)
        if all(name in one.left for name in one.wanted):
            self.advance(one, [one.left.pop(name) for name in one.wanted])

    def arrived(self, flight: Flight, left: Left) -> None:
        flight.of.outcome.add(left)
        flight.of.left[flight.name] = left
        self.done += 1
        self.watching.done(self.state(), flight.block, left)

    def state(self) -> State:
        waiting = len(self.ready) + len(self.flying) + len(self.todo)
        each = self.busy / self.ran if self.ran else None
        left = None if each is None else each * waiting / max(1, self.number)
        return State(self.done, self.done + waiting, self.number, left)

    # ---- what breaks -------------------------------------------------------------------------
    def require_scheduler(self, *, at_once: bool = False) -> None:
        """Raises ToolFailed where the scheduler has been gone for a while."""
        now = time.monotonic()
        if self.crew.is_connected:
            self.heard = now
        elif at_once or now - self.heard > GONE_SECONDS:
            raise ToolFailed(
                f"the scheduler of '{self.crew.place}' is gone; what {self.done} blocks left is "
                "kept",
                hint="the same command goes on from there",
            )

    def end(self) -> None:
        """Whatever is still under way ends, there as well."""
        futures = [flight.future for flight in self.flying.values() if flight.future is not None]
        self.flying.clear()
        with suppress(Exception):  # the scheduler may be gone
            self.crew.client.unsubscribe_topic(self.topic)
        if futures:
            self.crew.cancel(futures)


def _or_none(future: Any) -> Any:
    try:
        return future.result()
    except Exception:
        return None


def _short(error: BaseException | None) -> str:
    """Of what Dask raises, in a line."""
    if type(error).__name__ == "KilledWorker":
        return "every worker that had it died"
    text = str(error).strip().partition("\n")[0] or type(error).__name__
    return f"{type(error).__name__}: {text}"
