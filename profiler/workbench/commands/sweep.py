"""``workbench sweep``: a variant at all combinations of its parameters, or over sizes."""

from __future__ import annotations

from dataclasses import dataclass

import typer

from workbench.commands import executor, sizes
from workbench.commands.measuring import ensure, task
from workbench.commands.options import SweepOptions
from workbench.commands.printing import output, show_json, tell
from workbench.commands.progress import Progress
from workbench.commands.report import write_document
from workbench.commands.streams import note
from workbench.commands.target import (
    Target,
    find_study,
    in_place,
    profiled_shapes,
    require_arch,
    shown_path,
    target_at,
)
from workbench.errors import EnvironmentLacks, UsageError
from workbench.evidence.records import Build, Provenance
from workbench.judge.snapshot import at_one_shape
from workbench.judge.sweep import Sweep, judge_builds, judge_sweep
from workbench.render.document import sweep as document
from workbench.run.build import build_only
from workbench.run.plan import Plan
from workbench.run.protocol import Built, Failed
from workbench.study.config import Config, for_study
from workbench.study.model import Study
from workbench.study.params import base_name, declared, expanded, find_variant, is_space, names_of
from workbench.study.shapes import Picked
from workbench.study.workspace import Workspace, including
from workbench.words import Origin, Parameter

COMPILER_ALONE = "--build-only shows what the compiler makes of every combination, without a GPU"


@dataclass(frozen=True)
class Space:
    """What was typed, the variant with its own parameters, and the combinations: the values of each
    by its name, those of ``base`` first.
    """

    text: str
    base: str
    axes: dict[str, tuple[Parameter, ...]]
    combinations: dict[str, dict[str, Parameter]]


def space_of(study: Study, text: str) -> tuple[Study, Space]:
    """The study with all variants of a space. Raises UsageError for what is none."""
    axes = expanded(study.folder, text, study.variants)
    base = base_name(text)
    study, names = including(study, [base, *names_of(base, axes)])
    own = declared(find_variant(study.folder, base, study.variants).module)
    values = {name: {**own, **dict(study.variants[name].params)} for name in names}
    return study, Space(text, base, {axis.name: axis.values for axis in axes}, values)


def measured(target: Target, space: Space, *, fresh: bool) -> Origin:
    """All combinations that pass the gates timed together, then the best once more beside the
    default, both of them profiled.
    """
    reference = target.study.ladder.primary_reference
    wanted = [*space.combinations, *([reference] if reference else [])]
    ensured = ensure(target, wanted, fresh=fresh, timed=True, refusing=True)
    if not target.live:
        return ensured.source
    found = judged(target, space, ensured.source)
    todo = follow_up(target, found, reference)
    if not todo.variants:
        return ensured.source
    executor.carry_out([task(target, todo)])
    return Origin.MEASURED


def follow_up(target: Target, found: Sweep, reference: str) -> Plan:
    """The best and the default once more, where the best was picked and that was not yet done; and
    their captures, at a shape where there are any.
    """
    if found.best is None:
        return Plan(target.shape)
    pair = list(dict.fromkeys([found.base, found.best.variant]))
    pair = [name for name in pair if any(c.variant == name for c in found.timed)]
    again = found.default is not None and found.was_picked and found.again is None
    timed = tuple(filter(None, (*pair, reference))) if again else ()
    evidence = target.evidence()
    wanted = target.study.shapes[target.shape].captured
    captured = [name for name in pair if wanted and not evidence.capture_index(name).current]
    return Plan(target.shape, timed=timed, captured=tuple(captured))


def judged(target: Target, space: Space, source: Origin) -> Sweep:
    evidence = at_one_shape(target.evidence(), list(space.combinations), captures=True)
    return judge_sweep(
        evidence,
        space.base,
        space.combinations,
        axes=space.axes,
        gates=for_study(target.workspace.config, target.study.ladder).gates,
        study=target.study.name,
        gpu=target.folder.gpu,
        source=source,
        reference=target.study.ladder.primary_reference,
    )


@executor.on_target
def run(options: SweepOptions) -> None:
    swept(options)


def swept(options: SweepOptions) -> None:
    """On the place that the verb was given."""
    workspace, study = find_study(options.project, options.study)
    if not any(map(is_space, options.variants)):
        return sizes.run(options, workspace, study)
    if mixed := [name for name in options.variants if not is_space(name)]:
        raise UsageError(
            f"'{mixed[0]}' is one variant, and is swept with nothing",
            hint="give parameters several values, or leave it out",
        )
    if options.build_only:
        return run_build_only(options, study, workspace.config)
    out = output(options)
    found: list[Sweep] = []
    for picked in profiled_shapes(study, options.shape):
        for text in options.variants:
            whole, space = space_of(picked.study, text)
            target = measurable(workspace, Picked(whole, picked.name))
            source = measured(target, space, fresh=options.fresh)
            sweep = judged(target, space, source)
            if not target.live and len(sweep.timed) < 2:
                raise EnvironmentLacks(
                    f"no sweep of {text} is on record at {sweep.shape}, and nothing can be "
                    "measured here",
                    hint=COMPILER_ALONE,
                )
            if found and not options.json:
                out.gap()
            found.append(sweep)
            if not options.json:
                out.show(*document.sweep_view(sweep))
            write(target, space, sweep)
    if options.json:
        show_json({"sweeps": found})
    if not all(sweep.timed for sweep in found):
        raise typer.Exit(1)


def measurable(workspace: Workspace, picked: Picked) -> Target:
    """Raises EnvironmentLacks as ``target_at``, and says what works all the same."""
    try:
        return target_at(workspace, picked)
    except EnvironmentLacks as error:
        raise EnvironmentLacks(error.message, hint=COMPILER_ALONE) from None


def write(target: Target, space: Space, sweep: Sweep) -> None:
    """The table, in a folder of its own."""
    folder = target.workspace.reports(target.study, target.shape, ("sweep", space.text))
    blocks = document.sweep_view(sweep)
    path = write_document(target.workspace, folder, f"Sweep: {space.text}", blocks)
    note(f"wrote {shown_path(path)}")


def run_build_only(options: SweepOptions, study: Study, config: Config) -> None:
    """What the compiler makes of every combination, and whether its gate lets it pass."""
    require_arch(options.arch)
    found = [compiled(*space_of(study, text), options.arch, config) for text in options.variants]
    tell(
        options,
        lambda: {"sweeps": found},
        lambda: (block for each in found for block in document.built_view(each)),
    )
    if not any(c.passes for each in found for c in each.combinations):
        raise typer.Exit(1)


def compiled(study: Study, space: Space, arch: str, config: Config) -> Sweep:
    with Progress() as progress:
        names, limit = list(space.combinations), config.limits.seconds_per_step
        events = build_only(study, names, arch, limit, progress)
    return judge_builds(
        {event.variant: as_build(event, study, arch) for event in events},
        space.base,
        space.combinations,
        axes=space.axes,
        gates=config.gates,
        study=study.name,
        arch=arch,
    )


def as_build(event: Built | Failed, study: Study, arch: str) -> Build:
    """As a record, of nothing that is on disk."""
    built = event if isinstance(event, Built) else None
    return Build(
        variant=event.variant,
        fingerprint="",
        sources=(),
        arch=arch,
        kernels=built.kernels if built else (),
        warnings=built.warnings if built else (),
        error=in_place(event.error.message, study) if isinstance(event, Failed) else "",
        provenance=Provenance(date=""),
    )
