"""Blocks on their way: they go to Dask workers, and what comes back is an answer each."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import structs

from workbench.errors import ToolFailed
from workbench.places import blocks, workers
from workbench.places.blocks import Answer, Failed
from workbench.places.underway import Flight
from workbench.places.workers import Crew

WAIT_SECONDS = 1.0  # for something to land
GONE_SECONDS = 45.0  # without a scheduler, after which there is none


class Sending:
    """``task`` is ``workers.task``, or what stands in for it."""

    def __init__(self, crew: Crew, task: Callable[..., bytes]) -> None:
        self.crew, self.task = crew, task
        self.flying: dict[str, list[Flight]] = {}
        self.futures: dict[str, Any] = {}
        self.landed: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.topic = f"workbench-{time.time_ns()}"
        self.attempts = 0
        self.heard = time.monotonic()
        self.is_gone = False

    def begin(self) -> None:
        self.crew.client.subscribe_topic(self.topic, self.landed.put)

    @property
    def number(self) -> int:
        """How many are under way."""
        return sum(map(len, self.flying.values()))

    def send(self, flights: Sequence[Flight], together: int) -> None:
        """So many as one task; one that has failed before goes by itself, and elsewhere."""
        first = [flight for flight in flights if not flight.told]
        tasks = [first[i : i + together] for i in range(0, len(first), together)]
        again = [[flight] for flight in flights if flight.told]
        for group in filter(None, [tasks, *([one] for one in again)]):
            keys = []
            for task in group:
                self.attempts += 1
                keys.append(f"{workers.PREFIX}{task[0].name}-{self.attempts}")
            futures = self.crew.submit(
                workers.together,
                [[flight.data for flight in task] for task in group],
                [[flight.blobs for flight in task] for task in group],
                keys=keys,
                avoid=group[0][0].where if group[0][0].told else "",
                task=self.task,
                kind=self.crew.kind,
                topic=self.topic,
            )
            for task, future in zip(group, futures, strict=True):
                self.flying[future.key], self.futures[future.key] = task, future
                future.add_done_callback(self.landed.put)

    def land(self) -> tuple[list[dict[str, Any]], list[tuple[Flight, Answer]]]:
        """Events that were told, and what has come back: all that is there, else what comes within
        a second.
        """
        try:
            found = [self.landed.get(timeout=WAIT_SECONDS)]
        except queue.Empty:
            return [], []
        with suppress(queue.Empty):
            while True:
                found.append(self.landed.get_nowait())
        events = [one[1] for one in found if isinstance(one, tuple)]
        futures = [one for one in found if not isinstance(one, tuple) and one.key in self.flying]
        done = [one for one in futures if one.status == "finished"]
        answers = dict(zip((one.key for one in done), self.gathered(done), strict=True))
        came: list[tuple[Flight, Answer]] = []
        for future in futures:
            flights = self.flying.pop(future.key)
            del self.futures[future.key]
            if data := answers.get(future.key):
                came += ((f, _decoded(f, d)) for f, d in zip(flights, data, strict=True))
            elif failed := self.failed(future):
                came += ((f, structs.replace(failed, block=f.name)) for f in flights)
            future.release()
        return events, came

    def gathered(self, futures: list[Any]) -> list[Any]:
        """What they give, None where a worker went before it had handed that over."""
        if not futures:
            return []
        try:
            return list(self.crew.client.gather(futures))
        except Exception:  # one by one, to know which
            return [_or_none(one) for one in futures]

    def failed(self, future: Any) -> Failed | None:
        """Why nothing came; None where the scheduler went, and with it all that is under way."""
        where = ""
        if future.status == "error":
            raised = future.exception()
            where = getattr(getattr(raised, "last_worker", None), "address", "")
            why = workers.short(raised)
        elif self.crew.is_connected:
            why = "its worker was lost with what it had measured"
        else:
            self.is_gone = True
            return None
        return Failed(block="", where=where, kind="ToolFailed", message=why, again=True)

    def require_scheduler(self) -> None:
        """Raises ToolFailed where it has been gone for a while, or what was under way with it."""
        now = time.monotonic()
        self.heard = now if self.crew.is_connected else self.heard
        if self.is_gone or now - self.heard > GONE_SECONDS:
            raise ToolFailed(
                f"the scheduler of '{self.crew.place}' is gone; what finished blocks left is kept",
                hint="the same command goes on from there",
            )

    def end(self) -> None:
        """Whatever is still under way ends, there as well."""
        futures = list(self.futures.values())
        self.flying.clear()
        with suppress(Exception):  # the scheduler may be gone
            self.crew.client.unsubscribe_topic(self.topic)
        if futures:
            self.crew.cancel(futures)


def _decoded(flight: Flight, data: bytes) -> Answer:
    try:
        return blocks.decode_answer(data)
    except (ValueError, msgspec.DecodeError) as error:
        why = f"its answer cannot be read: {error}"
        return Failed(block=flight.name, kind="ToolFailed", message=why, again=True)


def _or_none(future: Any) -> Any:
    try:
        return future.result()
    except Exception:
        return None
