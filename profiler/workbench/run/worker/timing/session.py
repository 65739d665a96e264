"""One session: a process with several instances of every variant, timed in rounds.

A round is every graph of every instance once, in a new random order, the GPU never waiting.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from statistics import median
from types import ModuleType

import torch
from msgspec import structs

from workbench.evidence.records import Audit, Call, Session
from workbench.run.gpu import Gauge
from workbench.run.protocol import Round, SessionsJob
from workbench.run.worker.deviation import compare
from workbench.run.worker.device import gpu_uuid
from workbench.run.worker.guard import Guard
from workbench.run.worker.output import expected_of, paired, refuse_kind
from workbench.run.worker.timing.instances import (
    SLOW_CALL,
    Group,
    Instance,
    Loader,
    SessionSetup,
    SummedCall,
)
from workbench.run.worker.timing.neighbours import Neighbours, wrong_sums
from workbench.run.worker.timing.rounds import MOST_INSTANCES, Rounds, series_of
from workbench.run.worker.timing.timed_gpu import EmptyCalls, TimedGpu, switch_contexts
from workbench.study.model import Tolerance, tolerance_at
from workbench.words import HEADLINE

MEMORY_USED = 0.8  # of the free memory that instances may take: audits need the reference's
CONTEXT_BYTES = 1 << 29  # that the context of ``switch_contexts`` may take
# A GPU that runs into its power limit needs about a second to settle. It is warm when the clock of
# a stretch of rounds is that of the stretch before, within 1 %.
STEADY_WITHIN = 0.01
STRETCH_SECONDS = 0.5
POWER_SECONDS = 1.0
LONG_MICROSECONDS = 40.0  # shorter calls draw less power, since launches take part of the time
LONGEST_WARM_UP_SECONDS = 4.0
SHORT_WARM_UP_SECONDS = 0.1  # of short calls, for what is loaded at the first replays
# One has marked graphs, the next none: to launch one again while it runs would wait for it, and
# nobody would tell who is at work.
WARM_UP_ROUNDS = -2, -1
LONG_ROUND_SECONDS, FEWEST_ROUNDS = 1.0, 4  # more rounds do not narrow the interval of sessions
POWER = "power"  # in the names of NVML's reasons for a lower clock
REFERENCES_ALONE, STEPS_ALONE = 2, 3  # the fastest: each costs up to 3 s
LOOKS = 2  # at a variant that is due: the output that is kept, and the sums of a drawn call
AUDIT_SECONDS = 1.5  # after which an audit begins only if it is due in this session


@dataclass(frozen=True)
class Listeners:
    """The functions that a session calls: ``fail`` for variants that cannot be timed, ``current``
    with who is at work, ``heard`` with its progress, ``sent`` with each sample.
    """

    fail: Callable[[str, BaseException], None]
    current: Callable[[str], None] = lambda name: None
    heard: Callable[[Round], None] = lambda progress: None
    sent: Callable[[tuple[int, str, float]], None] = lambda sample: None


class TimingProcess:
    """This process times a job's variants, and tells ``listeners`` of it."""

    CHANGING = ("round", "wanted", "instances", "out", "calls", "throttled", "reasons")

    def __init__(
        self,
        job: SessionsJob,
        study: ModuleType,
        loader: Loader,
        guard: Guard,
        listeners: Listeners,
        cool: bool = False,
    ) -> None:
        """``cool``: the last session of these variants never ran into the power limit."""
        self.job, self.study, self.cool = job, study, cool
        self.shape = study.shapes[job.shape]
        self.guard, self.fail, self.current = guard, listeners.fail, listeners.current
        self.heard, self.sent = listeners.heard, listeners.sent
        self.wanted = job.rounds
        self.round = Round(session=0, alone=False, number=0, rounds=job.rounds)
        gpu = TimedGpu()
        inputs = Neighbours(gpu, study, self.shape)
        self.setup = SessionSetup(gpu, loader, inputs, job.graph_microseconds)
        self.instances: list[Instance] = []
        self.out: set[str] = set()
        self.calls: dict[str, list[Call]] = {}  # the nodes of one, of each instance
        self.gauge = Gauge(gpu_uuid())
        self.throttled: list[bool] = []
        self.reasons: set[str] = set()
        self.guard.integrity.protect(self, gpu, self.setup, inputs)

    def session(self, number: int, variants: Sequence[str], alone: bool) -> Session:
        self.round = structs.replace(self.round, session=number, alone=alone)
        made = self.build(variants)
        setup = self.setup
        rounds = Rounds(setup.gpu, self.instances, setup.with_neighbours, self.tell, self.sent)
        if self.instances:
            kinds = {instance.parts for instance in self.instances if instance.parts}
            empty = {parts: EmptyCalls(self.setup.gpu, parts) for parts in kinds}
            switch_contexts()
            offsets = {parts: calls.offset() for parts, calls in empty.items()}
            for instance in self.instances:
                instance.offset = offsets.get(instance.parts, 0.0)
            self.warm_up(rounds)
            self.rounds(rounds)
        self.guard.require_whole()
        self.setup.inputs.renew()
        audits = [*self.audits(number, self.instances)]
        if self.is_power_limited and not alone:
            audits += self.kernels_alone(rounds)
        load = self.gauge.load()
        return Session(
            number=number,
            instances=made,
            series=series_of(rounds, self.instances),
            audits=tuple(audits),
            alone=alone,
            temperature_c=load.temperature_c,
            throttled=sum(self.throttled) / len(self.throttled) if self.throttled else None,
            reasons=tuple(sorted(self.reasons)),
        )

    # ---- building ----------------------------------------------------------------------------
    def build(self, variants: Sequence[str]) -> int:
        """Build as many instances of each group as memory allows, and return their number."""
        groups = [Group(name) for name in variants]
        groups += [Group(name, control=True) for name in variants if name in self.job.controls]
        call_times: dict[str, float] = {}
        _room = torch.empty(CONTEXT_BYTES, dtype=torch.uint8, device="cuda")  # until all are built
        free = torch.cuda.mem_get_info()[0]
        most = min(self.job.instances, max(1, MOST_INSTANCES // len(groups)))
        for layer in range(most):
            for group in random.sample(groups, len(groups)):
                slow = call_times.get(group.variant, 0.0) > SLOW_CALL and layer > 0
                if group.variant not in self.out and not slow:
                    self.one(group, call_times)
            used = free - torch.cuda.mem_get_info()[0]
            if used * (layer + 2) / (layer + 1) > MEMORY_USED * free:
                return layer + 1
        return most

    def one(self, group: Group, call_times: dict[str, float]) -> None:
        """A variant that has an instance stays if there is no memory for another."""
        name = group.variant
        self.current(name)
        try:
            with self.guard.watching(name):
                instance = Instance(self.setup, group, call_times.get(name, 0.0))
                nodes = instance.nodes
                if not instance.unchecked:
                    self.calls.setdefault(name, []).append(nodes)
            instance.require_nodes()
            self.guard.integrity.protect(instance)
        except BaseException as error:  # users' code may also exit
            if name not in call_times or not isinstance(error, torch.cuda.OutOfMemoryError):
                self.drop(name, error)
        else:
            call_times[name] = instance.each
            self.instances.append(instance)
        self.current("")

    def drop(self, name: str, error: BaseException) -> None:
        self.out.add(name)
        self.guard.integrity.release(one for one in self.instances if one.group.variant == name)
        self.instances = [one for one in self.instances if one.group.variant != name]
        self.fail(name, error)

    # ---- timing ------------------------------------------------------------------------------
    def warm_up(self, rounds: Rounds) -> None:
        """Run rounds until the clock no longer falls, if calls are long enough to lower it."""
        call_microseconds = median(one.each for one in self.instances)
        long = call_microseconds > LONG_MICROSECONDS and not self.cool
        least = POWER_SECONDS if long else SHORT_WARM_UP_SECONDS
        began = time.monotonic()
        before = 0.0
        while (passed := time.monotonic() - began) < LONGEST_WARM_UP_SECONDS:
            rounds.clock.clear()
            stretch = time.monotonic() + (STRETCH_SECONDS if long else SHORT_WARM_UP_SECONDS)
            while True:
                for number in WARM_UP_ROUNDS:
                    rounds.run(number)
                if time.monotonic() > stretch:
                    break
            now = sum(rounds.clock) / len(rounds.clock) if rounds.clock else 0.0
            if passed >= least and abs(now - before) < STEADY_WITHIN * now:
                return
            before = now

    def rounds(self, rounds: Rounds) -> None:
        number = 0
        while number < self.wanted:
            rounds.run(number)
            self.note_throttling()
            number += 1
            if number > 2 and rounds.seconds > LONG_ROUND_SECONDS:
                self.wanted = min(self.wanted, FEWEST_ROUNDS)
        rounds.finish()

    def tell(self, number: int, instance: int | None) -> None:
        """Report progress once a round, and again with the variant at work in a long one."""
        variant = "" if instance is None else self.instances[instance].group.variant
        now = structs.replace(self.round, number=number, rounds=self.wanted, variant=variant)
        if now != self.round or variant:
            self.round = now
            self.heard(now)

    def note_throttling(self) -> None:
        load = self.gauge.load()
        if load.throttled is not None:
            self.throttled.append(load.throttled)
            self.reasons.update(load.reasons)

    @property
    def is_power_limited(self) -> bool:
        return any(POWER in reason.lower() for reason in self.reasons)

    def kernels_alone(self, rounds: Rounds) -> Iterator[Audit]:
        """Each of those that count alone, since the clock in turn depends on who else runs. Its
        calls are audited as those of rounds.
        """
        self.round = structs.replace(self.round, kernel_alone=True)
        places = self.counting(rounds)
        for place in random.sample(places, len(places)):
            rounds.alone(place)
            self.setup.inputs.renew()
            yield from self.audits(self.round.session, [self.instances[place]])
        self.guard.require_whole()

    def counting(self, rounds: Rounds) -> list[int]:
        """An instance of the primary reference, of the fastest others, of the fastest steps in turn
        and of the last step; in the first sessions of the same variants.
        """
        first: dict[str, int] = {}
        for place, instance in enumerate(self.instances):
            if not instance.group.control and not instance.unchecked:
                first.setdefault(instance.group.variant, place)
        fastest = sorted(
            first, key=lambda name: median(rounds.columns[first[name], HEADLINE].microseconds)
        )
        references = [name for name in fastest if name in self.job.references]
        steps = [name for name in fastest if name not in self.job.references]
        primary = [name for name in references if name in self.job.controls]
        last = [name for name in self.job.params if name in steps][-1:]
        names = (*primary, *references[:REFERENCES_ALONE], *steps[:STEPS_ALONE], *last)
        if self.job.kernels_alone and self.round.session < self.job.sessions:
            names = self.job.kernels_alone
        return [first[name] for name in dict.fromkeys(names) if name in first]

    # ---- auditing ----------------------------------------------------------------------------
    def audits(self, number: int, instances: Sequence[Instance]) -> Iterator[Audit]:
        """Audit as many outputs as time and memory allow, one of every variant before the second of
        any. Each session begins with another variant. Some audits are due whatever the time, so
        that all sessions together have looked at every variant.

        An audit compares an instance's kept output, or the sums of a call that is drawn when all
        have run.
        """
        by_variant: dict[str, list[Callable[[], tuple[float, str]]]] = {}
        bound = tolerance_at(self.study.tolerance, self.shape)
        for instance in random.sample(instances, len(instances)):
            drawn = None if self.setup.inputs.constant else instance.any_call()
            by_variant.setdefault(instance.group.variant, []).extend(
                (
                    partial(self.audit, instance, bound),
                    partial(self.audit_sums, instance, drawn, bound),
                )
            )
        sessions = self.job.sessions
        first = number % sessions * len(by_variant) // sessions
        due = math.ceil(len(by_variant) / sessions)
        names = sorted(by_variant)
        order = [*names[first:], *names[:first]]
        results_by_variant: dict[str, list[tuple[float, str]]] = {}
        end = time.monotonic() + AUDIT_SECONDS
        for turn in range(max(map(len, by_variant.values()), default=0)):
            for place, name in enumerate(order):
                is_due = turn < LOOKS and place < due
                if turn < len(by_variant[name]) and (is_due or time.monotonic() < end):
                    with suppress(torch.cuda.OutOfMemoryError):  # of the reference, beside them all
                        results_by_variant.setdefault(name, []).append(by_variant[name][turn]())
        for name, results in results_by_variant.items():
            worst = max(relative for relative, _ in results)
            yield Audit(
                variant=name,
                outputs=len(results),
                relative=worst if math.isfinite(worst) else None,
                why=next((why for _, why in results if why), ""),
            )

    def audit(self, instance: Instance, bound: Tolerance) -> tuple[float, str]:
        """The relative error of its kept output, and what is wrong with it or with its inputs."""
        inputs = instance.inputs_of_kept()
        expected, outputs = expected_of(self.study.reference(**inputs)), instance.found
        relative, wrong = 0.0, ""
        for name, (mine, its) in paired(outputs, expected).items():
            out, wanted = outputs.tensors[mine], expected.tensors[its]
            error, why = math.nan, refuse_kind(out, wanted)
            if not why:
                _, error, why = compare(out, wanted, bound)
            relative = relative if math.isnan(relative) or error <= relative else error
            wrong = wrong or (f"'{name}': {why}" if name and why else why)
        del inputs, expected, wanted
        changed = instance.changed_input()
        why = f"the output of a timed call: {wrong}" if wrong else ""
        return relative, why or (changed and f"changes its input '{changed}' in a timed call")

    def audit_sums(
        self, instance: Instance, drawn: SummedCall | None, bound: Tolerance
    ) -> tuple[float, str]:
        """Audit the sums of a call that looked like any other while it ran. The signs are
        independent of the errors, so that errors within the bound hardly ever add up to SIGMAS
        times it.
        """
        drawn = drawn or instance.any_call()
        calls = instance.calls[HEADLINE]
        inputs = self.setup.inputs.written(drawn.replay, drawn.call, calls)
        expected = expected_of(self.study.reference(**inputs))
        why = wrong_sums(drawn.sums, drawn.key, instance.found, expected, bound)
        return (math.nan, f"the output of a timed call: {why}") if why else (0.0, "")
