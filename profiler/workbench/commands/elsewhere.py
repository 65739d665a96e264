"""Where the verbs measure: in this process, or on the workers of a place.

    @on_a_place
    def run(options: CheckOptions) -> None:

``--on NAME`` of a verb names a place of ``workbench.toml``. Without it this machine's GPU is used,
or all of them with a worker each, where there are several and Dask is installed.
"""

from __future__ import annotations

import functools
import importlib.util
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import typer

from workbench.commands.board import Board
from workbench.commands.progress import note
from workbench.commands.spending import begin, charge
from workbench.errors import EnvironmentLacks, ToolFailed
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.recorded import Evidence
from workbench.judge.deciding import Deciding
from workbench.run import machine
from workbench.run.gpu import Gpu
from workbench.run.plan import Measured, Plan
from workbench.run.protocol import (
    Broken,
    CeilingsJob,
    TrialJob,
)
from workbench.run.recording import Recorder, typed
from workbench.run.trial import error_of
from workbench.study.config import Config
from workbench.study.model import Study
from workbench.study.places import LocalPlace, Place, find_place
from workbench.study.workspace import Workspace, find_workspace

if TYPE_CHECKING:
    from workbench.places.blocks import Outcome
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
    def is_lost(self) -> bool:
        """Whether its scheduler is gone."""
        return "crew" in vars(self) and not self.crew.is_connected

    @property
    def gpu(self) -> Gpu:
        """What its cards are: those of this machine are known without its workers."""
        if isinstance(self.place, LocalPlace) and machine.can_measure():
            from workbench.run.cards import cards, largest_kind

            found = cards()
            for card in found:
                if card.kind == largest_kind(found):
                    return card
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
    if has_dask and machine.can_measure():
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


def is_remote() -> bool:
    """Whether other machines measure, with packages of their own."""
    there = PLACE.get()
    return there is not None and not isinstance(there.place, LocalPlace)


def package_version(name: str) -> str | None:
    """Of a distribution that is installed where it is measured."""
    there = PLACE.get()
    if there is None or not is_remote():
        return machine.package_version(name)
    return there.crew.package_version(name)


@dataclass(frozen=True)
class Job:
    """A plan of a verb; ``payer`` is the workspace whose budget it is. ``instead`` of the plan it
    may be a job that measures no variants.
    """

    payer: Workspace
    study: Study
    config: Config
    folder: EvidenceFolder
    plan: Plan
    deciding: Deciding = field(default_factory=Deciding)
    instead: TrialJob | CeilingsJob | None = None

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.study, self.plan.shape, self.folder)


def carry_out(there: There, jobs: Sequence[Job]) -> list[Measured]:
    """Measure at a place. Ctrl-C keeps what was finished, ends the work there and leaves with 130.

    Raises GateFailed where the budget does not allow it, before anything is measured.
    """
    board, began = Board(there.place.name), time.monotonic()
    try:
        outcomes = dispatched(there, jobs, board)
    except KeyboardInterrupt:
        note("interrupted: what was finished is kept; the same command goes on from there")
        raise typer.Exit(INTERRUPTED) from None
    note(f"measured in {time.monotonic() - began:.1f} s{board.told(outcomes)}")
    return [outcome.measured for outcome in outcomes]


def dispatched(there: There, jobs: Sequence[Job], board: Board) -> list[Outcome]:
    """As ``carry_out``, but raises KeyboardInterrupt after Ctrl-C, and says nothing at the end."""
    from workbench.places.dispatch import Dispatch
    from workbench.places.plan import Errand
    from workbench.places.underway import Watching

    runs = [begin(job.payer, job.evidence, there.gpu.name) for job in jobs]
    errands = []
    for job in jobs:
        if job.instead is None:
            recorder = Recorder(job.study, job.plan.shape, job.folder, job.plan.variants)
            recorder.predictions()
            recorder.derived_shape()
        given = (job.study, job.config, job.folder, job.plan, job.deciding, job.instead)
        errands.append(Errand(*given))
    watching = Watching(board.done, board.event, note)
    with board.progress:
        dispatch = Dispatch(there.crew, errands, typed(), watching)
        try:
            return dispatch.run()
        finally:
            for job, run, outcome in zip(jobs, runs, dispatch.outcomes, strict=True):
                spent = sum(outcome.seconds.values())
                charge(job.payer, run, spent, place=there.place.name)


def answered(there: There, job: Job, board: Board) -> Measured:
    """Of a job that is one block. Raises the error in which it ended, and KeyboardInterrupt after
    Ctrl-C.
    """
    (outcome,) = dispatched(there, [job], board)
    found = outcome.measured
    if not isinstance(found.told, Broken):
        return found
    error = error_of(found.told)
    if isinstance(error, EnvironmentLacks | ToolFailed):  # of that machine, and not of this one
        doctor, place = "`workbench doctor", there.place.name
        hint = error.hint.replace(f"{doctor}`", f"{doctor} --on {place}`")
        raise type(error)(f"at '{place}': {error.message}", hint=hint)
    raise error
