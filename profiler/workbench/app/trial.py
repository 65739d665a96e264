"""The trial call of a problem, and the errors that what it shows allows."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

from workbench.app.executor import Executor, Task
from workbench.app.trial_files import write
from workbench.errors import UsageError, unknown
from workbench.evidence.store import EvidenceFolder
from workbench.problems.problem import Problem
from workbench.run.measurement import Plan
from workbench.run.protocol import Learned, TrialJob
from workbench.study.values import Tolerance
from workbench.study.workspace import find_workspace

# Largest errors relative in norm: what an implementation that is as careful as torch's stays below
# (float32 as KernelBench has it; two units in the last place of halves).
RELATIVE = {
    "float64": 1e-10,
    "float32": 1e-4,
    "float16": 2e-3,
    "bfloat16": 1.6e-2,
    "float8_e4m3fn": 0.13,
    "float8_e5m2": 0.25,
}
# Units in the last place of 1.
UNIT = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
INTEGERS = 0.0
TIMES_REFERENCE = 4.0  # a reference with a larger error of its own allows so many times that
# Of one element, in terms of the largest and of the error allowed in norm; for halves beside a
# reference of a unit in the last place.
PEAK = 10.0


def prepare(
    executor: Executor, problem: Problem, root: Path, shape: str | None, *, on_gpu: bool
) -> tuple[Problem, Tolerance, Learned, str]:
    """Write the workspace, call everything once, and write down what was learned."""
    timed = [name for name, given in problem.shapes.items() if given.timed]
    if shape is not None:
        if shape not in problem.shapes:
            raise unknown("shape", shape, problem.shapes)
        if shape not in timed:
            hint = f"timed are {', '.join(timed)}"
            raise UsageError(f"shape '{shape}' is only checked", hint=hint)
        problem = replace(problem, default_shape=shape)
    write(problem, root)
    workspace = find_workspace(root)
    study = workspace.study(problem.name)
    name = shape or study.default_shape
    shapes = tuple(dict.fromkeys([name, *timed]))
    if not on_gpu:
        shapes = (min(problem.shapes, key=lambda n: problem.shapes[n].size),)
    job = TrialJob(
        study=study.name,
        shapes=shapes,
        baseline=study.ladder.steps[0].variant,
        called=problem.baseline.called,
        references=tuple(reference.name for reference in study.ladder.references),
        device="cuda" if on_gpu else "cpu",
        ranges=problem.ranges,
    )
    began = time.monotonic()
    gpu = executor.gpu
    folder = EvidenceFolder(workspace.evidence_base(study.name) / (gpu.slug if gpu else "cpu"))
    task = Task(study, workspace.config, folder, Plan(name), instead=job)
    (plan,) = executor.perform([task], lambda event: None)
    assert plan.learned is not None
    trial = plan.learned
    if on_gpu:
        executor.note(f"trial call in {time.monotonic() - began:.1f} s")
    if problem.ranges:
        same = tuple(m for m in problem.references if m.name not in trial.failures)
        problem = replace(problem, references=same)
    tolerance = tolerance_of(problem, trial)
    write(problem, root, trial, tolerance)
    return problem, tolerance, trial, name


def tolerance_of(problem: Problem, trial: Learned) -> Tolerance:
    """The errors that what a trial showed allows.

    What the format's own check accepts is right, however far it is from the reference.
    """
    errors = [trial.errors[m.name] for m in problem.references if m.name in trial.errors][:1]
    if trial.accepted and not trial.differs:
        errors.append(trial.errors[problem.baseline.name])
    base = max(RELATIVE.get(kind, INTEGERS) for kind in (trial.dtype, trial.rounds))
    relative = max([base, *(TIMES_REFERENCE * error for _, error in errors)])
    half = trial.dtype in ("float16", "bfloat16") and errors and trial.exact
    unit = UNIT[trial.dtype] if half else base
    absolute = max([PEAK * unit * trial.largest, *(2 * TIMES_REFERENCE * e for e, _ in errors)])
    return Tolerance(absolute=rounded_up(absolute), relative=rounded_up(relative))


def rounded_up(value: float) -> float:
    """To the next of 1, 2, 5, 10, ...: another draw seldom gives another study, which would have
    to be measured again.
    """
    if not value:
        return 0.0
    decade = math.floor(math.log10(value))
    return next(
        rounded
        for step in (1, 2, 5, 10)
        if (rounded := float(f"{step}e{decade}")) >= value or step == 10
    )
