"""A variant at all combinations of its parameters."""

from __future__ import annotations

from shlex import quote

from workbench.app.ablate import Wanted, ensure
from workbench.app.executor import Task
from workbench.app.target import Target
from workbench.errors import EnvironmentLacks
from workbench.judge.sweeps import Space, Sweep, judge_sweep
from workbench.run.measurement import Plan
from workbench.study.model import Study, base_name
from workbench.study.params import declared, expanded, find_variant, including, names_of
from workbench.words import Origin


def space_of(study: Study, text: str) -> tuple[Study, Space]:
    """The study with all variants of a space. Raises UsageError for what is none."""
    axes = expanded(study.folder, text, study.variants)
    base = base_name(text)
    study, names = including(study, [base, *names_of(base, axes)])
    defaults = declared(find_variant(study.folder, base, study.variants).module)
    values = {name: {**defaults, **dict(study.variants[name].params)} for name in names}
    return study, Space(text, base, axes, values)


def follow_up(target: Target, result: Sweep) -> Plan:
    """The best and the default once more, where the best was picked and that was not yet done; and
    their captures, at a shape where there are any.
    """
    if result.best is None:
        return Plan(target.shape)
    pair = list(dict.fromkeys([result.variant, result.best.variant]))
    pair = [name for name in pair if any(c.variant == name for c in result.timed)]
    again = result.default is not None and result.picked and result.again is None
    reference = target.study.ladder.primary_reference
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
    """Time all combinations that pass the gates together, then the best once more beside the
    default, and profile both. Raises EnvironmentLacks where fewer than two are recorded and
    nothing can be measured.
    """
    reference = target.study.ladder.primary_reference
    wanted = [*space.combinations, *filter(None, [reference])]
    ensured = ensure(Wanted(target, wanted, timed=True, refusing=True), fresh=fresh)
    result = judged(target, space, ensured.source)
    if target.live and (todo := follow_up(target, result)).variants:
        target.executor.measure([Task(target.study, target.workspace.config, target.folder, todo)])
        return judged(target, space, Origin.MEASURED)
    if not target.live and len(result.timed) < 2:
        raise EnvironmentLacks(
            f"no sweep of {space.text} is recorded at {result.shape}, and nothing can be "
            "measured here",
            hint=f"without a GPU, `workbench build {quote(space.text)}` compiles all of them",
        )
    return result
