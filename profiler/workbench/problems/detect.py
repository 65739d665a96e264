"""Find the format of a file or folder: a built-in one, or one of an installed package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import entry_points

from workbench.errors import ToolFailed, UsageError, WorkbenchError
from workbench.problems import (
    cuda_file,
    flashinfer_bench,
    gpu_mode,
    kernelbench,
    nsight_python,
    python_function,
)
from workbench.problems.problem import Format, Problem, Request, require
from workbench.problems.user_files import study_name
from workbench.study.foreign_files import kind_of
from workbench.study.front_ends import require_configuration
from workbench.study.users_code import in_words, prints_to_stderr

GROUP = "workbench.problems"
BUILT_IN = (
    *(gpu_mode.FORMAT, kernelbench.FORMAT, nsight_python.FORMAT, python_function.FORMAT),
    *(cuda_file.FORMAT, cuda_file.HOST_FUNCTION, flashinfer_bench.FORMAT, cuda_file.LIBRARY),
)
OPTIONS = ("arguments", "inputs", "outputs", "launch", "workload", "solution", "range")
Tell = Callable[[str], None]


def formats(tell: Tell) -> list[Format]:
    """All of them, the highest priority first. A package whose format cannot be loaded is named to
    ``tell``, and passed over.
    """
    all_formats = list(BUILT_IN)
    for entry in entry_points(group=GROUP):
        package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
        try:
            with prints_to_stderr():
                offered = entry.load()
            if not isinstance(offered, Format):
                raise TypeError(f"{entry.value} is of type {type(offered).__name__}, not Format")
        except (Exception, SystemExit) as error:
            tell(f"{package}: its problem format '{entry.name}' is left out: {in_words(error)}")
        else:
            all_formats.append(replace(offered, package=package))
    return sorted(all_formats, key=lambda each: -each.priority)


def read_problem(request: Request, tell: Tell = lambda text: None) -> Problem:
    """The problem that was asked for, under a name that a study can have. Raises UsageError, with a
    way out, for what is of no format, and ToolFailed where the format of a package breaks.
    """
    request = replace(request, source=require(request.source))
    all_formats = formats(tell)
    chosen = next((one for one in all_formats if _is_of(one, request, tell)), None)
    if chosen is None:
        raise _of_none(request, all_formats)
    for option in OPTIONS:
        if getattr(request, option) and option not in chosen.options:
            others = [candidate.label for candidate in all_formats if option in candidate.options]
            name = "-- ARGUMENTS" if option == "arguments" else f"--{option.removesuffix('s')}"
            raise UsageError(
                f"{name} says nothing to {chosen.label}, as {request.source.name} is one",
                hint=f"it belongs to {' or '.join(others)}; leave it out",
            )
    try:
        problem = chosen.read(request)
    except Exception as error:
        if isinstance(error, WorkbenchError) or not chosen.package:
            raise
        raise ToolFailed(
            f"{chosen.package} fails to read {request.source.name}: {in_words(error)}",
            hint=f"report it to its authors, or uninstall it: pip uninstall {chosen.package}",
        ) from error
    for file, data in problem.files.items():
        if file.endswith(".py"):
            require_configuration(file, data.decode(errors="replace"))
    name = request.name or study_name(problem.name)
    return replace(problem, name=name, kind=problem.kind or chosen.label)


def _is_of(candidate: Format, request: Request, tell: Tell) -> bool:
    try:
        return candidate.is_of(request)
    except Exception as error:
        if isinstance(error, WorkbenchError) or not candidate.package:
            raise
        tell(f"{candidate.package}: {candidate.label} is left out: {in_words(error)}")
        return False


def _of_none(request: Request, all_formats: list[Format]) -> UsageError:
    path = request.source
    listed = ", ".join(f"{candidate.label} ({candidate.files})" for candidate in all_formats)
    hint = f"what can be tried: {listed}"
    if path.is_dir():
        python = sorted(p.name for p in path.glob("*.py"))
        hint = f"name a file in it, such as {python[0]}" if python else hint
        return UsageError(f"{path} is a folder without a {gpu_mode.TASK}", hint=hint)
    if kind := kind_of(path):
        return UsageError(f"{path.name} is {kind[0]}, which cannot be tried", hint=kind[1])
    if ".ncu-rep" in path.name:
        hint = "`workbench show` and `workbench diff` read captures"
    return UsageError(f"{path.name} is nothing that can be tried", hint=hint)
