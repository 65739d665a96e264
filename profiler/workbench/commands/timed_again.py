"""A shipped package, opened, and timed as the variant of a study that is made of it."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer

from workbench.commands import packaging
from workbench.commands.measuring import INTERRUPTED
from workbench.commands.progress import Progress
from workbench.commands.shipped_evidence import timed
from workbench.derive.intervals import LEVEL_AGAIN, Ratio, at_other_level
from workbench.errors import GateFailed, UsageError
from workbench.evidence import store
from workbench.evidence.layout import EvidenceFolder, gpu_slug
from workbench.evidence.recorded import Evidence
from workbench.evidence.records import Shipped, ShippedTime, Timing
from workbench.judge.commits import time_verdict
from workbench.run import machine
from workbench.run.measure import Measurement
from workbench.run.plan import Plan
from workbench.shipped import facts as facts_files
from workbench.shipped.facts import Facts
from workbench.study.config import Config
from workbench.study.workspace import CONFIG_FILE, find_workspace
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


def measured(package: Package, shape: str, config: Config) -> ShippedTime:
    """Checked and timed on the GPU at hand, in sessions. Raises GateFailed where it is wrong."""
    gpu = machine.find_gpu()
    assert gpu is not None
    with tempfile.TemporaryDirectory(prefix="workbench-") as scratch:
        root = Path(scratch)
        workspace_of(package, root)
        study = find_workspace(root).study(package.facts.study)
        names = tuple(n for n in (SHIPPED, REFERENCE) if n in study.variants)
        folder = EvidenceFolder(root / "evidence" / gpu.slug)
        with Progress(0, config.timing.sessions) as progress:
            plan = Plan(shape, timed=names)
            undecided = partial(still_open, package=package, config=config)
            result = Measurement(study, config, folder, plan, progress, undecided).run()
        if result.interrupted:
            raise typer.Exit(INTERRUPTED)
        wrong = {**result.unsupported, **result.failures}
        if SHIPPED in wrong:
            raise GateFailed(f"at {shape} it is not timed: {wrong[SHIPPED]}")
        file = Evidence(study, shape, folder).timing(names)
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
    drawn = time.cards if time.cards > 1 else time.sessions
    return at_other_level(math.log(time.high / time.low) / 2, level, level=time.level, drawn=drawn)


@dataclass(frozen=True)
class Compared:
    """A time measured now beside the one on record; ``move`` is what became of it, and ``slower``
    is None where that is not known.
    """

    now: ShippedTime
    then: ShippedTime | None
    move: Move | None
    slower: bool | None
    why: str


def compared(now: ShippedTime, package: Package, config: Config) -> Compared:
    """Its ratio over the reference now and then: a card's clock is in both sides of each."""
    shipped = package.shipped
    then = next((time for time in shipped.times if time.shape == now.shape), None)
    gpu = machine.find_gpu()
    here, there = gpu.name if gpu else "", shipped.environment.gpu or ""
    if gpu_slug(here) != gpu_slug(there):
        return Compared(now, then, None, None, f"its evidence is of {there}, and this is {here}")
    if then is None:
        return Compared(now, None, None, None, f"there is no time on record at {now.shape}")
    ratio = quotient(now, then)
    if ratio is None:
        return Compared(now, then, None, None, "there is no ratio over its reference on record")
    move, why = time_verdict(ratio, config.gate)
    if move != Move.CANNOT_TELL:
        return Compared(now, then, move, move == Move.SLOWER, why)
    within = ratio.low is not None and ratio.low >= 1 / (1 + config.gate.margin)
    if within:
        return Compared(now, then, move, False, f"{why} whether it is faster")
    return Compared(now, then, move, None, why)


def is_too_wide(then: ShippedTime, config: Config) -> bool:
    """On record, by itself, at the level that holds where sessions are added: none can tell."""
    half = half_width(then, LEVEL_AGAIN)
    return half is not None and half > math.log(1 + config.gate.margin)


def best_known(package: Package) -> ShippedTime | None:
    """The time on record whose ratio over the reference has the narrowest interval."""
    halves = [(half_width(time, LEVEL_AGAIN), time) for time in package.shipped.times]
    known = [(half, time) for half, time in halves if half is not None]
    return min(known, key=lambda pair: pair[0])[1] if known else None


def still_open(timing: Timing, package: Package, config: Config) -> Sequence[str]:
    """Both of them while more sessions may tell whether it is slower, for as many again."""
    now = timed(timing, SHIPPED, REFERENCE)
    found = compared(now, package, config) if now else None
    if found is None or found.move is None or found.slower is not None:
        return []
    if found.then is not None and is_too_wide(found.then, config):
        return []
    return [n for n in (SHIPPED, REFERENCE) if n in timing.fingerprints]
