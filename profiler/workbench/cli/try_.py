"""``try``: a file of the user's, and what became of it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from msgspec import structs

from workbench.app.executor import Executor
from workbench.app.try_ import Attempt, AttemptOptions, attempt, refusal
from workbench.cli.build import compiled
from workbench.cli.options import TryOptions
from workbench.cli.streams import executor, note, show
from workbench.cuda.programs import virtual_name
from workbench.errors import CannotTell, EnvironmentLacks, GateFailed, ToolFailed, WorkbenchError
from workbench.judge.findings import sentence, sentences
from workbench.judge.gates import ACCURATE, CORRECT
from workbench.judge.ladder import Ablation
from workbench.judge.rows import Row
from workbench.problems.problem import Problem
from workbench.render import answers, as_json, doc, in_short
from workbench.render.doc import factor, number, took, with_cycles
from workbench.render.document import advice
from workbench.render.document.printed_ladder import Where, call_of, ladder_table, origin
from workbench.render.document.variant import bottlenecks, limited
from workbench.run import machine
from workbench.run.protocol import Built, Failed, Learned
from workbench.study.config import Gates
from workbench.study.files import for_shell, shown_path
from workbench.words import ABSENT, CheckResult, Status, TryVerdict


def run(options: TryOptions) -> int:
    here, names = executor(options.on), {field.name for field in fields(AttemptOptions)}
    asked = {name: value for name, value in vars(options).items() if value and name in names}
    try:
        done = attempt(
            here, options.source, AttemptOptions(**asked, profile=not options.no_profile)
        )
    except (CannotTell, GateFailed) as error:  # it cannot be called, or not compared
        if options.json:
            show(options, error)
        raise
    show(options, replace(done, unprofiled=here.unprofiled))
    return finish(done, here)


def finish(done: Attempt, executor: Executor) -> int:
    """The exit code, and what goes with it on stderr."""
    if done.kept:
        note(f"kept as {shown_path(done.kept)}")
    if isinstance(done.built, Failed):
        error = done.built.error
        mine = error.message.replace(virtual_name(done.study, ""), "")
        raise ToolFailed(mine, hint=error.hint)
    if done.verdict == TryVerdict.UNCHECKED:
        lacks = machine.why_not_measuring()
        raise EnvironmentLacks(
            f"nothing was measured: {lacks.message}",
            hint="the same command measures where there is a GPU with ncu: `workbench doctor`",
        )
    if no := refusal(done):
        raise no
    if done.judged is None:
        note(f"not timed: {machine.why_not_measuring().message}")
    executor.require_profiled()
    for why in done.uncompared:
        note(why)
    return 0


def data(done: Attempt | WorkbenchError) -> dict[str, object]:
    if isinstance(done, WorkbenchError):
        is_open = isinstance(done, CannotTell)
        verdict = TryVerdict.UNCHECKED if is_open else TryVerdict.FAILED
        return {"verdict": verdict, "why": done.message, "hint": done.hint}
    row, judged = done.row, done.judged
    return {
        **as_json.shown_fields(done),
        "tried": answers.whole_row(judged, row) if judged and row else None,
        "references": [answers.row(judged, r) for r in done.references] if judged else [],
    }


def brief(done: Attempt) -> dict[str, object]:
    """The verdict, then the step of the study that was made of the file."""
    row, judged = done.row, done.judged
    judged_step = in_short.step(judged, row) if judged and row else {}
    gates, times = judged_step.get("failed"), done.times_reference_error
    largest = done.trial.errors.get(done.problem.baseline.name, (None,))[0]
    wrong = {"why": done.wrong, "max_error": largest, "allowed": done.allowed.absolute}
    error = None if times is None else {"times_reference": times}
    if row is None or judged is None:
        following = in_short.command("", "doctor")  # what this machine lacks
    elif done.kept:
        following = in_short.command(done.study, "show", row.variant)
    else:
        following = in_short.command("", "show", row.variant, "--project", str(done.folder))
    return {
        **judged_step,
        "file": done.problem.title,
        "verdict": done.verdict,
        "accuracy": judged_step.get("accuracy") or error,
        **(wrong if done.wrong else {}),
        "failed": [
            *(gates if isinstance(gates, list) else ()),
            *(in_short.failed(done.failures) or ()),
        ]
        or None,
        "workspace": str(done.folder),
        **following,
        **in_short.error(done.unprofiled),
    }


def blocks(done: Attempt, options: Any) -> list[doc.Block]:
    """The verdict in a few words, what was tried, then times and limits, and how to go on."""
    verdict, times, why = done.verdict, done.times_reference_error, ""
    if verdict == TryVerdict.INACCURATE and times is not None:
        allowed = f"{Gates().max_error:g}x is allowed"
        why = f": {factor(times)} the error of {done.against}, where {allowed}"
    elif verdict == TryVerdict.UNCHECKED:
        why = ": it could not be called here"
    elif verdict == TryVerdict.CORRECT and done.problem.itself:
        why = " against itself in float64: only rounding errors are checked"
    shown: list[doc.Block] = [doc.paragraph(doc.strong(verdict), why)]
    shown += introduction(done.problem, done.trial)
    if done.judged is not None and done.row is not None:
        shown += times_and_limits(done.row, done.judged, profiled=not options.no_profile)
    else:
        shown += _on_the_cpu(done)
    if steps := next_steps(done):
        shown += [doc.paragraph("Next:"), doc.bullets(steps)]
    return shown


def introduction(problem: Problem, trial: Learned) -> list[doc.Block]:
    """Return what it is, what goes in and out, and what it is checked against."""
    inputs = ", ".join(f"{name} {text}" for name, text in trial.inputs.items())
    lines = [f"takes {inputs or 'no tensor'}; gives {', '.join(trial.outputs)}"]
    against = "itself" if problem.itself else problem.against or "its reference"
    how = "float64" if trial.exact else f"its own precision: {trial.refusal}"
    lines.append(f"checked against {against} in {how}{': --vs names another' * problem.itself}")
    if trial.larger is not None:
        lines.append("checked for larger inputs too: 4 times each, the first row 32 times")
    if trial.in_place:
        lines.append(f"changes its inputs in place: {', '.join(trial.in_place)}")
    if trial.doubt:
        lines.append(trial.doubt)
    return [doc.paragraph(doc.strong(problem.what)), doc.bullets(lines)]


def times_and_limits(row: Row, judged: Ablation, *, profiled: bool) -> list[doc.Block]:
    """Time against the reference, then the three largest bottlenecks."""
    blocks: list[doc.Block] = [origin(judged), *doc.warned(sentences(judged.warnings))]
    if row.status == Status.FAILED:
        return [*blocks, doc.paragraph(doc.strong("failed"), f": {sentence(row.problem)}")]
    mine = took(row.time)
    if judged.reference:
        against = judged.row(judged.reference)
        ratio, name = with_cycles(row.over_reference), doc.code(against.title or against.variant)
        times = f": {mine} against {took(against.time)}"
        blocks.append(doc.paragraph(doc.strong(ratio), " the speed of ", name, times))
    else:
        lacks = ", and nothing to compare it with: --vs names something"
        blocks.append(doc.paragraph(doc.strong(mine), lacks))
    blocks.append(ladder_table(judged, Where.TRY, [row, *judged.references], "times"))
    if call := call_of(row):
        blocks.append(doc.paragraph(f"one call is {call}"))
    correct = [name for name, check in row.checks.items() if check.status == CheckResult.CORRECT]
    if correct:
        blocks.append(doc.paragraph(f"correct at {', '.join(correct)}"))
    shown = [g for g in row.gates if g.passed is False and g.name not in (ACCURATE, CORRECT)]
    shown += [g for g in row.gates if g.why.code == "kernels.unchecked"]
    blocks += [doc.paragraph(f"{gate.name}: {sentence(gate.why)}") for gate in shown]
    if row.bottlenecks:
        blocks += [doc.paragraph("What limits it:"), bottlenecks(row.bottlenecks)]
        blocks.append(doc.paragraph(limited(row.occupancy_limiters)))
    else:
        blocks.append(doc.paragraph(f"profile: {ABSENT if profiled else 'not asked for'}"))
    return [*blocks, advice.to_try(row.advice)]


def _on_the_cpu(done: Attempt) -> list[doc.Block]:
    """The errors of calls on the CPU, or why there is none, and what the compiler made of it."""
    items = [
        f"{done.called[name]}: on the CPU its largest error is {number(a)}, relative {number(r)}"
        for name, (a, r) in done.trial.errors.items()
    ]
    items += done.uncalled
    shown: list[doc.Block] = [doc.bullets(items)] if items else []
    if isinstance(done.built, Built):
        named = structs.replace(done.built, variant=done.problem.baseline.called)
        shown += [doc.paragraph(f"built for {named.arch}:"), *compiled([named])]
    return shown


def next_steps(done: Attempt) -> list[doc.Text]:
    """Return where its lines are, and how to go on from there."""
    if done.row is None or not done.row.time:
        return []
    variant = done.problem.baseline.name
    where = f"--study {done.study}" if done.kept else f"--project {for_shell(done.folder)}"
    steps = []
    if done.row.capture:
        steps.append(
            doc.line(doc.code(f"workbench show {variant} --source {where}"), ": its lines")
        )
    if done.kept:
        steps.append(doc.line(f"a variant of your own beside {shown_path(done.kept)}/{variant}.py"))
    else:
        steps.append(
            doc.line("the same with ", doc.code("--keep NAME"), ": a study of your workspace")
        )
    return steps
