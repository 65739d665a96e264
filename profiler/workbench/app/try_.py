"""From a file that somebody already has to evidence: what ``workbench try`` does. The file is
written as a workspace with one study; a trial call of that shows which errors are allowed.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote

from workbench.app.ablate import Wanted, ensure, first_look, judged, profiled_with
from workbench.app.check import ErrorBound
from workbench.app.executor import Executor, Task
from workbench.app.target import find_target, workspace_to_keep
from workbench.children import temporary_folder
from workbench.errors import GateFailed, UsageError, WorkbenchError, unknown
from workbench.evidence.store import EvidenceFolder
from workbench.judge.findings import Gate, sentence
from workbench.judge.ladder import Ablation
from workbench.judge.rows import Row
from workbench.judge.time_checks import OUTPUTS
from workbench.problems import detect
from workbench.problems.problem import STUDY_FILE, GivenShape, Module, Problem, Request, split
from workbench.problems.python_function import pick
from workbench.problems.user_files import literal, parsed, study_name
from workbench.render.templates import templates
from workbench.run import machine
from workbench.run.compilation import build_only
from workbench.run.measurement import Plan
from workbench.run.protocol import Built, Failed, Learned, TrialJob
from workbench.study.config import Gates
from workbench.study.files import (
    CONFIG_FILE,
    alone,
    contents,
    for_shell,
    json_data,
    require_inside,
    shown_path,
    stands,
    write_bytes,
)
from workbench.study.values import CANCELLED, Tolerance
from workbench.study.workspace import find_workspace
from workbench.words import CheckResult, Status, TryVerdict, shown

ARCH = "sm_90a"  # compiled for where there is no GPU


@dataclass(frozen=True)
class AttemptOptions:
    """Options of ``workbench try`` beside the source: ``versus`` is ``--vs``, ``keep`` the name of
    the study to be made in the workspace at ``project``, and ``folder`` where the scratch workspace
    is made, else in the user's cache, where the same command finds it again.
    """

    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    versus: str = ""
    launch: str = ""
    solution: Path | None = None
    workload: Path | None = None
    range: str = ""
    arguments: Sequence[str] = ()
    shape: str | None = None
    keep: str = ""
    project: Path | None = None
    folder: Path | None = None
    profile: bool = True
    quick: bool = False
    fresh: bool = False


@dataclass(frozen=True)
class TriedReference:
    """``exact``: taken in float64, else ``refusal`` says why not. ``itself``: there is no other."""

    exact: bool
    refusal: str
    itself: bool
    variants: tuple[str, ...]


@dataclass(frozen=True)
class Attempt:
    """The outcome of a file that was tried.

    ``folder`` is the workspace that was made of it, with the one study ``study``, judged at
    ``shape``. ``judged`` and ``failures`` are None and empty where nothing could be measured here:
    then ``trial`` tells what a call on the CPU did, and ``built`` how a CUDA source compiles.
    ``kept`` is the folder of the study that ``keep`` made.
    """

    problem: Problem = field(repr=False)
    folder: Path = field(repr=False)
    study: str
    shape: str
    trial: Learned = field(repr=False)
    allowed: Tolerance = field(repr=False)
    judged: Ablation | None = field(default=None, repr=False)
    failures: dict[str, str] = field(default_factory=dict)
    kept: Path | None = None
    built: Built | Failed | None = field(default=None, repr=False)
    unprofiled: WorkbenchError | None = field(default=None, repr=False)
    renamed: Callable[[str], str] = field(default=str, repr=False)  # names a notebook in a text

    kind = property(shown(lambda self: self.problem.kind))
    what = property(shown(lambda self: self.problem.what))
    workspace = property(shown(lambda self: self.folder))
    inputs = property(shown(lambda self: self.trial.inputs))
    outputs = property(shown(lambda self: self.trial.outputs))
    destinations = property(shown(lambda self: self.trial.destinations))
    in_place = property(shown(lambda self: self.trial.in_place))
    warnings = property(shown(lambda self: self.judged.warnings if self.judged else []))

    @property
    @shown
    def reference(self) -> TriedReference:
        names = tuple(module.name for module in self.problem.references)
        return TriedReference(self.trial.exact, self.trial.refusal, self.problem.itself, names)

    @property
    @shown
    def tolerance(self) -> ErrorBound:
        return ErrorBound.of(self.allowed)

    @property
    @shown
    def trial_errors(self) -> dict[str, ErrorBound]:
        return {name: ErrorBound(*errors) for name, errors in self.trial.errors.items()}

    @property
    @shown
    def wrong(self) -> str:
        """Why what was tried is wrong, where the trial call shows that already; else ""."""
        trial, errors = self.trial, self.trial.errors.get(self.problem.baseline.name)
        if trial.differs:
            return trial.differs
        if errors is None or trial.accepted:
            return ""
        if trial.refused:
            return trial.refused
        times = CANCELLED if trial.few else 1.0
        if errors[0] > self.allowed.absolute or errors[1] > times * self.allowed.relative:
            return self._too_far(errors)
        allowed = max(self.allowed.relative, TIMES_REFERENCE * trial.larger_reference)
        if trial.larger is not None and trial.larger[1] > times * allowed:
            return f"for larger inputs {self._too_far(trial.larger)}"
        return ""

    def _too_far(self, error: tuple[float, float]) -> str:
        return (
            f"error {error[0]:.3g}, relative {error[1]:.3g}; allowed are "
            f"{self.allowed.absolute:g} and {self.allowed.relative:g}"
        )

    @property
    def wrong_while_timed(self) -> Gate | None:
        """The cross-check of the outputs of timed calls, where these were wrong."""
        gates = self.row.gates if self.row is not None else ()
        return next((g for g in gates if g.name == OUTPUTS and g.passed is False), None)

    @property
    @shown
    def times_reference_error(self) -> float | None:
        """The error relative in norm as a multiple of the first reference's; None without one,
        where the error is no more than rounding, and of one call with few outputs.
        """
        if self.row is not None:
            accuracy = self.row.accuracy
            return accuracy.times_reference if accuracy and not accuracy.rounding else None
        error = None if self.trial.few else self.trial.errors.get(self.problem.baseline.name)
        against = [self.trial.errors.get(module.name) for module in self.problem.references[:1]]
        if not error or not any(against) or not self.trial.exact or self.trial.accepted:
            return None
        if error[1] <= self.allowed.rounding(UNIT.get(self.trial.dtype, 0.0)):
            return None
        return error[1] / against[0][1] if against[0] and against[0][1] else None

    @property
    def against(self) -> str:
        """Return what the first reference is called."""
        return self.problem.references[0].called if self.problem.references else ""

    @property
    @shown
    def verdict(self) -> TryVerdict:
        row = self.row
        checks = row.checks.values() if row is not None else ()
        is_wrong = self.wrong or self.wrong_while_timed
        if is_wrong or any(check.status == CheckResult.WRONG for check in checks):
            return TryVerdict.WRONG
        if row is not None and (row.variant in self.failures or row.status == Status.FAILED):
            return TryVerdict.FAILED
        if row is None and self.problem.baseline.name not in self.trial.errors:
            return TryVerdict.UNCHECKED
        times = self.times_reference_error
        return TryVerdict.INACCURATE if times and times > Gates().max_error else TryVerdict.CORRECT

    @property
    @shown
    def reasons(self) -> tuple[str, ...]:
        """Why the answer is no, what was not done, and what warns: the sentences of the text."""
        no = refusal(self)
        untimed = not (self.judged or self.wrong)
        return (
            *([no.message] if no else ()),
            *filter(None, [self.trial.doubt]),
            *self.uncalled,
            *([self.built.error.message] if isinstance(self.built, Failed) else ()),
            *([f"not timed: {machine.why_not_measuring().message}"] if untimed else []),
            *([self.unprofiled.message] if self.unprofiled else ()),
            *self.uncompared,
        )

    @property
    def called(self) -> dict[str, str]:
        """What the modules are called, by their names."""
        modules = (self.problem.baseline, *self.problem.references)
        return {module.name: module.called for module in modules}

    @property
    def uncalled(self) -> list[str]:
        """The modules that could not be called on the CPU, each with its reason."""
        return [
            self.renamed(f"{self.called[name]}: not called on the CPU: {why.message}")
            for name, why in self.trial.failures.items()
        ]

    @property
    def uncompared(self) -> list[str]:
        """The references that were not measured, each with its reason."""
        others = {n: why for n, why in self.failures.items() if n != self.problem.baseline.name}
        return [f"not compared with {name}: {why}" for name, why in others.items()]

    @property
    def row(self) -> Row | None:
        return self.judged.row(self.problem.baseline.name) if self.judged else None

    @property
    def references(self) -> tuple[Row, ...]:
        return self.judged.references if self.judged else ()


def attempt(executor: Executor, source: str | Path, asked: AttemptOptions) -> Attempt:
    """Check, time and profile a ``source``: ``FILE``, ``FILE:FUNCTION`` or a folder.

    Where there is no GPU, it is called on the CPU. Raises WorkbenchError for all that is wrong with
    the source or the options.
    """
    typed, function = split(str(source))
    path, function = as_script(typed, function)
    named = {name: getattr(asked, name) for name in (*detect.OPTIONS, "versus")}
    named = {n: tuple(value) if isinstance(value, list) else value for n, value in named.items()}
    there = executor.at_once
    request = Request(path, function, name=asked.keep, elsewhere=there, **named)
    if asked.keep:
        destination = workspace_to_keep(asked.project, asked.keep).root
        require_none(destination, asked.keep)
    with naming(typed, path) as renamed:
        problem = detect.read_problem(request, lambda text: executor.note(f"warning: {text}"))
        problem = in_words_of(problem, renamed)
        root = asked.folder or scratch(request, problem)
        live = executor.gpu is not None
        with executor.reporter.waiting("calling and checking it"):
            done = prepare(executor, problem, root, asked.shape, on_gpu=live)
        done = replace(done, renamed=renamed)
        if live and not done.wrong:
            done = measured(executor, done, asked)
    if done.judged is None and problem.compiles and not live:
        with executor.reporter.waiting("compiling it"):
            workspace, names = find_workspace(root), [problem.baseline.name]
            limit = workspace.config.limits.seconds_per_step
            study = workspace.study(problem.name)
            (built,) = build_only(study, names, ARCH, limit, lambda event: None)
            done = replace(done, built=built)
    return replace(done, kept=kept(done, destination)) if asked.keep else done


MAGIC = re.compile(r"\s*([%!?]|(pip|conda|mamba) install\b)")  # lines of IPython


def as_script(path: Path, wanted: str = "") -> tuple[Path, str]:
    """The code cells of a notebook as a file of Python in the user's cache, and a function in it;
    another file itself.

    Where a cell is ``wanted`` by its number, those up to it, and its own function. The number is
    that of ``In [3]``; in a notebook that was not run, its place among the code cells. Raises
    UsageError for what is no notebook, or no cell with a function to try.
    """
    if path.suffix != ".ipynb" or not path.is_file():
        return path, wanted
    try:
        cells = [cell for cell in json_data(contents(path))["cells"] if cell["cell_type"] == "code"]
        texts = ["".join(cell["source"]) for cell in cells]
    except (ValueError, LookupError, TypeError) as error:
        raise UsageError(f"{path} is no notebook: {error}", hint="name one of Jupyter") from None
    if wanted.isdecimal():
        numbers = [cell.get("execution_count") for cell in cells]
        numbers = numbers if any(numbers) else [*range(1, len(cells) + 1)]
        if numbers.count(int(wanted)) != 1:
            listed = ", ".join(str(number) for number in numbers if number)
            raise UsageError(f"{path.name} has no one cell {wanted}", hint=f"its cells: {listed}")
        del texts[numbers.index(int(wanted)) + 1 :]
    kept = []
    for text in texts:
        lines = [] if text.lstrip().startswith("%%") else text.splitlines()
        python = ("" if MAGIC.match(line) else line for line in lines)
        kept.append("".join(f"{line}\n" for line in python))
    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:8]
    script = cache().resolve() / "notebooks" / name / f"{study_name(path.stem)}.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(script, "".join(kept).encode())
    if wanted.isdecimal():
        with naming(path, script):
            tree = parsed(script)
        above = "".join(kept[:-1]).count("\n")
        tree.body = [node for node in tree.body if node.lineno > above]
        wanted = pick(path, tree, "")
    return script, wanted


@contextmanager
def naming(path: Path, script: Path) -> Iterator[Callable[[str], str]]:
    """Errors inside name a notebook where they have the script that was made of it, and a line of
    that as one of its code; only ``python`` needs the script. Gives what rewords a text so.
    """
    folder, name = re.escape(str(script.parent)), re.escape(script.name)
    of_script = re.compile(rf"(python )?(?<![\w./-])(?:{folder}/)?{name}(?::(\d+))?")

    def reworded(match: re.Match[str]) -> str:
        python, line = match.groups()
        place = f", line {line} of its code" if line else ""
        return f"python {for_shell(script)}" if python else f"{path.name}{place}"

    def renamed(text: str) -> str:
        return text if path == script else of_script.sub(reworded, text)

    try:
        yield renamed
    except WorkbenchError as error:
        error.__notes__ = []
        message, hint = renamed(error.message), renamed(error.hint)
        WorkbenchError.__init__(error, message, hint=hint, ran=error.ran)
        raise


def in_words_of(problem: Problem, renamed: Callable[[str], str]) -> Problem:
    """The problem with what it calls its file, its variants and its reference reworded."""
    modules = (problem.baseline, *problem.references)
    baseline, *references = (replace(one, called=renamed(one.called)) for one in modules)
    return replace(
        problem,
        what=renamed(problem.what),
        title=renamed(problem.title),
        against=renamed(problem.against),
        baseline=baseline,
        references=tuple(references),
    )


def scratch(request: Request, problem: Problem) -> Path:
    """A folder in the user's cache, the same for the same source and options."""
    asked = replace(request, source=Path(), shape="", elsewhere=False)
    text = repr((request.source.resolve(), asked))
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:8]
    return cache() / "try" / f"{problem.name}-{digest}"


def cache() -> Path:
    """Return the folder of the user's cache that is ours."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "workbench"


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
) -> Attempt:
    """Write the workspace, call everything once, and write down what was learned."""
    timed = [name for name, listed in problem.shapes.items() if listed.timed]
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
    allowed = tolerance_of(problem, trial)
    write(problem, root, trial, allowed)
    return Attempt(problem, root, problem.name, name, trial, allowed)


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
    values = {
        **{"literal": literal, "plain": _plain, "toml": _toml},
        **{"problem": problem, "shapes": shapes, "files": literal(tuple(problem.files))},
        **{"trial": trial, "tolerance": tolerance},
    }
    texts = {
        root / CONFIG_FILE: "",
        folder / STUDY_FILE: templates().get_template("try/study.py.j2").render(values),
        ladder: templates().get_template("try/ablation.toml.j2").render(values),
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
    files = literal(tuple(problem.files))
    return f"{header}from workbench.problems import given\n\nFILES = {files}\n{module.text}"


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


def _plain(text: str) -> str:
    return " ".join(text.replace('"""', "'''").replace("\\", "/").split())


def _toml(text: str) -> str:
    """A string of TOML: JSON's escapes are among its own."""
    return literal("".join(c if c.isprintable() else " " for c in text))


def measured(executor: Executor, done: Attempt, asked: AttemptOptions) -> Attempt:
    """Add what the engine makes of it: checked, timed in sessions, profiled."""
    target = find_target(executor, done.folder, done.study, done.shape)
    target = first_look(target) if asked.quick else target
    names = profiled_with(target, [done.problem.baseline.name]).variants
    names = list(dict.fromkeys([*names, *(m.name for m in done.problem.references)]))
    wanted = Wanted(target, names, capture=names, profile=asked.profile)
    ensured = ensure(wanted, fresh=asked.fresh)
    ladder, _ = judged(target, source=ensured.source)
    return replace(done, judged=ladder, failures={**ensured.failures})


MAY_OVERWRITE = (
    "if it may, try a function that copies the input first, or a reference that also returns what "
    "is left there"
)


def refusal(done: Attempt) -> GateFailed | None:
    """Why the answer is no; None for a correct function, and for one that could not be called."""
    called, row = done.problem.baseline.called, done.row
    again = "fix it, and run the command again"
    if row is not None and (row.status == Status.FAILED or row.variant in done.failures):
        why = done.failures.get(row.variant) or sentence(row.problem)
        return GateFailed(f"{done.problem.title}: {done.renamed(why)}", hint=again)
    if (gate := done.wrong_while_timed) is not None:
        return GateFailed(f"{called} is {sentence(gate.why)}", hint=again)
    if done.wrong:
        overwrites = done.trial.in_place and done.wrong == done.trial.refused
        hint = MAY_OVERWRITE if overwrites else again
        return GateFailed(f"{called} is wrong: {done.wrong}", hint=hint)
    if done.verdict == TryVerdict.INACCURATE:
        return GateFailed(
            f"{called} is inaccurate: {done.times_reference_error:.2g}x the error of "
            f"{done.against}",
            hint="sum in float32, or name another reference with --vs",
        )
    return None


KEEPING = ".keeping"  # in ablations/NAME until kernels/NAME is there: left by what was killed


def require_none(root: Path, study: str) -> None:
    """Raises UsageError where the workspace has a study of that name."""
    kernels, ablations = root / "kernels" / study, root / "ablations" / study
    for folder in (kernels, ablations):
        if stands(folder) and (stands(kernels) or not stands(ablations / KEEPING)):
            raise UsageError(
                f"{shown_path(folder)} is there already", hint="keep it under another name"
            )


def kept(done: Attempt, root: Path) -> Path:
    """Copy the study into the workspace, all of it or nothing. Raises UsageError where another
    command was faster.
    """
    parts = [Path(part, done.study) for part in ("ablations", "kernels")]
    mark = parts[0] / KEEPING
    with alone(root), temporary_folder(".workbench-keep-", root) as copy:
        require_none(root, done.study)
        for part in parts:
            for path in sorted((done.folder / part).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    write_bytes(copy / path.relative_to(done.folder), path.read_bytes())
        write_bytes(copy / mark, b"")
        for part in parts:
            require_inside(root / part, root)
            (root / part).parent.mkdir(exist_ok=True)
            if stands(root / part):
                (root / part).rename(copy / "left")
            (copy / part).rename(root / part)
        (root / mark).unlink()
    return root / "kernels" / done.study
