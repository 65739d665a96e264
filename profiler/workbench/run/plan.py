"""What is to be measured, what came of it, and the jobs that its workers get."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from workbench.ncu.command import range_name
from workbench.run.compilation import params_of, sources_of
from workbench.run.gpu import gpus
from workbench.run.protocol import ErrorText, Learned, SessionsJob, VariantsJob
from workbench.study.config import TimingSettings
from workbench.study.model import Study
from workbench.study.params import parameters_of_derived
from workbench.words import Phase


@dataclass(frozen=True)
class Plan:
    """What to measure at one shape.

    ``checked`` are built and compared with the reference, ``timed`` also timed together in
    sessions, ``captured`` profiled in one ncu. ``everywhere``: checked at every shape of the study,
    and not at those alone that always are; ``others``: at these beside ``shape`` instead.
    ``known`` are timed without another check.
    """

    shape: str
    checked: tuple[str, ...] = ()
    timed: tuple[str, ...] = ()
    captured: tuple[str, ...] = ()
    everywhere: bool = False
    others: tuple[str, ...] | None = None
    known: tuple[str, ...] = ()

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys([*self.checked, *self.timed, *self.captured]))

    @property
    def built(self) -> list[str]:
        """The first worker builds these variants; the others are only profiled."""
        return list(dict.fromkeys([*self.checked, *self.timed]))


@dataclass
class MeasuredPlan:
    """A measured plan has failures by variant with hints, and the seconds of each part of the run.
    The rest of the result is in files.

    A variant that does not support the shape, or whose build was ``refused``, has not failed, and
    is neither timed nor captured. ``unprofiled`` is why ncu captured nothing more. ``learned`` is
    of a job that leaves no evidence.
    """

    failures: dict[str, str] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=dict)
    unprofiled: ErrorText | None = None
    learned: Learned | None = None
    interrupted: bool = False

    @property
    def out(self) -> set[str]:
        return {*self.failures, *self.unsupported, *self.refused}


def variants_job(
    study: Study,
    plan: Plan,
    variants: Iterable[str],
    phases: tuple[Phase, ...],
    *,
    gated: bool = False,
) -> VariantsJob:
    """Return the job of a worker that builds, checks or captures some variants of a plan."""
    names, shape, others = tuple(variants), plan.shape, plan.others
    listed = {n: s for n, s in study.shapes.items() if n != shape and n not in study.derived}
    if plan.everywhere or others is None:
        others = tuple(n for n, s in listed.items() if plan.everywhere or s.always_checked)
    return VariantsJob(
        study=study.name,
        variants=names,
        params=params_of(study, names),
        phases=phases,
        shape=shape,
        check_shapes=(shape, *others),
        reference=study.ladder.primary_reference or "",
        references=tuple(reference.name for reference in study.ladder.references),
        sources=sources_of(study, names),
        ranges={name: range_name(study.name, name, shape) for name in names},
        gated=gated,
        derived=parameters_of_derived(study),
        known=plan.known,
    )


def sessions_job(study: Study, plan: Plan, settings: TimingSettings) -> SessionsJob:
    """Return the job that times a plan, with A/A controls of baseline and primary reference."""
    ladder = study.ladder
    primary = (ladder.primary_reference,) if ladder.primary_reference else ()
    return SessionsJob(
        study=study.name,
        shape=plan.shape,
        params=params_of(study, plan.timed),
        sources=sources_of(study, plan.timed),
        references=tuple(reference.name for reference in ladder.references),
        references_alone=settings.references_alone,
        controls=(ladder.steps[0].variant, *primary),
        sessions=settings.sessions,
        instances=settings.instances,
        rounds=settings.rounds,
        graph_microseconds=settings.graph_microseconds,
        derived=parameters_of_derived(study),
        gpus=tuple(gpus()),
    )
