"""Compiles variants for a named architecture, without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from workbench.errors import EnvironmentLacks
from workbench.run import machine
from workbench.run.process import WorkerEnd, run_worker
from workbench.run.protocol import Built, ErrorText, Event, Failed, VariantsJob
from workbench.run.scratch import scratch_folder
from workbench.study.model import Study
from workbench.words import INSTALL, Parameter, Phase


def params_of(study: Study, variants: Iterable[str]) -> dict[str, dict[str, Parameter]]:
    """The parameters of a job's variants that differ from their own."""
    return {name: dict(study.variants[name].params) for name in variants}


def build_only(
    study: Study, variants: list[str], arch: str, limit: float, on_event: Callable[[Event], None]
) -> list[Built | Failed]:
    """Compile for ``arch`` in a worker; how it went, variant by variant.

    Raises EnvironmentLacks without torch or cuda-core, KeyboardInterrupt when it was stopped.
    """
    if missing := machine.missing_to_run():
        raise EnvironmentLacks(f"building needs {' and '.join(missing)}", hint=INSTALL)
    job = VariantsJob(
        study=study.name,
        variants=tuple(variants),
        params=params_of(study, variants),
        phases=(Phase.BUILD,),
        arch=arch,
    )
    with scratch_folder(study) as scratch:
        outcome = run_worker(scratch, job, limit, on_event)
    if outcome.interrupted:
        raise KeyboardInterrupt
    results = [event for event in outcome.events if isinstance(event, Built | Failed)]
    return results if outcome.finished else [*results, _culprit(outcome)]


def _culprit(outcome: WorkerEnd) -> Failed:
    """The variant that ended the worker."""
    why = "takes too long" if outcome.timed_out else "crashed the compiler's process"
    error = ErrorText(kind="", message=why)
    return Failed(variant=outcome.current, phase=Phase.BUILD, error=error)
