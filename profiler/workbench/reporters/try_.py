"""``try``: a file of the user's, and what became of it."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

from workbench.app.target import shown_path
from workbench.errors import CannotTell, WorkbenchError
from workbench.render import answers, as_json
from workbench.render import brief as in_short
from workbench.render.document import variant as document
from workbench.render.document.blocks import Block, Paragraph, Text, code, line
from workbench.render.document.environment import compiled_line
from workbench.run.protocol import Built
from workbench.words import TryVerdict

if TYPE_CHECKING:
    from workbench.app.try_ import Attempt


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
    known = in_short.step(judged, row) if judged and row else {}
    gates, times = known.get("failed"), done.times_reference_error
    largest = done.trial.errors.get(done.problem.baseline.name, (None,))[0]
    wrong = {"why": done.wrong, "max_error": largest, "allowed": done.facts.absolute}
    error = None if times is None else {"times_reference": times}
    return {
        **known,
        "file": done.problem.title,
        "verdict": done.verdict,
        "accuracy": known.get("accuracy") or error,
        **(wrong if done.wrong else {}),
        "failed": [
            *(gates if isinstance(gates, list) else ()),
            *(in_short.failed(done.failures) or ()),
        ]
        or None,
        "workspace": str(done.folder),
        **in_short.unprofiled(done.unprofiled),
    }


def blocks(done: Attempt, options: Any) -> list[Block]:
    return attempt_blocks(done, profiled=not options.no_profile)


def attempt_blocks(done: Attempt, *, profiled: bool) -> list[Block]:
    """The verdict, then times and limits; ``profiled`` says that a profile was asked for."""
    alone = done.problem.itself
    answer = document.answer(done.verdict, done.times_reference_error, done.against, alone)
    shown = [Paragraph(answer), *document.introduction(done.problem, done.trial)]
    if done.judged is not None and done.row is not None:
        shown += document.result(done.row, done.judged, profiled=profiled)
    else:
        modules = (done.problem.baseline, *done.problem.references)
        called = {module.name: module.called for module in modules}
        found = {called[name]: error for name, error in done.trial.errors.items()}
        why_not = {called[name]: error.message for name, error in done.trial.failures.items()}
        shown += document.agreement(found, why_not, compiled_text(done))
    return [*shown, *document.next_steps(next_steps(done))]


def compiled_text(done: Attempt) -> str:
    """A CUDA source is at least compiled where there is no GPU."""
    if not isinstance(done.built, Built):
        return ""
    built = done.built
    line = compiled_line(built.arch, built.kernels, built.warnings)
    return f"{done.problem.baseline.called}: {line}"


def next_steps(done: Attempt) -> list[Text]:
    """Where its lines are, and how to go on from there."""
    if done.row is None or not done.row.time:
        return []
    variant = done.problem.baseline.name
    where = f"--study {done.study}" if done.kept else f"--project {quote(str(done.folder))}"
    steps = []
    if done.row.capture:
        steps.append(line(code(f"workbench show {variant} --source {where}"), ": its lines"))
    if done.kept:
        steps.append(line(f"a variant of your own beside {shown_path(done.kept)}/{variant}.py"))
    else:
        steps.append(line("the same with ", code("--keep NAME"), ": a study of your workspace"))
    return steps
