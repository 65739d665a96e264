"""A problem written as a workspace with one study: its first step, references, and the files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from workbench.errors import UsageError
from workbench.problems.problem import STUDY_FILE, Module, Problem
from workbench.problems.user_files import literal
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
    texts = {
        root / CONFIG_FILE: "",
        folder / STUDY_FILE: study_text(problem, trial, tolerance),
        ladder: ladder_text(problem),
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
        f"{header}from workbench.problems import given\n\n"
        f"FILES = {literal(tuple(problem.files))}\n{module.text}"
    )


def _plain(text: str) -> str:
    return " ".join(text.replace('"""', "'''").replace("\\", "/").split())


def study_text(problem: Problem, trial: Learned, tolerance: Tolerance) -> str:
    shapes = "".join(
        f"    {literal(name)}: Shape({_shape(shape.parameters, shape.timed, name, problem)}),\n"
        for name, shape in problem.shapes.items()
    )
    plain = problem.expression
    exact, changed = problem.exact or plain, "" if problem.itself else ", in_place"
    if problem.itself:
        exact, plain = (f"given.afterwards(inputs, {one}, in_place)" for one in (exact, plain))
    accepts = (
        f"\n\ndef accepts(inputs, out):\n"
        f'    """Why the format\'s own check refuses an output."""\n    return {problem.accepts}\n'
        if problem.accepts
        else ""
    )
    return f'''"""{_plain(problem.title)}: {_plain(problem.what)}.

Written by `workbench try`.
"""

from workbench import Shape, Tolerance, Work
from workbench.problems import given

FILES = {literal(tuple(problem.files))}
DESTINATIONS = {literal(trial.destinations)}  # what is only written into, and made anew
EXACT = {trial.exact}  # whether the reference is computed in float64
BYTES = {literal(dict(trial.bytes))}  # of inputs and outputs, by shape

shapes = {{
{shapes}}}
default_shape = {literal(problem.default_shape)}
tolerance = Tolerance(absolute={tolerance.absolute:.6g}, relative={tolerance.relative:.6g})
in_place = {literal(trial.in_place)}
structured = {trial.structured}  # inputs are scaled as a whole

{problem.loads}


def inputs(shape, generator):
    made = {problem.made}
    return given.without(made, DESTINATIONS)


def exact(inputs):
    return given.exact(lambda inputs: {exact}, inputs{changed})


def plain(inputs):
    return given.plain(lambda inputs: {plain}, inputs{changed})


def reference(**inputs):
    return exact(inputs) if EXACT else plain(inputs)


def work(shape):
    return Work(flops=0, bytes=BYTES.get(repr(shape), 0), dtype={literal(trial.dtype)})
{accepts}'''


def _shape(parameters: Mapping[str, object], timed: bool, name: str, problem: Problem) -> str:
    flags: dict[str, object] = {} if timed else {"profiled": False}
    if timed and name != problem.default_shape:
        flags["captured"] = False
    are_names = all(k.isidentifier() and k not in ("profiled", "captured") for k in parameters)
    written = {**flags, **parameters} if are_names else flags
    more = [] if are_names else [f"**{literal(dict(parameters))}"]
    return ", ".join([*(f"{key}={literal(value)}" for key, value in written.items()), *more])


def ladder_text(problem: Problem) -> str:
    references = "".join(
        f"\n[[reference]]\nvariant = {_toml(module.name)}\ntitle = {_toml(module.called)}\n"
        + ("primary = true\n" if index == 0 else "")
        for index, module in enumerate(problem.references)
    )
    return (
        f"schema_version = 1\ntitle = {_toml(problem.title)}\n\n[[step]]\n"
        f"variant = {_toml(problem.baseline.name)}\n"
        f"key_change = {_toml(f'as given: {problem.baseline.called}')}\n{references}"
    )


def _toml(text: str) -> str:
    """A string of TOML: JSON's escapes are among its own."""
    return literal("".join(c if c.isprintable() else " " for c in text))
