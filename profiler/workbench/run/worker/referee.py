"""The referee: it times graphs of other processes, by its own clock, and lets results be proven.

An executor is a process with one variant; the auditor is one with none. Each replays a graph when
the referee opens its gate. The referee holds the secrets that decide the inputs, the clock and the
statistics, and imports no code of the user's. An executor must show the sums of all outputs of a
replay while the clock runs, and nobody asks afterwards: the auditor compares some of them with the
expected results. So it can lie about its time by what the clocks cannot tell apart, and no more.
"""

from __future__ import annotations

import math
import os
import random
import secrets
import signal
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from workbench.children import hide_if_root
from workbench.errors import ToolFailed, WorkbenchError
from workbench.evidence.records import Witness
from workbench.run.protocol import SessionsJob
from workbench.run.worker.loader import Loader
from workbench.run.worker.startup import Parent, forked
from workbench.run.worker.timing import gated
from workbench.run.worker.timing.gated import (
    Audited,
    Auditor,
    Bare,
    Claims,
    GatedExecutor,
    GatedGpu,
    LaunchedGraphs,
    Page,
    Revealed,
    launches,
    layouts_of,
)
from workbench.run.worker.timing.graphs import nodes
from workbench.run.worker.timing.instances import Instance, NotTimed, SessionSetup, Streamed
from workbench.run.worker.timing.neighbours import MOST_CALLS, ROWS_OF_SUMS, SUMMED, Neighbours
from workbench.words import Regime

T = TypeVar("T")
INSTANCES = 2  # of a variant, in its executor: a time depends on where buffers lie
BUILD_SECONDS, AUDITOR_SECONDS, ANSWER_SECONDS = 240.0, 120.0, 10.0
LOOK_SECONDS = 1.0
# Longer than those of sessions: the host's clock tells a replay's time within 1.3 µs (H200).
GRAPH_MICROSECONDS = 400.0
# A round has a replay of variant, anchor and the bare graph of each.
TIMING_SECONDS, FEWEST_ROUNDS, MOST_ROUNDS = 0.4, 6, 40
LONGEST_SECONDS = 2.0  # of long calls, which vary less
SETTLE_ROUNDS = 2
# A replay that is not interrupted has its own time. Who leaves the slowest third of another's moves
# their median by one standard deviation, at most 2 % of what the calls take (H200); X is 10 %.
LEAST_WHOLE, FEWEST_WHOLE = 1 / 3, 3
TRIES = 3  # a machine is busy for a moment; three times as many replays are still few seconds
# Calls to audit, if there is time: who leaves out 1.5 % of them, the least gain that counts, passes
# so many in one of 39,000 runs.
MOST_DRAWN = 700
MOST_BYTES, MOST_TOLD = 1 << 36, 1 << 20  # of outputs, and of how they lie in memory
SECRET_BITS = 20
UNCERTAIN_US, UNCERTAIN = 10.0, 0.002  # of a replay, of which a call has a fortieth of the first
MAD = 1.4826 * 1.2533  # from the median absolute deviation to the standard error of a median, √n


class Lost(ToolFailed):
    """An executor that did not answer, or that could not be built."""


class Lied(Lost):
    """One that says what cannot be: no honest one does."""


class Referee:
    """It judges the variants of one job at one shape, each beside the ``anchor``: the primary
    reference or, where there is none, the first step.
    """

    def __init__(self, job: SessionsJob, anchor: str) -> None:
        self.job, self.anchor = job, anchor
        self.copies = 0  # of what is constant, as many as the auditor has
        self.seed = secrets.randbits(47)
        self.parent = Parent()
        self.auditor: GatedProcess

    def witnesses(
        self, variants: Sequence[str], current: Callable[[str], None]
    ) -> Iterator[Witness]:
        """Yield one for each; call ``current`` with the name of who has the GPU. Auditor and anchor
        begin again where they are lost: a variant may have killed them.
        """
        left, beginnings = list(variants), 0
        while left:
            beginnings += 1
            yield from self.beside_anchor(left, current, beginnings > 1)

    def beside_anchor(
        self, left: list[str], current: Callable[[str], None], again: bool
    ) -> Iterator[Witness]:
        """Take variants from what is ``left`` while auditor and anchor are there."""
        with ExitStack() as stack:
            try:
                self.auditor, self.copies = stack.enter_context(self.started(self.audit_process)), 0
                current(self.anchor)
                anchor = stack.enter_context(self.executor(self.anchor))
                audited = self.audited(anchor, warm=True)
                if audited.why:
                    raise Lost(audited.why)
            except Lost as error:  # no variant's doing, or not twice
                why = f"the referee cannot time {self.anchor}: {error.message}"
                while left and again:
                    yield Witness(variant=left.pop(0), anchor="", unmeasured=why)
                return
            yield with_audits(Witness(variant=self.anchor, anchor=self.anchor), audited)
            while left and self.are_there(anchor):
                name = left.pop(0)
                current(name)
                try:
                    with self.executor(name) as executor:
                        yield self.witness(name, executor, anchor)
                except Lied as error:
                    yield Witness(variant=name, anchor=self.anchor, why=error.message)
                except Lost as error:
                    yield Witness(variant=name, anchor=self.anchor, unmeasured=error.message)

    def are_there(self, anchor: GatedProcess) -> bool:
        try:
            self.auditor.replay(anchor.bare)
            anchor.replay(0)
        except Lost:
            return False
        return True

    def witness(self, variant: str, executor: GatedProcess, anchor: GatedProcess) -> Witness:
        ours, theirs = self.times(executor, anchor)
        time_us, error = ours.call(executor.calls)
        anchor_us, anchor_error = theirs.call(anchor.calls)
        audited = self.audited(executor)
        is_timed = time_us > 0 and anchor_us > 0
        witness = Witness(
            variant=variant,
            anchor=self.anchor,
            calls=executor.calls,
            replays=len(executor.made),
            microseconds=round(time_us, 4) if is_timed else None,
            anchor_microseconds=round(anchor_us, 4) if is_timed else None,
            deviation=round(math.hypot(error / time_us, anchor_error / anchor_us), 5)
            if is_timed
            else None,
        )
        return with_audits(witness, audited)

    def times(
        self, executor: GatedProcess, anchor: GatedProcess
    ) -> tuple[ReplayTimes, ReplayTimes]:
        """Time them again where the referee was interrupted too often: whoever does that to the
        replays of others has a short time, and a busy machine often does it for a moment. Raises
        Lost after so many ``TRIES``.
        """
        for _ in range(TRIES):
            ours, theirs = self.times_once(executor, anchor)
            why = interrupted((ours, theirs))
            if not why:
                for times in kinds_of((ours, theirs)):
                    times[:] = [time_us for time_us in times if not math.isnan(time_us)]
                return ours, theirs
        raise Lost(f"the referee was interrupted {why}, and {TRIES - 1} times before")

    def times_once(
        self, executor: GatedProcess, anchor: GatedProcess
    ) -> tuple[ReplayTimes, ReplayTimes]:
        """Time replays of all kinds in random order; of one that was interrupted, NaN. Of few
        replays most soon are by chance: then there are more.
        """
        ours, theirs = ReplayTimes(), ReplayTimes()
        began, number = time.monotonic(), -SETTLE_ROUNDS
        while not self.is_enough(number, seconds := time.monotonic() - began) or (
            number < MOST_ROUNDS and seconds < LONGEST_SECONDS and interrupted((ours, theirs))
        ):
            graph = number % INSTANCES
            turns: list[tuple[GatedProcess, int, list[float]]] = [
                (executor, graph, ours.variant[graph]),
                (anchor, graph, theirs.variant[graph]),
                (self.auditor, executor.bare, ours.bare),
                (self.auditor, anchor.bare, theirs.bare),
            ]
            for remote, place, times in random.SystemRandom().sample(turns, len(turns)):
                made = remote.replay(place)
                if number >= 0:
                    times.append(math.nan if made.interrupted else made.microseconds)
            number += 1
        return ours, theirs

    def is_enough(self, rounds: int, seconds: float) -> bool:
        """Whether so many rounds are enough, after so many seconds: each instance has one."""
        if seconds > LONGEST_SECONDS:
            return rounds >= INSTANCES
        return rounds >= MOST_ROUNDS or (rounds >= FEWEST_ROUNDS and seconds > TIMING_SECONDS)

    def audited(self, executor: GatedProcess, warm: bool = False) -> Audited:
        """What the auditor finds, of calls that are drawn now."""
        if warm:
            for graph in range(INSTANCES):
                executor.replay(graph)
        made, draw = executor.made, random.SystemRandom()
        executor.command(gated.REVEAL)
        revealed = decoded(executor.received(most=MOST_TOLD), Revealed)
        memory = [executor.received() for _ in revealed.layouts]
        executor.finished()
        drawn = [
            (draw.randrange(len(made)), draw.randrange(executor.calls + 1))
            for _ in range(MOST_DRAWN)
        ]
        told = tuple(each.secret for each in made)
        size = len(made), ROWS_OF_SUMS, SUMMED + 1
        sums = np.frombuffer(b"".join(each.sums for each in made), np.float64).reshape(size)
        answer = self.ask(Claims(executor.calls, told, sums, drawn, revealed, memory))
        assert isinstance(answer, Audited)
        return answer

    def ask(self, question: Bare | Claims) -> object:
        auditor = self.auditor
        auditor.command(gated.ASK)
        try:
            auditor.pipe.send(question)
        except OSError as error:
            raise Lost(f"the auditor is gone: {error}") from None
        answer = auditor.received_object()
        auditor.finished()
        if isinstance(answer, str):
            raise Lost(f"the auditor cannot tell: {answer}")
        return answer

    @contextmanager
    def executor(self, variant: str) -> Iterator[GatedProcess]:
        with self.started(partial(self.execute, variant)) as executor:
            if not self.copies:  # the first executor begins beside the auditor
                self.auditor.until(gated.STATE, gated.READY, BUILD_SECONDS)
                self.copies = self.auditor.received_object()
            executor.pipe.send(self.copies)
            executor.until(gated.STATE, gated.READY, BUILD_SECONDS)
            executor.calls = calls = executor.page.words[gated.CALLS]
            if not 0 < calls <= MOST_CALLS:
                raise Lied(f"it says that its graph has {calls} calls")
            told = decoded(executor.received(most=MOST_TOLD), LaunchedGraphs)
            bare = self.ask(Bare(told, calls))
            assert isinstance(bare, int)
            executor.bare = bare
            yield executor

    @contextmanager
    def started(self, work: Callable[[Page, Connection], None]) -> Iterator[GatedProcess]:
        """Fork a process that works with its page and its end of a pipe, and tells why it fails;
        kill it at the end.
        """
        page, (ours, theirs) = Page(), Pipe()

        def child() -> None:
            # What a fork has inherited, the pipes of other processes among it.
            for number in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
                if number > 2 and number != theirs.fileno():
                    with suppress(OSError):
                        os.close(number)
            try:
                work(page, theirs)
            except BaseException as error:  # users' code may also exit
                why = error.message if isinstance(error, WorkbenchError) else repr(error)
                page.words[gated.STATE] = gated.FAILED
                theirs.send_bytes(why.encode("utf-8", "replace"))
                time.sleep(0.1)

        pid = forked(child)
        theirs.close()
        with socket.socket(fileno=os.dup(ours.fileno())) as end:  # no half message is waited for
            bound = struct.pack("ll", math.ceil(ANSWER_SECONDS), 0)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bound)
        page.hide()
        remote = GatedProcess(page, ours, pid, self.parent)
        try:
            yield remote
        finally:
            remote.stop()

    # ---- in the processes --------------------------------------------------------------------
    def audit_process(self, page: Page, pipe: Connection) -> None:
        hide_if_root()
        study = Loader(self.job).study()
        shape = study.shapes[self.job.shape]
        auditor = Auditor(page, pipe, study, shape, self.seed)
        pipe.send(auditor.inputs.copies)
        auditor.executor.serve(0)

    def execute(self, variant: str, page: Page, pipe: Connection) -> None:
        """Build a variant, send how its outputs lie in memory, and serve."""
        job, loader = self.job, Loader(self.job)
        study, gpu = loader.study(), GatedGpu(page)
        inputs = Neighbours(gpu, study, study.shapes[job.shape], self.seed, pipe.recv())
        setup = SessionSetup(gpu, loader, inputs, GRAPH_MICROSECONDS)
        call_us, instances = 0.0, []
        for _ in range(INSTANCES):
            instances.append(Instance(setup, variant, call_us, (Regime.CHAINED,)))
            call_us = instances[0].each
        if instances[0].unchecked:
            raise NotTimed("no CUDA graph can capture a call")
        if not inputs.names:
            raise NotTimed("inputs() gives no tensor, so that all calls have the same result")
        inputs.renew()
        executor = GatedExecutor(page, pipe, gpu)
        latest = instances[:1]

        def replay(instance: Instance) -> None:
            latest[:] = [instance]
            instance.graphs[Regime.CHAINED].replay()

        executor.replays = [partial(replay, instance) for instance in instances]
        executor.outputs = lambda: latest[0].found
        graphs = [instance.graphs[Regime.CHAINED] for instance in instances]
        launched = [launches(nodes(graph)) for graph in graphs if not isinstance(graph, Streamed)]
        one_call = launches(instances[0].nodes)
        told = LaunchedGraphs(layouts_of(latest[0].found), one_call, tuple(launched))
        pipe.send_bytes(msgspec.json.encode(told))
        executor.serve(instances[0].calls[Regime.CHAINED])


class GatedReplay(NamedTuple):
    """A replay: its graph, microseconds, secret, and the memory of the sums of its calls. The end
    came somewhere in the last of so many microseconds that are ``uncertain``.
    """

    graph: int
    microseconds: float
    secret: int
    sums: bytes
    uncertain: float

    @property
    def interrupted(self) -> bool:
        """Whether somebody stopped the referee, or took its core, when it ought to have looked."""
        return self.uncertain > max(UNCERTAIN_US, UNCERTAIN * self.microseconds)


@dataclass
class GatedProcess:
    """A process that replays graphs, as the referee sees it. An executor's graph has so many
    ``calls``, and the auditor's with the number ``bare`` has none of them.
    """

    page: Page
    pipe: Connection
    pid: int
    parent: Parent
    posted: int = 0
    opened: int = 0
    calls: int = 0
    bare: int = 0
    made: list[GatedReplay] = field(default_factory=list)

    def until(self, word: int, least: int, seconds: float) -> int:
        """Wait until a word of the page is at least so much; return when it was not, at last, in
        nanoseconds. Raises Lost.
        """
        words, began, looked = self.page.words, time.monotonic(), time.perf_counter_ns()
        look = began + LOOK_SECONDS
        while True:
            for _ in range(gated.POLLS):
                this_look = time.perf_counter_ns()
                if words[word] >= least:
                    return looked
                looked = this_look
            if words[gated.STATE] == gated.FAILED:
                raise Lost(self.received(ANSWER_SECONDS).decode("utf-8", "replace"))
            now = time.monotonic()
            if now > look:
                look = now + LOOK_SECONDS
                self.parent.require()
                if not self.pid or os.waitpid(self.pid, os.WNOHANG)[0]:
                    self.pid = 0
                    raise Lost("its process ended")
            if words[gated.EXPIRED] or now > began + seconds:
                raise Lost(f"nothing came for {now - began:.0f} s")

    def received_object(self) -> Any:
        """What a trusted process has sent: the auditor, whose references may be slow."""
        return ForkingPickler.loads(self.received(AUDITOR_SECONDS))

    def received(self, seconds: float | None = None, most: int = MOST_BYTES) -> bytes:
        """Raises Lost for a message that never ends, or is of more bytes than ``most``."""
        seconds = seconds or ANSWER_SECONDS
        if not self.pipe.poll(seconds):
            raise Lost(f"nothing came for {seconds:.0f} s")
        try:
            return self.pipe.recv_bytes(most)
        except EOFError:
            raise Lost("its process ended") from None
        except OSError as error:
            raise Lost(f"its message is broken: {error}") from None

    def command(self, command: int) -> None:
        self.posted += 1
        self.page.words[gated.COMMANDS + self.posted % gated.RING] = command
        self.page.words[gated.POSTED] = self.posted

    def finished(self) -> None:
        """Wait until the last command is done."""
        self.until(gated.SERVED, self.posted, ANSWER_SECONDS)

    def open(self, graph: int) -> GatedReplay:
        """Let the replay at the gate run, and wait for its end."""
        words, ticket = self.page.words, self.opened + 1
        self.until(gated.ARRIVED, ticket, ANSWER_SECONDS)
        self.opened, place = ticket, ticket % gated.RING
        secret = secrets.randbits(SECRET_BITS) << gated.SLOT_BITS | ticket % (1 << gated.SLOT_BITS)
        began = time.perf_counter_ns()
        words[gated.SECRETS + place] = secret
        words[gated.GO] = ticket
        opened = time.perf_counter_ns()
        looked = self.until(gated.ENDED, ticket, ANSWER_SECONDS)
        # The sums are read before the clock stops: the flag may be a lie.
        sums = words[gated.SUMS : gated.SUMS + gated.WORDS].tobytes()
        ended = time.perf_counter_ns()
        uncertain = (opened - began + ended - looked) / 1e3
        made = GatedReplay(graph, (ended - began) / 1e3, secret, sums, uncertain)
        self.made.append(made)
        return made

    def replay(self, graph: int) -> GatedReplay:
        """Replay a graph twice, the second queued behind the first, which warms up."""
        self.command(graph)
        self.command(graph)
        self.open(graph)
        return self.open(graph)

    def stop(self) -> None:
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.pipe.close()


def decoded(told: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(told, type=kind)
    except (msgspec.DecodeError, RecursionError):
        raise Lied(
            "it does not say how its outputs lie in memory, or what its graphs launch"
        ) from None


@dataclass
class ReplayTimes:
    """Microseconds of whole replays, by graph."""

    variant: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    bare: list[float] = field(default_factory=list)

    def call(self, calls: int) -> tuple[float, float]:
        """Return the microseconds that a call adds, and their standard error."""
        medians = [median(times) for times in self.variant.values()]
        errors = [error_of(times) for times in self.variant.values()]
        error = math.hypot(math.hypot(*errors) / len(errors), error_of(self.bare))
        # One call more is ahead of the others.
        return (fmean(medians) - median(self.bare)) / (calls + 1), error / (calls + 1)


def kinds_of(both: Sequence[ReplayTimes]) -> list[list[float]]:
    """List the times of each kind of replay: of each graph, and of the bare graphs."""
    return [kind for times in both for kind in (*times.variant.values(), times.bare)]


def interrupted(both: Sequence[ReplayTimes]) -> str:
    """Say where too many replays of a kind were; "" where enough are left of each."""
    for times in kinds_of(both):
        count = sum(map(math.isnan, times))
        if count and len(times) - count < max(FEWEST_WHOLE, LEAST_WHOLE * len(times)):
            return f"at the end of {count} of {len(times)} replays"
    return ""


def error_of(times: Sequence[float]) -> float:
    middle = median(times)
    return MAD * median(abs(t - middle) for t in times) / math.sqrt(len(times))


def with_audits(witness: Witness, audited: Audited) -> Witness:
    relative = audited.relative if math.isfinite(audited.relative) else None
    return msgspec.structs.replace(
        witness, audits=audited.calls, relative=relative, why=audited.why
    )
