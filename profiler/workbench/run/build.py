"""Compiles variants for a named architecture, without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from workbench.errors import EnvironmentLacks, ToolFailed, UsageError, WorkbenchError
from workbench.run import machine
from workbench.run.ahead import compilers
from workbench.run.process import WorkerEnd, run_worker
from workbench.run.protocol import Broken, Built, ErrorText, Event, Failed, VariantsJob
from workbench.run.scratch import scratch_folder
from workbench.study.model import Study
from workbench.study.sources import source_files
from workbench.words import INSTALL, Parameter, Phase


def params_of(study: Study, variants: Iterable[str]) -> dict[str, dict[str, Parameter]]:
    """The parameters of a job's variants that differ from their own."""
    return {name: dict(study.variants[name].params) for name in variants}


def sources_of(study: Study, variants: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The names of the files that the fingerprints of a job's variants cover."""
    return {
        name: tuple(path.relative_to(study.folder).as_posix() for path in files)
        for name in variants
        if (files := source_files(study, study.variants[name]))
    }


def build_only(
    study: Study, variants: list[str], arch: str, limit: float, on_event: Callable[[Event], None]
) -> list[Built | Failed]:
    """Compile for ``arch`` in a worker; how it went, variant by variant, in their order.

    One that takes its process along costs only itself: the others go on in a fresh worker.
    Raises EnvironmentLacks without torch or cuda-core, ToolFailed where the worker does not come
    as far as a variant, KeyboardInterrupt when it was stopped.
    """
    if missing := machine.missing_to_run():
        raise EnvironmentLacks(
            f"building needs {' and '.join(missing)}: a GPU it does not need, but variants are "
            "imported, and most of them import torch",
            hint=INSTALL,
        )
    results: dict[str, Built | Failed] = {}
    left = list(variants)
    with scratch_folder(study) as scratch, compilers(scratch, left, partial(_job, study), arch):
        while left:
            outcome = run_worker(scratch, _job(study, left, arch), limit, on_event)
            if outcome.interrupted:
                raise KeyboardInterrupt
            events = [event for event in outcome.events if isinstance(event, Built | Failed)]
            results |= {event.variant: event for event in events}
            if not outcome.finished:
                culprit = _culprit(outcome, limit)
                results[culprit.variant] = culprit
                on_event(culprit)
            left = [name for name in left if name not in results and not outcome.finished]
    return [results[name] for name in variants if name in results]


def _job(study: Study, variants: Sequence[str], arch: str) -> VariantsJob:
    return VariantsJob(
        study=study.name,
        variants=tuple(variants),
        params=params_of(study, variants),
        phases=(Phase.BUILD,),
        arch=arch,
    )


def _culprit(outcome: WorkerEnd, limit: float) -> Failed:
    """The variant that ended the worker."""
    if not outcome.current:
        raise worker_stopped(outcome)
    why = (
        f"takes too long: nothing came for {outcome.waited or limit:g} s"
        if outcome.timed_out
        else f"crashed the compiler's process (exit {outcome.returncode})"
    )
    error = ErrorText(kind="", message=why)
    return Failed(variant=outcome.current, phase=Phase.BUILD, error=error)


def worker_stopped(outcome: WorkerEnd) -> WorkbenchError:
    """For a worker that ended with no variant to blame: its own error, where it tells of one."""
    hint = "`workbench doctor` may say why"
    if broken := outcome.of(Broken):
        error = broken[0].error
        kind = {"UsageError": UsageError, "EnvironmentLacks": EnvironmentLacks}.get(error.kind)
        return (kind or ToolFailed)(f"the worker stopped: {error.message}", hint=error.hint or hint)
    tail = outcome.log.splitlines()[-5:]
    how = "nothing came any more" if outcome.timed_out else f"exit {outcome.returncode}"
    return ToolFailed("\n".join([f"the worker stopped: {how}", *tail]), hint=hint)
