"""Compiles what a package carries, and learns what its operator looks like; without a GPU."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from workbench.errors import EnvironmentLacks, ToolFailed, UsageError
from workbench.run import machine
from workbench.run.build import worker_stopped
from workbench.run.process import run_worker
from workbench.run.protocol import Broken, Packable, ShipJob
from workbench.run.scratch import scratch_folder
from workbench.shipped.facts import CUBINS
from workbench.study.model import Study, Variant
from workbench.words import INSTALL

SECONDS = 600.0  # the longest silence: all kernels are compiled in it
KINDS = {"UsageError": UsageError, "EnvironmentLacks": EnvironmentLacks}


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
        outcome = run_worker(scratch, job, SECONDS, lambda event: None)
        if (scratch / CUBINS).is_dir():
            shutil.copytree(scratch / CUBINS, cubins)
    if outcome.interrupted:
        raise KeyboardInterrupt
    if broken := outcome.of(Broken):
        error = broken[0].error
        raise KINDS.get(error.kind, ToolFailed)(
            f"{variant.name} cannot be shipped: {error.message}", hint=error.hint
        )
    found = outcome.of(Packable)
    if not found:
        raise worker_stopped(outcome)
    return found[0]
