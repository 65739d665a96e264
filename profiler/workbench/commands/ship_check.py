"""``workbench ship --check DIR``: a package's own tests, and its time beside its evidence."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from workbench.commands.options import ShipOptions
from workbench.commands.printing import say, show_json
from workbench.commands.progress import note
from workbench.commands.timed_again import (
    Compared,
    Package,
    best_known,
    compared,
    is_too_wide,
    measured,
    opened,
    workspace_of,
)
from workbench.derive.intervals import Ratio
from workbench.errors import CannotTell, EnvironmentLacks, GateFailed, UsageError
from workbench.evidence.records import ShippedTime
from workbench.render.numbers import interval, microseconds
from workbench.run import machine
from workbench.study.config import Config
from workbench.study.shapes import pick_shapes
from workbench.study.workspace import find_workspace
from workbench.words import Move

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


def check(options: ShipOptions) -> None:
    """Leaves with 1 where a test fails, a file is another, or it is slower than its evidence."""
    assert options.check is not None
    package = opened(options.check.absolute())
    config = find_workspace(options.project).config
    shape = shape_of(package, options.shape)
    told = tested(package)
    changed = package.changed
    found: Compared | None = None
    if machine.why_not_calibrating() is None:
        note(f"timing it at {shape}, beside what it falls back to")
        found = compared(measured(package, shape, config), package, config)
    if options.json:
        show_json(as_data(package, told, changed, found))
    else:
        say(*lines(package, told, changed, found))
    finish(package, changed, found, config)


def shape_of(package: Package, shape: str | None) -> str:
    """Raises UsageError for a shape that the study has not, or where nothing is timed."""
    with tempfile.TemporaryDirectory(prefix="workbench-") as scratch:
        workspace_of(package, Path(scratch))
        study = find_workspace(Path(scratch)).study(package.facts.study)
        (picked, *more), _ = pick_shapes(study, shape or package.shipped.judged_at)
    if more or picked.name not in study.shapes or not study.shapes[picked.name].profiled:
        raise UsageError(
            f"--shape '{shape}' is no shape at which the package is timed",
            hint="one of: " + ", ".join(time.shape for time in package.shipped.times),
        )
    return picked.name


def lines(package: Package, told: str, changed: list[str], found: Compared | None) -> list[str]:
    shipped = package.shipped
    first = f"{package.facts.package}: {shipped.variant} of {shipped.study}, shipped {shipped.date}"
    shown = [first, f"  tests: {told}"]
    if changed:
        shown.append(f"  not as shipped: {', '.join(changed)}")
    if found is not None:
        shown.append(f"  now: {words(found.now)}")
        if found.then is not None:
            shown.append(f"  on record: {words(found.then)}, {shipped.environment.gpu}")
        shown.append(f"  {verdict(found)}: {found.why}")
    return shown


def verdict(found: Compared) -> str:
    if found.move is None:
        return "not compared"
    open_but_for_one_side = found.move == Move.CANNOT_TELL and found.slower is False
    return "not slower" if open_but_for_one_side else found.move


def words(time: ShippedTime) -> str:
    text = f"{microseconds(time.microseconds)} at {time.shape}"
    if time.ratio is None:
        return text
    ratio = Ratio(time.ratio, time.low, time.high, time.sessions, level=time.level)
    told = interval(ratio) if time.low and time.high else f"{time.ratio:.3g}x"
    return f"{text}, {told} of {time.reference}"


def as_data(
    package: Package, told: str, changed: list[str], found: Compared | None
) -> dict[str, Any]:
    return {
        "package": package.facts.package,
        "study": package.shipped.study,
        "variant": package.shipped.variant,
        "tests": told,
        "changed": changed,
        "move": found.move if found else None,
        "slower": found.slower if found else None,
        "why": found.why if found else None,
        "now": msgspec.to_builtins(found.now) if found else None,
        "on_record": msgspec.to_builtins(found.then) if found and found.then else None,
    }


def finish(package: Package, changed: list[str], found: Compared | None, config: Config) -> None:
    """The exit code, with what goes along on stderr."""
    if found is not None and found.slower:
        raise GateFailed(
            f"{package.facts.package} is slower than its evidence: {found.why}",
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
            hint=where_it_can_be_told(package, found, config),
        )


def where_it_can_be_told(package: Package, found: Compared, config: Config) -> str:
    """The hint; empty where that is no question of the shape."""
    best = best_known(package)
    if found.move is None or found.then is None or best is None:
        return ""
    if not is_too_wide(found.then, config) or is_too_wide(best, config):
        return ""
    return (
        f"its ratio on record is too wide at {found.then.shape} by itself, whatever is measured"
        f" now: `--shape {best.shape}` has the narrowest"
    )
