"""The workspace: found by walking up to ``workbench.toml``, or the packaged one."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import Loader
from pathlib import Path
from types import ModuleType

from workbench import bounds
from workbench.errors import UsageError, nearest, unknown
from workbench.study.config import Config, read_config
from workbench.study.files import CONFIG_FILE as CONFIG_FILE
from workbench.study.files import (
    is_plain_name,
    no_file,
    packaged_content,
    read_text,
    resolved,
    stands,
)
from workbench.study.model import EXAMPLE, Ladder, Study, Variant, base_name, read_ladder
from workbench.study.params import find_variant
from workbench.study.users_code import users_code
from workbench.study.values import Shape, Tolerance, ToleranceRule

PACKAGED_EVIDENCE, PACKAGED_REPORTS = "workbench-evidence", "workbench-reports"
LONGEST = 80  # of the name of a folder


def folder_name(names: Sequence[str]) -> str:
    """One that every file system takes, and that leads nowhere else."""
    whole = "+".join(names)
    safe = re.sub(r"[^\w.,=+\[\]-]", "_", whole, flags=re.ASCII).lstrip(".")
    if safe == whole and len(safe) <= LONGEST:
        return safe
    return f"{safe[:LONGEST]}-{hashlib.sha256(whole.encode(errors='replace')).hexdigest()[:8]}"


@dataclass(frozen=True)
class Workspace:
    """``root`` holds kernels and ablations; ``output`` is where reports are written."""

    root: Path
    config: Config
    packaged: bool
    output: Path

    @property
    def kernels(self) -> Path:
        return self.root / "kernels"

    @property
    def ablations(self) -> Path:
        return self.root / "ablations"

    def reports(self, study: Study, shape: str, fixes: Sequence[str] = ()) -> Path:
        """Return the folder of reports: that of the default shape's whole ladder, or one below it
        for any other shape or a part of the ladder, which is called after the steps that were asked
        for.
        """
        folder = PACKAGED_REPORTS if self.packaged else "reports"
        top = self.output / folder / study.name
        top = top if shape == study.default_shape else top / shape
        return top / folder_name(fixes) if fixes else top

    def evidence_base(self, study: str) -> Path:
        """The folder for new evidence: never the installed package."""
        if self.packaged:
            return self.output / PACKAGED_EVIDENCE / study
        return self.ablations / study / "evidence"

    def studies(self) -> list[str]:
        return sorted(p.parent.name for p in self.kernels.glob("*/study.py") if p.is_file())

    def study(self, name: str | None = None) -> Study:
        """The named one, else that of ``workbench.toml``, else the only one. Raises UsageError."""
        return read_study(self, name or self.config.study or self._only_study())

    def _only_study(self) -> str:
        names = self.studies()
        if len(names) == 1:
            return names[0]
        if names:
            raise UsageError(
                f"{self.root / CONFIG_FILE} does not say which study is meant",
                hint=f'write study = "{names[0]}" there, or use --study: {", ".join(names)}',
            )
        raise UsageError(
            f"there is no study in {self.kernels}",
            hint="a study is a folder kernels/NAME with a study.py: `workbench init` makes one",
        )


def find_workspace(project: Path | None = None) -> Workspace:
    """The workspace at ``project``, else the nearest one above the current directory.

    Outside any workspace the built-in one is used, and what is written goes below the current
    directory.
    """
    here, packaged = Path.cwd(), False
    if project is not None:
        if not stands(project / CONFIG_FILE):
            raise UsageError(
                f"no {CONFIG_FILE} in {project}", hint="--project takes a workspace's top folder"
            )
        root = resolved(project)
    else:
        above = [p for p in (here, *here.parents) if stands(p / CONFIG_FILE)]
        packaged = not above
        root = packaged_content() if packaged else above[0]
    output = here if packaged else root
    return Workspace(root, read_config(root / CONFIG_FILE), packaged, output)


def load_module(path: Path, name: str, loader: Loader | None = None) -> ModuleType:
    """Import one file by path under a private name; what it raises is the caller's to word."""
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None:
        raise UsageError(f"cannot import {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


STUDY_PARTS = ("shapes", "default_shape", "tolerance", "inputs", "reference", "work")


def check_study_module(path: Path, module: ModuleType) -> None:
    """Raises UsageError for a study.py that lacks a part, or has one of another kind."""
    for right, wrong, hint in _conditions(module):
        if not right:
            raise UsageError(f"{path}{wrong}", hint=hint)


def _conditions(module: ModuleType) -> Iterator[tuple[bool, str, str]]:
    """Yield what must hold, what is wrong otherwise, and a hint; each builds on those before."""
    for part_name in STUDY_PARTS:
        yield hasattr(module, part_name), f" does not define '{part_name}'", EXAMPLE
    for part_name in ("inputs", "reference", "work"):
        yield callable(getattr(module, part_name)), f": '{part_name}' must be a function", EXAMPLE
    shapes, default = module.shapes, module.default_shape
    yield (
        isinstance(shapes, dict) and all(isinstance(s, Shape) for s in shapes.values()),
        ": 'shapes' must be a dict of name to workbench.Shape",
        'such as shapes = {"large": Shape(n=1024)}',
    )
    for name in shapes:
        yield (
            isinstance(name, str) and name.isprintable() and is_plain_name(name),
            f": the shape {name!r} has no name that a folder can have",
            'write a string without "/", such as "large"',
        )
    yield (
        isinstance(default, str) and default in shapes,
        f": default_shape '{default}' is none of its shapes",
        nearest(str(default), shapes),
    )
    yield (
        isinstance(module.tolerance, Tolerance) or callable(module.tolerance),
        ": 'tolerance' must be a workbench.Tolerance, or a function of a shape",
        "such as tolerance = Tolerance(absolute=1e-3, relative=1e-3)",
    )
    which = {"in_place": "that run() changes", "constant": "that no call finds changed"}
    for part_name, those in which.items():
        names = getattr(module, part_name, ())
        yield (
            isinstance(names, tuple | list) and all(isinstance(name, str) for name in names),
            f": '{part_name}' must be the names of the inputs {those}",
            f'such as {part_name} = ("x",)',
        )
    kinds = getattr(module, "adversarial", {})
    yield (
        isinstance(kinds, dict) and all(map(callable, kinds.values())),
        ": 'adversarial' must be a dict of names to functions",
        "each takes the inputs and a generator, and returns inputs: see docs/variants.md",
    )


def read_study(workspace: Workspace, name: str) -> Study:
    """Raises UsageError for an unknown study, or one whose files do not fit together."""
    folder = workspace.kernels / name
    path = folder / "study.py"
    if not is_plain_name(name) or not stands(path):
        raise unknown("study", name, workspace.studies())
    read_text(path, bounds.SOURCE)  # says what is wrong with the file itself
    with users_code(path, "could not be imported"):
        module = load_module(path, f"workbench_study_{name}")
    with users_code(path, "cannot be used"):
        check_study_module(path, module)
    ladder = read_ladder(workspace.ablations / name / "ablation.toml", name, folder)
    check_shapes(ladder, module.shapes)
    variants = variants_of(ladder, folder)
    return Study(
        name=name,
        folder=folder,
        shapes=module.shapes,
        default_shape=module.default_shape,
        tolerance=_tolerance(path, module.tolerance),
        ladder=ladder,
        variants=variants,
        module=module,
    )


def _tolerance(path: Path, rule: ToleranceRule) -> ToleranceRule:
    """The study's; one that is a function fails as a UsageError with the file and line."""
    if isinstance(rule, Tolerance):
        return rule

    def by_shape(shape: Shape) -> Tolerance:
        with users_code(path, f"has a tolerance() that fails at {shape!r}"):
            bound = rule(shape)
        if not isinstance(bound, Tolerance):
            raise UsageError(
                f"{path}: tolerance() must return a workbench.Tolerance, not {bound!r}",
                hint="such as Tolerance(absolute=1e-3, relative=1e-3)",
            )
        return bound

    return by_shape


def check_shapes(ladder: Ladder, shapes: Mapping[str, Shape]) -> None:
    """Raises UsageError for a step that is judged at a shape where nothing is measured, or that
    drops one that there is none of, and for a part of the ladder at such a one.
    """
    profiled = [name for name in shapes if shapes[name].profiled]
    named: list[tuple[str, str, str, Collection[str]]]
    named = [("'partial' names", name, "shape", shapes) for name in ladder.partial]
    for step in ladder.steps:
        said = f"step '{step.variant}'"
        named += [(f"{said} drops", name, "shape", shapes) for name in step.drops]
        if step.shape:
            named.append((f"{said} is judged at", step.shape, "profiled shape", profiled))
    for said, name, what, choices in named:
        if name not in choices:
            raise UsageError(
                f"{ladder.path}: {said} '{name}', which is no {what} of the study",
                hint=nearest(name, choices),
            )


def variants_of(ladder: Ladder, folder: Path) -> dict[str, Variant]:
    """Return the variants of the steps, then the references. Raises UsageError."""
    names = [step.variant for step in ladder.steps]
    variants_by_base = {
        base: Variant(base, folder / f"{base}.py") for base in map(base_name, names)
    }
    for variant in (*variants_by_base.values(), *ladder.references):
        if why := no_file(variant.module):
            raise UsageError(
                f"{ladder.path} names '{variant.name}', but {variant.module} {why}",
                hint="add the file, or take the name out of ablation.toml",
            )
    variants = {full: find_variant(folder, full, variants_by_base) for full in names}
    for written, variant in variants.items():
        if variant.name != written:
            raise UsageError(f"{ladder.path}: '{written}' is called '{variant.name}'")
    return variants | {reference.name: reference for reference in ladder.references}
