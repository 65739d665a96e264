"""A GPU MODE task: ``task.yml``, ``reference.py`` and a submission with ``custom_kernel(data)``.

As ``libkernelbot/task.py`` reads it: ``tests`` are checked, ``benchmarks`` timed, the kernel of
``reference.py`` is the reference, and its ``check_implementation`` must accept every output too.
"""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec

from workbench import bounds
from workbench.errors import EnvironmentLacks, UsageError
from workbench.problems import try_options
from workbench.problems.problem import Format, GivenShape, Problem, Request, calling, require
from workbench.problems.user_files import functions, literal, parsed, require_defined
from workbench.study.files import read_text, require_readable, stands
from workbench.study.front_ends import parameters
from workbench.words import OWN_EXTRA, Parameter

TASK = "task.yml"
INSTALL = f"pip install pyyaml, or {OWN_EXTRA.format('problems')}"
SUBMISSION, SUBMITTED = "@SUBMISSION@", "submission.py"
REFERENCE, KERNEL, ENTRY = "reference.py", "ref_kernel", "custom_kernel"
GENERATE, CHECK = "generate_input", "check_implementation"
EVAL = "eval.py"  # how the benchmark times, which is not how it is timed here


class TaskFile(msgspec.Struct, frozen=True):
    """``source`` is where it stands in terms of the folder."""

    name: str
    source: str


class TaskSpec(msgspec.Struct, frozen=True):
    """``task.yml``, as far as it is read here."""

    files: tuple[TaskFile, ...] | None = None
    tests: tuple[dict[str, Parameter], ...] | None = None
    benchmarks: tuple[dict[str, Parameter], ...] | None = None
    lang: str = "py"
    multi_gpu: bool = False


def is_task(request: Request) -> bool:
    """A folder with a ``task.yml``, that file, or a Python file beside one."""
    path = request.source
    folder = path if path.is_dir() else path.parent
    beside = path.is_dir() or path.name == TASK or path.name.startswith("submission")
    return beside and (folder / TASK).is_file()


def read_gpu_mode(request: Request) -> Problem:
    """Raises UsageError for a task that is not for one GPU and in Python, or that lacks a part."""
    path = request.source
    folder = path if path.is_dir() else path.parent
    task = _task(folder / TASK)
    named = request.solution or (path if path.suffix == ".py" else None)
    if named is None and not (folder / SUBMITTED).is_file():
        hint = "--solution FILE names one that stands elsewhere"
        raise UsageError(f"{folder.name}/ has no {SUBMITTED}", hint=hint)
    submission = require(named or folder / SUBMITTED, "file")
    sources = {REFERENCE: REFERENCE, **{file.name: file.source for file in task.files or ()}}
    files = _files(sources, folder, submission)
    reference = parsed(folder / sources[REFERENCE])
    hint = f"a task has {GENERATE}(), {CHECK}() and the reference {KERNEL}()"
    require_defined(folder / sources[REFERENCE], (GENERATE, CHECK, KERNEL), hint)
    require_defined(submission, [ENTRY], f"a submission is a function {ENTRY}(data)")
    names = literal(_unpacked(reference))
    reference_call = calling(
        f"{REFERENCE}:{KERNEL}",
        f'_reference = given.File(__file__, "{REFERENCE}")',
        f"given.call(_reference.{KERNEL}, inputs, data=True)",
        KERNEL,
    )
    if not task.benchmarks:
        hint = "one case under benchmarks: is timed"
        raise UsageError(f"{folder / TASK} has no benchmarks", hint=hint)
    # Cases as they are; what is both test and benchmark is timed.
    shapes = {f"test{i}": GivenShape(case, False) for i, case in enumerate(task.tests or ())}
    shapes |= {f"benchmark{i}": GivenShape(case) for i, case in enumerate(task.benchmarks)}
    timed = [name for name, shape in shapes.items() if shape.timed]
    problem = Problem(
        what=f"{folder.name}/, {FORMAT.label}: {len(shapes) - len(timed)} tests, "
        f"{len(timed)} benchmarks, {submission.name}",
        name=folder.name,
        title=f"{ENTRY} of {submission.name}",
        files=files,
        shapes=shapes,
        default_shape=timed[-1],
        loads=reference_call.loads,
        made=f"given.structured(given.case(_reference.{GENERATE}, shape, generator), {names})",
        expression=reference_call.expression,
        baseline=calling(
            f"{submission.name}:{ENTRY}",
            f'_given = given.File(__file__, "{SUBMITTED}")',
            f"given.call(_given.{ENTRY}, inputs, data=True)",
        ),
        against=reference_call.called,
        accepts=f"given.accepted(_reference.{CHECK}, inputs, out)",
    )
    return try_options.with_references(problem, request, [reference_call])


def _task(path: Path) -> TaskSpec:
    try:
        import yaml
    except ModuleNotFoundError:
        raise EnvironmentLacks(
            f"{path} is YAML, and PyYAML is not installed", hint=INSTALL
        ) from None
    text = read_text(path, bounds.SETTINGS)
    try:
        task = msgspec.convert(yaml.safe_load(text), TaskSpec)
    except msgspec.ValidationError as error:
        hint = "a task has files, tests and benchmarks, each a list"
        raise UsageError(f"{path} is no task: {error}", hint=hint) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # nested; no day of a month
        raise UsageError(f"{path} is no YAML: {error}", hint="fix this line") from None
    if task.lang != "py":
        raise UsageError(
            f"{path} is a task in '{task.lang}'",
            hint="tasks in Python are tried; a kernel of a .cu file is with --launch",
        )
    if task.multi_gpu:
        raise UsageError(f"{path} is a task for several GPUs", hint="one GPU is measured here")
    return task


def _files(sources: dict[str, str], folder: Path, submission: Path) -> dict[str, bytes]:
    contents = {}
    for name, source in sources.items():
        if source == SUBMISSION or name == EVAL:
            continue
        file = folder / source
        if not stands(file):
            raise UsageError(
                f"{folder.name}/{TASK} names {source}, which is not there",
                hint="a task is a folder of its checkout: the files around it belong to it",
            )
        require_readable(file, bounds.BESIDE)
        contents[name] = file.read_bytes()
    return contents | {SUBMITTED: read_text(submission, bounds.SOURCE).encode()}


def _unpacked(tree: ast.Module) -> list[str]:
    """Name the parts of the data as the reference does: by ``a, b, out = data``."""
    node = functions(tree).get(KERNEL)
    assigned = [line for line in ast.walk(node) if isinstance(line, ast.Assign)] if node else []
    data = parameters(node)[:1] if node else []
    targets = [line.targets[0] for line in assigned if [ast.unparse(line.value)] == data]
    names = [ast.unparse(t).strip("()").split(", ") for t in targets if isinstance(t, ast.Tuple)]
    return names[-1] if names and len({*names[-1]}) == len(names[-1]) else []


FORMAT = Format(
    label="a GPU MODE task",
    files="a folder with task.yml",
    priority=60,
    is_of=is_task,
    read=read_gpu_mode,
    options=frozenset({"solution"}),
)
