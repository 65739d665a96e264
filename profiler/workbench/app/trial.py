"""A problem written as a workspace with one study, its trial call, and the errors that are allowed
by what that shows.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from workbench.app.executor import Executor, Task
from workbench.errors import UsageError, unknown
from workbench.evidence.store import EvidenceFolder
from workbench.problems.problem import STUDY_FILE, GivenShape, Module, Problem
from workbench.problems.user_files import literal
from workbench.render.templates import templates
from workbench.run.measurement import Plan
from workbench.run.protocol import Learned, TrialJob
from workbench.study.files import CONFIG_FILE, require_inside, write_bytes
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


WRITTEN = re.compile(r"[\w./-]+\.\w+")  # what a fingerprint finds in a string


# Of a problem that was not called yet.
UNCALLED = Learned(inputs={}, outputs=(), dtype="float32")
ANY = Tolerance(absolute=1e-3, relative=1e-3)


def write(
    problem: Problem, root: Path, trial: Learned = UNCALLED, tolerance: Tolerance = ANY
) -> None:
    """Write what a ``trial`` showed with it. Files whose content is the same stay as they are.

    Raises UsageError for a file whose name no string in a module can carry.
    """
    folder = root / "kernels" / problem.name
    ladder = root / "ablations" / problem.name / "ablation.toml"
    for name in problem.files:
        if WRITTEN.fullmatch(name) is None:
            clean = re.sub(r"[^\w./-]", "_", name)
            raise UsageError(
                f"'{name}' is no name that a study's files can have",
                hint=f"copy it: cp {quote(name)} {clean}",
            )
    wanted = {folder / name: data for name, data in problem.files.items()}
    modules = (problem.baseline, *problem.references)
    taken = [module.name for module in modules if f"{module.name}.py" in problem.files]
    if taken:
        what = f"{taken[0]}.py has a name that a study needs for itself"
        raise UsageError(what, hint="call the file otherwise")
    shapes = {name: _shape(shape, name, problem) for name, shape in problem.shapes.items()}
    values = {"shapes": shapes, "files": _files(problem), "trial": trial, "tolerance": tolerance}
    texts = {
        root / CONFIG_FILE: "",
        folder / STUDY_FILE: _rendered("study.py.j2", problem, **values),
        ladder: _rendered("ablation.toml.j2", problem),
        **{folder / f"{m.name}.py": module_text(problem, m, trial.in_place) for m in modules},
    }
    wanted |= {path: text.encode() for path, text in texts.items()}
    for path, data in wanted.items():
        if not path.is_file() or path.read_bytes() != data:
            require_inside(path, root)
            write_bytes(path, data)


def module_text(problem: Problem, module: Module, in_place: Sequence[str]) -> str:
    """A variant; its files in strings are what its fingerprint covers.

    A reference of what works in place has its result copied there.
    """
    header = f'"""{_plain(module.called)}."""\n\n'
    if "given." not in module.text:
        return header + module.text
    if in_place and module is not problem.baseline:
        before, _, result = module.text.rpartition("    return ")
        put = f"    return given.put(inputs, {literal(in_place)}, {result.strip()})\n"
        module = replace(module, text=before + put)
    return (
        f"{header}from workbench.problems import given\n\nFILES = {_files(problem)}\n{module.text}"
    )


def _files(problem: Problem) -> str:
    return literal(tuple(problem.files))


def _plain(text: str) -> str:
    return " ".join(text.replace('"""', "'''").replace("\\", "/").split())


def _rendered(template: str, problem: Problem, **values: object) -> str:
    how = {"literal": literal, "plain": _plain, "toml": _toml}
    return templates().get_template(f"try/{template}").render(how, problem=problem, **values)


def _shape(shape: GivenShape, name: str, problem: Problem) -> str:
    """The arguments of a Shape."""
    parameters = shape.parameters
    flags: dict[str, object] = {} if shape.timed else {"profiled": False}
    if shape.timed and name != problem.default_shape:
        flags["captured"] = False
    are_names = all(k.isidentifier() and k not in ("profiled", "captured") for k in parameters)
    written = {**flags, **parameters} if are_names else flags
    more = [] if are_names else [f"**{literal(dict(parameters))}"]
    return ", ".join([*(f"{key}={literal(value)}" for key, value in written.items()), *more])


def _toml(text: str) -> str:
    """A string of TOML: JSON's escapes are among its own."""
    return literal("".join(c if c.isprintable() else " " for c in text))
