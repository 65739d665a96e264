"""``workbench ablate``."""

from __future__ import annotations

import sys
from shlex import quote

from workbench.app.judge import judged
from workbench.app.measure import Ensured, Wanted, ensure, ensure_each
from workbench.app.report import REPORT, is_due, reported
from workbench.app.target import (
    Target,
    find_study,
    find_target,
    in_place,
    of_one_gpu,
    profiled_shapes,
    require_current,
    shown_path,
    stale_of,
    target_at,
)
from workbench.cli import sweep
from workbench.cli.options import AblateOptions
from workbench.cli.printing import output, show_json, tell
from workbench.cli.streams import executor, note
from workbench.errors import EnvironmentLacks, UsageError
from workbench.judge.leave_one_out import Switch, introduced_by, judge_left_out, names_of
from workbench.judge.rows import Ablation
from workbench.judge.snapshot import at_one_shape
from workbench.render.as_json import ablation as as_data
from workbench.render.as_json import plain_data
from workbench.render.document import ladder_table
from workbench.render.document.blocks import Section
from workbench.render.document.leave_one_out import left_out_view
from workbench.study.model import Ladder, Study
from workbench.study.params import base_name, declared, find_variant, with_values
from workbench.study.workspace import including


def named(target: Target, fixes: list[str]) -> list[str]:
    """The steps up to the fixes, as far as they are measured at the shape, what a fix chooses
    among, which says whether it chooses the fastest, and the references.
    """
    ladder = target.study.ladder
    steps = [s.variant for s in ladder.measured_at(target.shape, target.steps(fixes))]
    every = dict.fromkeys([*steps, *ladder.chosen_among(fixes)])
    return [*every, *(r.name for r in ladder.references)]


def measured(
    target: Target,
    fixes: list[str],
    ensured: Ensured,
    *,
    everywhere: bool = True,
) -> tuple[Ablation, dict[str, str]]:
    """The ladder at the target's shape, and what failed of it. ``everywhere``: judged at the other
    shapes as well.
    """
    steps = target.steps(fixes)  # as they are after measuring
    found, _ = judged(target, steps=steps, source=ensured.source, everywhere=everywhere, keep=True)
    asked = {name: why for name, why in ensured.unsupported.items() if name in fixes}
    return found, {**ensured.failures, **asked}


def finish(target: Target, fixes: list[str], found: Ablation, failed: dict[str, str]) -> int:
    """Write the report if it is not up to date, after all else was printed: a folder that takes
    none costs no more.

    Outside of a workspace there is none but that of ``workbench report``.
    """
    for name, why in failed.items():
        note(f"error: {name}: {in_place(why, target.study)}")
    if failed:
        note("hint: everything else that was measured is kept and in the table")
    gone: BrokenPipeError | None = None
    try:
        sys.stdout.flush()
    except BrokenPipeError as error:  # the report is written all the same
        gone = error
    folder = target.workspace.reports(target.study, found.shape, target.part)
    if target.workspace.packaged:
        note(f"no report outside of a workspace; `workbench report` writes {shown_path(folder)}")
    else:
        if is_due(folder, target):
            for path in reported(target, fixes, source=found.source):
                note(f"wrote {shown_path(path)}")
        else:
            note(f"{shown_path(folder / REPORT)} is up to date; `workbench report` rebuilds it")
        if found.best is not None and found.best.advice:
            note(f"next: `workbench advise {quote(found.best.variant)}{named_again(target)}`")
    if gone is not None:
        raise gone
    if not failed:
        require_current(stale_of(found, fixes))
    return int(bool(failed))


def named_again(target: Target) -> str:
    """The options that another verb needs to be about the same."""
    study, workspace = target.study, target.workspace
    alone = len(workspace.studies()) == 1 or workspace.config.study == study.name
    return ("" if alone else f" --study {quote(study.name)}") + (
        "" if target.shape == study.default_shape else f" --shape {quote(target.shape)}"
    )


def run(options: AblateOptions) -> int:
    if options.leave_one_out:
        return leave_one_out(options)
    if options.all_shapes:
        return run_all(options)
    here = executor("ablate", options.on)
    workspace, study = find_study(here, options.project, options.study)
    including(study, options.fixes or [])
    picked = profiled_shapes(study, options.shape)
    if len(picked) > 1:
        return run_sizes(options, sweep.targets_of(here, workspace, picked))
    target = target_at(here, workspace, picked[0])
    fixes = options.fixes or []
    ensured = ensure(target, named(target, fixes), fresh=options.fresh)
    found, failed = measured(target, fixes, ensured, everywhere=options.json)
    own = output(options).on_terminal and not options.wide
    tell(
        options,
        lambda: as_data(found),
        lambda: [*ladder_table.ablation(found, own=own), *ladder_table.account(found)],
    )
    return finish(target, fixes, found, failed)


def run_sizes(options: AblateOptions, targets: list[Target]) -> int:
    """The ladder at every shape of a range: times and rates over the size."""
    failed: dict[str, str] = {}
    fixes = options.fixes or []
    every = [Wanted(target, named(target, fixes)) for target in targets]
    for target, done in zip(targets, ensure_each(every, fresh=options.fresh), strict=True):
        found, failures = measured(target, fixes, done, everywhere=False)
        failed |= {f"{variant} at {target.shape}": why for variant, why in failures.items()}
    over = sweep.OverShapes(tuple(targets), tuple(row.variant for row in found.rows))
    return sweep.tell_sizes(over, (f"over {options.shape}", *fixes), failed, options)


def run_all(options: AblateOptions) -> int:
    """Every profiled shape; the study's own comes last, since its report is about all of them."""
    if options.shape is not None:
        raise UsageError("--shape and --all-shapes exclude each other")
    here = executor("ablate", options.on)
    _, study = find_study(here, options.project, options.study)
    names = [name for name, shape in study.shapes.items() if shape.profiled]
    names.sort(key=lambda name: name == study.default_shape)
    out = output(options)
    tables: list[Ablation] = []
    failed: dict[str, str] = {}
    targets: list[Target] = []
    for name in names:
        try:
            targets.append(find_target(here, options.project, options.study, name, tell=False))
        except EnvironmentLacks as error:
            if name == study.default_shape:
                raise
            note(f"{name}: {error.message}")
    targets = of_one_gpu(targets, targets[-1].folder)
    fixes = options.fixes or []
    every = [Wanted(target, named(target, fixes)) for target in targets]
    for target, done in zip(targets, ensure_each(every, fresh=options.fresh), strict=True):
        found, failures = measured(target, fixes, done)
        failed |= {f"{variant} at {target.shape}": why for variant, why in failures.items()}
        tables.append(found)
        if not (options.json or options.csv):
            out.show(*ladder_table.ablation(found))
            out.gap()
    if options.json:
        show_json({"tables": [as_data(each) for each in tables]})
    elif options.csv:
        shown = ((each.shape, ladder_table.ablation(each)) for each in tables)
        out.show(*(Section(shape, (), tuple(blocks)) for shape, blocks in shown))
    else:
        out.show(*ladder_table.across(found))
    return finish(target, fixes, found, failed)


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


def leave_one_out(options: AblateOptions) -> int:
    """Of one variant: what each of its switches is worth."""
    names = options.fixes or []
    if len(names) != 1 or options.all_shapes:
        raise UsageError(
            "--leave-one-out is of one variant at one shape",
            hint="such as `workbench ablate --leave-one-out 'fix11[stagger=1,early=1]'`",
        )
    here = executor("ablate", options.on)
    target = find_target(here, options.project, options.study, options.shape)
    ladder = target.study.ladder
    (variant,) = target.variants(names)
    study, switches = switches_of(target.study, variant, ladder)
    target.study, (base,) = including(study, [base_name(variant)])
    wanted = names_of(variant, base, switches)
    reference = [ladder.primary_reference] if ladder.primary_reference else []
    ensured = ensure(target, [*wanted, *reference], fresh=options.fresh, timed=True)
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
    tell(options, lambda: plain_data(found), lambda: left_out_view(found))
    for name, why in ensured.failures.items():
        note(f"error: {name}: {in_place(why, target.study)}")
    return int(found.time is None or bool(ensured.failures))
