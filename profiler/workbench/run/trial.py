"""One call of a study's baseline and references, to learn what their files do not say; and what a
package carries, which needs no GPU.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from workbench.errors import EnvironmentLacks, GateFailed, UsageError
from workbench.run import machine
from workbench.run.compilation import worker_stopped
from workbench.run.process import run_worker
from workbench.run.protocol import Broken, Learned, Packable, ShipJob, TrialJob
from workbench.run.scratch import scratch_folder
from workbench.shipped.facts import CUBINS
from workbench.study.model import Study, Variant
from workbench.study.sources import virtual_name
from workbench.words import INSTALL

SECONDS = 300.0  # the longest silence: an extension may be compiled in it


def trial_of(
    study: Study, shapes: tuple[str, ...], called: str, *, on_gpu: bool, ranges: bool = False
) -> TrialJob:
    """On the GPU or else the CPU. ``called``: how the user knows what is tried."""
    return TrialJob(
        study=study.name,
        shapes=shapes,
        baseline=study.ladder.steps[0].variant,
        called=called,
        references=tuple(reference.name for reference in study.ladder.references),
        device="cuda" if on_gpu else "cpu",
        ranges=ranges,
    )


def try_once(study: Study, job: TrialJob, builds: Path | None = None) -> Learned:
    """In a process of its own. ``builds`` is a folder that keeps what is compiled for a measurement
    by this process.

    Raises what the study's own code is wrong with, KeyboardInterrupt when it was stopped, and
    EnvironmentLacks without torch.
    """
    if "torch" in machine.missing_to_run():
        raise EnvironmentLacks("torch is not installed, so nothing can be called", hint=INSTALL)
    with scratch_folder(study, builds, extensions=True) as scratch:
        outcome = run_worker(scratch, job, SECONDS, lambda event: None)
    if outcome.interrupted:
        raise KeyboardInterrupt
    if broken := outcome.of(Broken):
        told = broken[0].error
        named = told.message.replace(virtual_name(study.name, ""), "")  # as the user's file is
        raise structs.replace(told, message=named).error(UsageError)
    tried = outcome.of(Learned)
    if not tried:
        if outcome.timed_out:
            raise GateFailed(
                f"nothing came back for {SECONDS:g} s", hint="does it wait for something?"
            )
        raise worker_stopped(outcome)
    return tried[0]


SHIP_SECONDS = 600.0  # the longest silence: all kernels are compiled in it


def packable(
    study: Study,
    variant: Variant,
    reference: Variant | None,
    archs: Sequence[str],
    shapes: Sequence[str],
    cubins: Path,
) -> Packable:
    """``cubins`` is the folder that gets the cubins and their index.

    Raises what is wrong with the variant or the study, EnvironmentLacks without torch or cuda-core,
    KeyboardInterrupt when it was stopped.
    """
    if missing := machine.missing_to_run():
        raise EnvironmentLacks(
            f"shipping needs {' and '.join(missing)}: kernels are compiled, on the CPU",
            hint=INSTALL,
        )
    job = ShipJob(
        study=study.name,
        variant=variant.name,
        params=dict(variant.params),
        archs=tuple(archs),
        shapes=tuple(shapes),
        reference=reference.name if reference else "",
        reference_params=dict(reference.params) if reference else {},
    )
    with scratch_folder(study) as scratch:
        outcome = run_worker(scratch, job, SHIP_SECONDS, lambda event: None)
        if (scratch / CUBINS).is_dir():
            shutil.copytree(scratch / CUBINS, cubins)
    if outcome.interrupted:
        raise KeyboardInterrupt
    if broken := outcome.of(Broken):
        told = broken[0].error
        why = f"{variant.name} cannot be shipped: {told.message}"
        raise structs.replace(told, message=why).error()
    found = outcome.of(Packable)
    if not found:
        raise worker_stopped(outcome)
    return found[0]
