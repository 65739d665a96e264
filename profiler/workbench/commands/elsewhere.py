"""Where the verbs measure: in this process, or on the workers of a place.

    @on_a_place
    def run(options: CheckOptions) -> None:

``--on NAME`` of a verb names a place of ``workbench.toml``. Without it this machine's GPU is used,
or all of them with a worker each, where there are several and Dask is installed.
"""

from __future__ import annotations

import functools
import importlib.util
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import typer

from workbench.commands.progress import Progress, note
from workbench.commands.spending import begin, charge
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.recorded import Evidence
from workbench.judge.deciding import Deciding
from workbench.run import machine
from workbench.run.machine import Gpu
from workbench.run.plan import Measured, Plan
from workbench.run.protocol import Captured, Checked, Failed, Start, Timed, WorkerEvent
from workbench.run.recording import Recorder
from workbench.study.config import Config, for_study
from workbench.study.model import Study
from workbench.study.places import LocalPlace, Place, find_place
from workbench.study.workspace import Workspace, find_workspace

if TYPE_CHECKING:
    from workbench.places.blocks import Block, Left, Outcome
    from workbench.places.underway import State
    from workbench.places.workers import Crew

INTERRUPTED = 130
PLACE: ContextVar[There | None] = ContextVar("place", default=None)


class OnAPlace(Protocol):
    @property
    def on(self) -> str | None: ...

    @property
    def project(self) -> Path | None: ...


Options = TypeVar("Options", bound=OnAPlace)


@dataclass
class There:
    """A place, which is opened when the first thing of it is asked for."""

    place: Place
    stack: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def crew(self) -> Crew:
        from workbench.places.opening import open_place

        return self.stack.enter_context(open_place(self.place, note))

    @property
    def gpu(self) -> Gpu:
        """What its cards are: those of this machine are known without its workers."""
        if isinstance(self.place, LocalPlace) and machine.can_measure():
            from workbench.run.cards import cards, largest_kind

            found = cards()
            for card in found:
                if card.kind == largest_kind(found):
                    return Gpu(card.name, card.driver, card.compute_capability)
        return self.crew.gpu


def on_a_place(run: Callable[[Options], None]) -> Callable[[Options], None]:
    """A verb that measures where its options say."""

    @functools.wraps(run)
    def placed(options: Options) -> None:
        place = _place_of(options.on, options.project)
        if place is None:
            return run(options)
        with ExitStack() as stack:
            token = PLACE.set(There(place, stack))
            try:
                run(options)
            finally:
                PLACE.reset(token)

    return placed


def _place_of(named: str | None, project: Path | None) -> Place | None:
    """None is this process. Raises UsageError for a name that is none, EnvironmentLacks where Dask
    is not installed.
    """
    has_dask = importlib.util.find_spec("distributed") is not None
    if named is not None:
        place = find_place(find_workspace(project).config.places, named)
        if not has_dask:
            from workbench.places.installing import no_dask

            raise no_dask("distributed")
        return place
    if has_dask and shutil.which("nvidia-smi") is not None and machine.can_measure():
        from workbench.run.cards import cards, largest_kind

        found = cards()
        equal = [card for card in found if found and card.kind == largest_kind(found)]
        return LocalPlace() if len(equal) > 1 else None
    return None


def gpu() -> Gpu | None:
    """That of the place, else the one here; None where nothing can be measured."""
    if (there := PLACE.get()) is not None:
        return there.gpu
    return machine.find_gpu() if machine.can_measure() else None


def package_version(name: str) -> str | None:
    """Of a distribution that is installed where it is measured."""
    there = PLACE.get()
    if there is None or isinstance(there.place, LocalPlace):
        return machine.package_version(name)
    return there.crew.package_version(name)


@dataclass(frozen=True)
class Job:
    """A plan of a verb; ``asked`` are the variants that the user meant, ``payer`` is the workspace
    whose budget it is.
    """

    payer: Workspace
    study: Study
    config: Config
    folder: EvidenceFolder
    plan: Plan
    deciding: Deciding = field(default_factory=Deciding)
    asked: tuple[str, ...] = ()

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.study, self.plan.shape, self.folder)


def job_at(
    workspace: Workspace,
    study: Study,
    folder: EvidenceFolder,
    plan: Plan,
    deciding: Deciding,
    asked: Sequence[str] = (),
) -> Job:
    """With the settings that a study asks for."""
    config = for_study(workspace.config, study.ladder)
    return Job(workspace, study, config, folder, plan, deciding, tuple(asked))


def carry_out(there: There, jobs: Sequence[Job]) -> list[Measured]:
    """Measure at a place. Ctrl-C keeps what was finished, ends the work there and leaves with 130.

    Raises GateFailed where the budget does not allow it, before anything is measured.
    """
    from workbench.places.dispatch import Dispatch
    from workbench.places.plan import Errand
    from workbench.places.underway import Watching

    runs = [begin(job.payer, job.evidence, job.asked, there.gpu.name) for job in jobs]
    before = [len(job.folder.timing_files(job.plan.shape)) for job in jobs]
    errands = []
    for job in jobs:
        recorder = Recorder(job.study, job.plan.shape, job.folder, job.plan.variants)
        recorder.predictions()
        recorder.derived_shape()
        errands.append(Errand(job.study, job.config, job.folder, job.plan, job.deciding))
    board = Board(there.place.name)
    watching = Watching(board.done, board.event, note)
    began = time.monotonic()
    with board.progress:
        dispatch = Dispatch(there.crew, errands, sys.argv[1:], watching)
        try:
            outcomes = dispatch.run()
        except KeyboardInterrupt:
            note("interrupted: what was finished is kept; the same command goes on from there")
            raise typer.Exit(INTERRUPTED) from None
        finally:
            for job, run, old, outcome in zip(jobs, runs, before, dispatch.outcomes, strict=True):
                spent = sum(outcome.seconds.values())
                timed = len(job.folder.timing_files(job.plan.shape)) > old
                charge(job.payer, job.evidence, run, spent, place=there.place.name, timed=timed)
    note(f"measured in {time.monotonic() - began:.1f} s{board.told(outcomes)}")
    return [outcome.measured for outcome in outcomes]


class Board:
    """All blocks in one place on stderr: what each card does, how many are done, the time left."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.progress = Progress()
        self.doing: dict[str, str] = {}
        self.counted = ""

    def done(self, state: State, block: Block, left: Left) -> None:
        self.doing.clear()  # whoever works on tells so again
        self.counted = f"{state.done} of {state.total} blocks"
        if state.seconds_left is not None and state.done < state.total:
            self.counted += f", about {state.seconds_left:.0f} s left on {state.workers} cards"
        failed = [name for name in left.failures if name in block.variants]
        for name in failed:
            what = left.failures[name].partition("\n")[0]
            self.progress.line(f"failed {name} at {block.shape}: {what}")
        if left.card is not None:
            where = f"{left.card.uuid[:12]} in {left.seconds:.0f} s"
            self.progress.line(f"{block.words}, on {where} ({self.counted})")

    def event(self, block: Block, where: str, event: WorkerEvent) -> None:
        match event:
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
