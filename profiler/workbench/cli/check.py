"""``workbench check``."""

from __future__ import annotations

from dataclasses import replace

from workbench.app.list import tell_passed_over
from workbench.app.measure import check, check_on_cpu
from workbench.app.target import (
    find_study,
    in_place,
    of_one_gpu,
    profiled_shapes,
    require_current,
    target_at,
)
from workbench.cli.options import CheckOptions
from workbench.cli.streams import executor, note, note_failures, show
from workbench.errors import EnvironmentLacks, UsageError
from workbench.reporters.check import reasons
from workbench.study.workspace import including
from workbench.words import ABSENT, CheckResult, Status, grouped

ON_CPU = "checked on the CPU, at small shapes: no GPU was found here, and nothing is recorded"


def run(options: CheckOptions) -> int:
    if options.all_shapes and options.shape:
        raise UsageError("--shape and --all-shapes exclude each other")
    here = executor(options.on)
    workspace, study = find_study(here, options.project, options.study)
    including(study, options.variants or [])
    tell_passed_over(here, workspace, [study.name])
    picked = profiled_shapes(study, options.shape)
    try:
        targets = of_one_gpu([target_at(here, workspace, each) for each in picked])
    except EnvironmentLacks:
        if here.at_once or options.shape:
            raise
        checked, text = check_on_cpu(here, study, options.variants or []), ON_CPU
    else:
        checked = check(targets, options.variants or [], everywhere=options.all_shapes)
        live = targets[-1].live
        study = targets[-1].study
        text = "" if live else f"recorded evidence ({checked.gpu}): no GPU here to check on"
    checks, lost = checked.checks, checked.lost
    show(options, replace(checked, origin=text))
    of = grouped((one.variant, one) for one in checks)
    declared = {step.variant for step in study.ladder.steps if step.expected}
    wrong = {name for name, every in of.items() if any(one.wrong for one in every)}
    done = {one.variant for one in checks if one.status == CheckResult.CORRECT}
    for name in sorted(declared & done - wrong):
        note(f"error: {name} is declared wrong and is correct: remove `expected` of its step")
    for name in sorted(declared & wrong):
        note(f"{name} is wrong, as declared")
    bad = [name for name in of if name in wrong - declared]
    for name in bad:
        for why in reasons(of[name]):
            note(f"error: {name}: {in_place(why, study)}")
        for hint in dict.fromkeys(one.hint for one in of[name]):
            if hint:
                note(f"hint: {in_place(hint, study)}")
    note_failures(lost, study)
    if bad:
        note("hint: a variant that is wrong is not timed: fix it first")
    failed = bool(bad or lost or declared & done - wrong)
    if not failed:
        states = {name: {one.status for one in every} - {ABSENT} for name, every in of.items()}
        require_current([name for name, its in states.items() if its == {Status.STALE}])
    return int(failed)
