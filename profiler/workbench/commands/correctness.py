"""Whether variants are correct at a commit: by its own recorded checks, else checked here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.commands import elsewhere
from workbench.commands.measuring import perform
from workbench.commands.sides import Side
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.recorded import Evidence
from workbench.judge.gates import HARMLESS
from workbench.run.plan import Plan
from workbench.study.workspace import Workspace


@dataclass(frozen=True)
class Correct:
    """``is_correct`` is None where it cannot be told; ``why`` says what is wrong, or why not."""

    is_correct: bool | None
    why: str = ""
    recorded: bool = True


def correctness(
    side: Side, names: Sequence[str], folder: Path, payer: Workspace
) -> dict[str, Correct]:
    """Of variants by name. ``folder`` takes what is checked here, ``payer`` is the workspace whose
    budget it is. Ctrl-C leaves with 130.
    """
    found = {name: _recorded(side, name) for name in names}
    left = [name for name in names if name in side.names and found[name].is_correct is None]
    if left and (gpu := elsewhere.gpu()) is not None:
        target = EvidenceFolder(folder / gpu.slug)
        known = Evidence(side.study, side.study.default_shape, target)
        plan = Plan(known.shape, checked=tuple(left))
        perform(elsewhere.Job(payer, side.study, side.workspace.config, target, plan))
        found |= {name: _checked(known, name) for name in left}
    return found


def _recorded(side: Side, name: str) -> Correct:
    if name not in side.names:
        return Correct(None, "is not there")
    if side.evidence is None or side.evidence.check(name).current is None:
        return Correct(None, "no check of these sources is on record")
    wrong = side.wrong(name)
    return Correct(not wrong, wrong)


def _checked(evidence: Evidence, name: str) -> Correct:
    """What does not compile is neither right nor wrong."""
    build = evidence.build(name).current
    if build is not None and build.error:
        return Correct(None, f"does not compile: {build.error.splitlines()[0]}", recorded=False)
    checks = {s: evidence.check(name, s).current for s in evidence.study.shapes}
    known = {shape: check for shape, check in checks.items() if check is not None}
    if not known:
        return Correct(None, "was not checked", recorded=False)
    bad = {shape: check for shape, check in known.items() if check.status not in HARMLESS}
    why = next((f"{check.status} at {shape}: {check.why}" for shape, check in bad.items()), "")
    return Correct(not bad, why, recorded=False)
