"""``workbench ablate --leave-one-out``: what each switch of a variant is worth in it."""

from __future__ import annotations

import typer

from workbench.commands.measuring import ensure_timed
from workbench.commands.options import AblateOptions
from workbench.commands.printing import Output, show_json
from workbench.commands.progress import note
from workbench.commands.target import find_target, in_place
from workbench.errors import UsageError
from workbench.judge.leave_one_out import Switch, introduced_by, judge_left_out, names_of
from workbench.judge.snapshot import at_one_shape
from workbench.render.as_json import leave_one_out as as_json
from workbench.render.document import leave_one_out as document
from workbench.study.model import Ladder, Study
from workbench.study.params import base_name, declared, find_variant, with_values
from workbench.study.workspace import including


def switches_of(study: Study, variant: str, ladder: Ladder) -> tuple[Study, list[Switch]]:
    """Parameters that a variant gives other values than its own, and the study with what is needed
    to put each back. ``ladder`` is the study's as it is written. Raises UsageError where there are
    none.
    """
    found = find_variant(study.folder, variant, study.variants)
    own, given = declared(found.module), dict(found.params)
    base = base_name(variant)
    if not given:
        known = ", ".join(own) or "none is declared (cuda.params)"
        raise UsageError(
            f"'{variant}' has no switches: all its parameters have their own values ({known})",
            hint="name those that are on, such as 'fix11[stagger=1,early=1]'",
        )
    switches = []
    for name, value in given.items():
        rest = {key: other for key, other in given.items() if key != name}
        study, (without,) = including(study, [with_values(base, rest)])
        step, parent = introduced_by(name, value, base, ladder.steps, study.variants)
        switches.append(Switch(name, value, own[name], without, step, parent))
    return study, switches


def run(options: AblateOptions) -> None:
    names = options.fixes or []
    if len(names) != 1 or options.all_shapes:
        raise UsageError(
            "--leave-one-out is of one variant at one shape",
            hint="such as `workbench ablate --leave-one-out 'fix11[stagger=1,early=1]'`",
        )
    target = find_target(options.project, options.study, options.shape)
    ladder = target.study.ladder
    (variant,) = target.variants(names)
    study, switches = switches_of(target.study, variant, ladder)
    target.study, (base,) = including(study, [base_name(variant)])
    wanted = names_of(variant, base, switches)
    reference = [ladder.primary_reference] if ladder.primary_reference else []
    ensured = ensure_timed(target, [*wanted, *reference], fresh=options.fresh)
    found = judge_left_out(
        at_one_shape(target.evidence(), wanted, captures=False),
        variant,
        base,
        switches,
        study=study.name,
        gpu=target.folder.gpu,
        source=ensured.source,
        reference=ladder.primary_reference,
    )
    if options.json:
        show_json(as_json.left_out(found))
    else:
        Output(options.wide, options.markdown, options.csv).show(*document.left_out_view(found))
    for name, why in ensured.failures.items():
        note(f"error: {name}: {in_place(why, target.study)}")
    if found.time is None or ensured.failures:
        raise typer.Exit(1)
