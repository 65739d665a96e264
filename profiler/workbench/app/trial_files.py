"""A problem written as a workspace with one study: its first step, references, and the files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from workbench.errors import UsageError
from workbench.problems.problem import STUDY_FILE, GivenShape, Module, Problem
from workbench.problems.user_files import literal
from workbench.render.templates import templates
from workbench.run.protocol import Learned
from workbench.study.files import CONFIG_FILE, require_inside, write_bytes
from workbench.study.values import Tolerance

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
