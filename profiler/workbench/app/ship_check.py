"""``workbench ship --check DIR``: a package's own tests, and its time beside its evidence."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from workbench.app import packaging
from workbench.app.executor import Executor, Task
from workbench.app.shipped_subject import timed
from workbench.derive.speedup import Ratio, at_other_level
from workbench.errors import CannotTell, EnvironmentLacks, GateFailed, UsageError
from workbench.evidence import store
from workbench.evidence.layout import EvidenceFolder, gpu_slug
from workbench.evidence.records import Shipped, ShippedTime
from workbench.judge.commits import time_verdict
from workbench.render.document.sentences import sentence
from workbench.run import machine
from workbench.run.gpu import Gpu
from workbench.run.plan import Plan
from workbench.shipped import facts as facts_files
from workbench.shipped.facts import Facts
from workbench.study.config import Config
from workbench.study.model import Study
from workbench.study.params import pick_shapes
from workbench.study.workspace import CONFIG_FILE, Workspace, find_workspace
from workbench.words import Move

SHIPPED, REFERENCE = "shipped", "reference"
# Both are modules of a study that is made of the package, and timed as any other's.
VARIANT = '''"""The package at {folder}."""

import importlib
import sys

sys.path.insert(0, {folder!r})
package = importlib.import_module({package!r})
if hasattr(package, "serial"):  # in a graph that keeps for itself, the first call does more
    package.serial(True)


def run(**inputs):
    return package.{function}(**inputs, strict=True)
'''
BESIDE = '''"""What the package falls back to."""

from workbench import cuda

reference = cuda.variant({module!r}, **{params!r})


def run(**inputs):
    return reference.run(**inputs)
'''


@dataclass(frozen=True)
class Package:
    """A package's folder, and what is on record in it."""

    folder: Path
    facts: Facts
    shipped: Shipped

    @property
    def source(self) -> Path:
        return self.folder / "torch-ext"

    @property
    def changed(self) -> list[str]:
        """Files that are not those that were shipped, and those that are gone."""
        here = packaging.digests(self.folder)
        return [name for name, digest in self.shipped.files.items() if here.get(name) != digest]


def opened(folder: Path) -> Package:
    """Raises UsageError for a folder that is no package of ``workbench ship``."""
    found = sorted(folder.glob(f"torch-ext/*/{facts_files.FILE}"))
    if len(found) != 1:
        raise UsageError(
            f"{folder} is no package of `workbench ship`",
            hint="--check takes the folder that has pyproject.toml and torch-ext/ in it",
        )
    try:
        facts = facts_files.read(found[0])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{found[0]} is damaged: {error}", hint="ship it again") from None
    return Package(folder, facts, store.read(found[0].parent / packaging.PROVENANCE, Shipped))


def workspace_of(package: Package, root: Path) -> None:
    """A workspace with the package as the first step of a study, and its fallback beside it."""
    facts = package.facts
    kernels = root / "kernels" / facts.study
    ladder = root / "ablations" / facts.study
    kernels.mkdir(parents=True)
    ladder.mkdir(parents=True)
    carried = package.source / facts.package / "kernels" / facts.study
    for path in sorted(carried.rglob("*")):
        if path.is_file() and path.name != "__init__.py" and "__pycache__" not in path.parts:
            target = kernels / path.relative_to(carried)
            target.parent.mkdir(parents=True, exist_ok=True)
            data = path.read_bytes()
            if path.suffix == ".py":
                data = packaging.of_the_workbench(data.decode()).encode()
            target.write_bytes(data)
    given = {
        "folder": str(package.source.resolve()),
        "package": facts.package,
        "function": facts.function,
        "module": facts.reference,
        "params": dict(facts.reference_params),
    }
    (kernels / f"{SHIPPED}.py").write_text(VARIANT.format(**given))
    text = f'schema_version = 1\n\n[[step]]\nvariant = "{SHIPPED}"\nkey_change = "as shipped"\n'
    if facts.reference:
        (kernels / f"{REFERENCE}.py").write_text(BESIDE.format(**given))
        title = "what the package falls back to"
        text += f'\n[[reference]]\nvariant = "{REFERENCE}"\ntitle = "{title}"\nprimary = true\n'
    (ladder / "ablation.toml").write_text(text)
    (root / CONFIG_FILE).write_text(f'study = "{facts.study}"\n')


@contextmanager
def study_of(package: Package) -> Iterator[Study]:
    """In a workspace that goes away."""
    with tempfile.TemporaryDirectory(prefix="workbench-") as scratch:
        workspace_of(package, Path(scratch))
        yield find_workspace(Path(scratch)).study(package.facts.study)


def measured(
    executor: Executor, study: Study, shape: str, gpu: Gpu, payer: Workspace
) -> ShippedTime:
    """Checked and timed on the GPU at hand, in as many sessions as a doubtful verdict takes.
    Raises GateFailed where it is wrong.
    """
    names = tuple(n for n in (SHIPPED, REFERENCE) if n in study.variants)
    timing = payer.config.timing
    sessions = min(2 * timing.sessions, timing.max_sessions)
    config = replace(payer.config, timing=replace(timing, sessions=sessions))
    folder = EvidenceFolder(study.folder / "evidence" / gpu.slug)
    task = Task(payer, study, config, folder, Plan(shape, timed=names))
    (result,) = executor.measure([task])
    wrong = {**result.unsupported, **result.failures}
    if SHIPPED in wrong:
        raise GateFailed(f"at {shape} it is not timed: {wrong[SHIPPED]}")
    file = task.evidence.timing(names)
    found = timed(file.timing, SHIPPED, REFERENCE) if file else None
    if found is None:
        raise GateFailed(f"at {shape} there is no time of it")
    return found


def quotient(now: ShippedTime, then: ShippedTime) -> Ratio | None:
    """How many times as fast it is now, each over its reference; the intervals are independent, so
    that their half widths add up in squares, of logarithms. It is of the higher level of the two.
    """
    if now.ratio is None or then.ratio is None:
        return None
    value = now.ratio / then.ratio
    sessions = min(now.sessions, then.sessions)
    level = max(now.level, then.level)
    halves = [half_width(one, level) for one in (now, then)]
    known = [half for half in halves if half is not None]
    if len(known) < len(halves):
        return Ratio(value, None, None, sessions, level=level)
    width = math.exp(math.hypot(*known))
    return Ratio(value, value / width, value * width, sessions, level=level)


def half_width(time: ShippedTime, level: int) -> float | None:
    """Of the logarithm of its ratio, at this level; None where it has no interval."""
    if not (time.low and time.high and time.low > 0):
        return None
    known = math.log(time.high / time.low) / 2
    return at_other_level(known, level, level=time.level, drawn=time.sessions)


@dataclass(frozen=True)
class Compared:
    """A time measured now beside the one on record; ``move`` is what became of it, and ``slower``
    is None where that is not known.
    """

    now: ShippedTime
    on_record: ShippedTime | None
    why: str
    move: Move | None = None
    slower: bool | None = None


def compared(now: ShippedTime, package: Package, gpu: Gpu, config: Config) -> Compared:
    """Its ratio over the reference now and then: a card's clock is in both sides of each."""
    shipped = package.shipped
    then = next((time for time in shipped.times if time.shape == now.shape), None)
    there = shipped.environment.gpu or ""
    if gpu.slug != gpu_slug(there):
        return Compared(now, then, f"its evidence is of {there}, and this is {gpu.name}")
    if then is None:
        return Compared(now, None, f"there is no time on record at {now.shape}")
    ratio = quotient(now, then)
    if ratio is None:
        return Compared(now, then, "there is no ratio over its reference on record")
    move, told = time_verdict(ratio, config.gate)
    why = sentence(told)
    if move != Move.CANNOT_TELL:
        return Compared(now, then, why, move, move == Move.SLOWER)
    if ratio.low is not None and ratio.low >= 1 / (1 + config.gate.margin):
        return Compared(now, then, f"{why} whether it is faster", move, False)
    return Compared(now, then, why, move)


TEST_SECONDS = 1800.0
TAIL = 25  # lines of what the tests printed


def tested(package: Package) -> str:
    """The last line of what its tests print. Raises GateFailed where one fails."""
    if machine.package_version("pytest") is None:
        raise EnvironmentLacks("pytest is not installed, so its tests cannot run")
    if missing := machine.missing_to_run():
        raise EnvironmentLacks(f"its tests need {' and '.join(missing)}")
    paths = [str(package.source), os.environ.get("PYTHONPATH", "")]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
            cwd=package.folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TEST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise GateFailed(f"its tests take longer than {TEST_SECONDS:g} s") from None
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines()
    if done.returncode != 0:
        raise GateFailed(
            "\n".join(["its tests fail", *lines[-TAIL:]]),
            hint=f"pytest {package.folder / 'tests'} with {package.source} on PYTHONPATH",
        )
    return lines[-1].strip("= ") if lines else "no tests"


@dataclass(frozen=True)
class PackageCheck:
    """What its tests said, which files are not as shipped, and its time, None where there is no
    GPU.
    """

    opened: Package = field(repr=False)
    package: str
    study: str
    variant: str
    tests: str
    changed: list[str]
    compared: Compared | None


def check(
    executor: Executor, folder: Path, project: Path | None, shape: str | None
) -> PackageCheck:
    """Run the tests of the package in ``folder``, and time it where there is a GPU."""
    package = opened(folder.absolute())
    payer = find_workspace(project)
    gpu: Gpu | None = None
    with suppress(EnvironmentLacks):
        gpu = executor.require_gpu()
    found: Compared | None = None
    with study_of(package) as study:
        study, shape = shape_of(study, package, shape)
        told = tested(package)
        if gpu is not None:
            executor.note(f"timing it at {shape}, beside what it falls back to")
            now = measured(executor, study, shape, gpu, payer)
            found = compared(now, package, gpu, payer.config)
    name, shipped = package.facts.package, package.shipped
    return PackageCheck(package, name, shipped.study, shipped.variant, told, package.changed, found)


def shape_of(study: Study, package: Package, shape: str | None) -> tuple[Study, str]:
    """Raises UsageError for a shape that the study has not, or where nothing is timed."""
    (picked, *more), _ = pick_shapes(study, shape or package.shipped.judged_at)
    if more or picked.name not in study.shapes or not study.shapes[picked.name].profiled:
        raise UsageError(
            f"--shape '{shape}' is no shape at which the package is timed",
            hint="one of: " + ", ".join(time.shape for time in package.shipped.times),
        )
    return picked.study, picked.name


def require_as_shipped(done: PackageCheck) -> None:
    """Raises GateFailed where it is slower than its evidence or a file is another, EnvironmentLacks
    where it was not timed, CannotTell where the times do not tell.
    """
    changed, found = done.changed, done.compared
    if found is not None and found.slower:
        raise GateFailed(
            f"{done.package} is slower than its evidence: {found.why}",
            hint="the card may be in use or hot: try again; another torch has another reference",
        )
    if changed:
        raise GateFailed(
            f"{len(changed)} files are not as they were shipped: {', '.join(changed)}",
            hint="its evidence is of other files: ship it again",
        )
    if found is None:
        lacks = machine.why_not_calibrating()
        raise EnvironmentLacks(
            f"its tests passed, and nothing was timed: {lacks.message if lacks else ''}",
            hint="the same command times it where there is a GPU; ncu it does not need",
        )
    if found.slower is None:
        raise CannotTell(
            f"whether it is as fast as its evidence: {found.why}",
        )
