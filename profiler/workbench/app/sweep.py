"""A variant at all combinations of its parameters, or variants over sizes."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from workbench.app.executor import Executor
from workbench.app.measure import Wanted, ensure, ensure_each, task
from workbench.app.report import write_document
from workbench.app.target import Target, of_one_gpu, shown_path, target_at
from workbench.errors import EnvironmentLacks, UsageError
from workbench.evidence.store import measured_ceilings
from workbench.judge.sweeps import OverSizes, Space, Sweep, judge_sweep, over_sizes, ranges
from workbench.render.chart.charts import size_lines
from workbench.render.document import timings as document
from workbench.render.document.timings import sizes_sections
from workbench.run.measurement import Plan
from workbench.study.model import Study, base_name
from workbench.study.params import Picked, declared, expanded, find_variant, names_of
from workbench.study.workspace import Workspace, including
from workbench.words import Origin


def space_of(study: Study, text: str) -> tuple[Study, Space]:
    """The study with all variants of a space. Raises UsageError for what is none."""
    axes = expanded(study.folder, text, study.variants)
    base = base_name(text)
    study, names = including(study, [base, *names_of(base, axes)])
    defaults = declared(find_variant(study.folder, base, study.variants).module)
    values = {name: {**defaults, **dict(study.variants[name].params)} for name in names}
    return study, Space(text, base, axes, values)


def measured(target: Target, space: Space, *, fresh: bool) -> Origin:
    """All combinations that pass the gates timed together, then the best once more beside the
    default, both of them profiled.
    """
    reference = target.study.ladder.primary_reference
    wanted = [*space.combinations, *([reference] if reference else [])]
    ensured = ensure(Wanted(target, wanted, timed=True, refusing=True), fresh=fresh)
    if not target.live:
        return ensured.source
    result = judged(target, space, ensured.source)
    todo = follow_up(target, result, reference)
    if not todo.variants:
        return ensured.source
    target.executor.measure([task(target, todo)])
    return Origin.MEASURED


def follow_up(target: Target, result: Sweep, reference: str) -> Plan:
    """The best and the default once more, where the best was picked and that was not yet done; and
    their captures, at a shape where there are any.
    """
    if result.best is None:
        return Plan(target.shape)
    pair = list(dict.fromkeys([result.variant, result.best.variant]))
    pair = [name for name in pair if any(c.variant == name for c in result.timed)]
    again = result.default is not None and result.picked and result.again is None
    timed = tuple(filter(None, (*pair, reference))) if again else ()
    wanted = target.study.shapes[target.shape].captured
    every = target.load(pair).variants
    captured = [name for name in pair if wanted and not every[name].was_profiled]
    return Plan(target.shape, timed=timed, captured=tuple(captured))


def judged(target: Target, space: Space, source: Origin) -> Sweep:
    evidence = target.load(space.combinations, captures=True)
    return judge_sweep(
        evidence,
        space,
        gates=target.workspace.config.gates,
        study=target.study.name,
        gpu=target.folder.gpu,
        source=source,
        reference=target.study.ladder.primary_reference,
    )


def sweep(target: Target, space: Space, *, fresh: bool) -> Sweep:
    """Measure and judge all combinations. Raises EnvironmentLacks where fewer than two are on
    record and nothing can be measured.
    """
    result = judged(target, space, measured(target, space, fresh=fresh))
    if not target.live and len(result.timed) < 2:
        raise EnvironmentLacks(
            f"no sweep of {space.text} is recorded at {result.shape}, and nothing can be "
            "measured here",
            hint=f"without a GPU, `workbench build {quote(space.text)}` compiles all of them",
        )
    return result


def write(target: Target, space: Space, result: Sweep) -> None:
    """The table, in a folder of its own."""
    folder = target.workspace.reports(target.study, target.shape, ("sweep", space.text))
    blocks = document.sweep_view(result)
    path = write_document(target.workspace, folder, f"Sweep: {space.text}", blocks)
    target.note(f"wrote {shown_path(path)}")


def over_shapes(targets: Sequence[Target], variants: Sequence[str]) -> list[OverSizes]:
    """The variants and references at the shape of each target: one a parameter in which these
    differ.
    """
    first = targets[0]
    study = first.study
    references = [r.name for r in study.ladder.references]
    names = [name for name in variants if name not in references]
    shapes = {target.shape: target.load([*names, *references]) for target in targets}
    return [
        over_sizes(
            [shapes[name] for name in found],
            parameter,
            names,
            study.ladder,
            study=study.name,
            gpu=first.folder.gpu,
            ceilings=measured_ceilings(first.folder.gpu),
        )
        for parameter, found in ranges({n: s.parameters for n, s in shapes.items()})
    ]


def timed_over(
    targets: Sequence[Target], variants: Sequence[str], *, fresh: bool
) -> tuple[list[str], dict[str, str]]:
    """The variants timed at the shape of each target: their names, and what failed."""
    wanted: list[Wanted] = []
    for target in targets:
        names = target.variants(list(variants))
        references = [r.name for r in target.study.ladder.references]
        wanted.append(Wanted(target, list(dict.fromkeys([*names, *references])), timed=True))
    failures: dict[str, str] = {}
    for target, ensured in zip(targets, ensure_each(wanted, fresh=fresh), strict=True):
        failures |= {f"{v} at {target.shape}": why for v, why in ensured.failures.items()}
    return names, failures


def targets_of(executor: Executor, workspace: Workspace, picked: Sequence[Picked]) -> list[Target]:
    """The shapes that can be measured or are recorded; others are reported. Raises UsageError
    where they are no range of sizes, EnvironmentLacks where too few are left for one.
    """
    parameters = {each.name: each.study.shapes[each.name].parameters for each in picked}
    if not any(ranges(parameters)):
        raise UsageError(
            f"no two of these shapes differ in a number alone: {', '.join(parameters)}",
            hint="give a number several values; of other shapes --shape takes one at a time",
        )
    targets: list[Target] = []
    lacks: list[EnvironmentLacks] = []
    for each in picked:
        try:
            targets.append(target_at(executor, workspace, each))
        except EnvironmentLacks as error:
            lacks.append(error)
    if lacks and len(targets) < 2:
        raise lacks[0]
    for missing in lacks:
        executor.note(missing.message)
    of_one = of_one_gpu(targets)
    if len(of_one) < 2:
        raise EnvironmentLacks(
            f"no two of these shapes are recorded on the same GPU: {', '.join(parameters)}",
            hint="`workbench list` prints what is recorded",
        )
    return of_one


def write_sizes(target: Target, every: Sequence[OverSizes], names: Sequence[str]) -> None:
    """All ranges in one document, each with its chart. Other ranges have documents of their own."""
    if not every:
        return
    parameters = dict.fromkeys(over.parameter for over in every)
    folder = target.workspace.reports(target.study, target.study.default_shape, names)
    blocks = list(sizes_sections(every))
    charts = [size_lines(over, name=each.key) for over, each in zip(every, blocks, strict=True)]
    title = f"Sizes: {target.study.name} over {' and '.join(parameters)}"
    path = write_document(target.workspace, folder, title, blocks, charts)
    target.note(f"wrote {shown_path(path)}")
