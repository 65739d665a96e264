"""One call of a study's baseline and references, to learn what their files do not say."""

from __future__ import annotations

from pathlib import Path

from workbench.errors import EnvironmentLacks, GateFailed, ToolFailed, UsageError
from workbench.run import machine
from workbench.run.build import worker_stopped
from workbench.run.process import run_worker
from workbench.run.protocol import Broken, Learned, TrialJob
from workbench.run.scratch import scratch_folder
from workbench.study.model import Study
from workbench.study.sources import virtual_name
from workbench.words import INSTALL

KINDS = {kind.__name__: kind for kind in (UsageError, EnvironmentLacks, GateFailed, ToolFailed)}
SECONDS = 300.0  # the longest silence: an extension may be compiled in it


def try_once(
    study: Study, shapes: tuple[str, ...], called: str, builds: Path, *, on_gpu: bool
) -> Learned:
    """In a process of its own, on the GPU or else the CPU. ``called``: how the user knows what is
    tried. ``builds`` is a folder that keeps extensions for a measurement.

    Raises what the study's own code is wrong with, KeyboardInterrupt when it was stopped, and
    EnvironmentLacks without torch.
    """
    if "torch" in machine.missing_to_run():
        raise EnvironmentLacks("torch is not installed, so nothing can be called", hint=INSTALL)
    job = TrialJob(
        study=study.name,
        shapes=shapes,
        baseline=study.ladder.steps[0].variant,
        called=called,
        references=tuple(reference.name for reference in study.ladder.references),
        device="cuda" if on_gpu else "cpu",
    )
    with scratch_folder(study, builds, extensions=True) as scratch:
        outcome = run_worker(scratch, job, SECONDS, lambda event: None)
    if outcome.interrupted:
        raise KeyboardInterrupt
    if broken := outcome.of(Broken):
        error = broken[0].error
        told = error.message.replace(
            virtual_name(study.name, ""), ""
        )  # as the user's file is called
        raise KINDS.get(error.kind, UsageError)(told, hint=error.hint)
    tried = outcome.of(Learned)
    if not tried:
        if outcome.timed_out:
            raise GateFailed(
                f"nothing came back for {SECONDS:g} s", hint="does it wait for something?"
            )
        raise worker_stopped(outcome)
    return tried[0]
