"""Both commits measured at once: checked, timed in the same sessions, profiled in one ncu."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from workbench.commands import elsewhere
from workbench.commands.measuring import perform
from workbench.commands.sides import Side
from workbench.commands.target import profiled_shape
from workbench.derive.figures import Figure, figures
from workbench.derive.speedup import wrong_outputs
from workbench.errors import BadCapture
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.recorded import Evidence
from workbench.judge.commits import Timed
from workbench.judge.deciding import Deciding
from workbench.judge.differences import AtCommit
from workbench.judge.inputs import TimedTogether
from workbench.judge.open_verdicts import timed_pair
from workbench.judge.sessions import timing_facts
from workbench.ncu.captures import Captures
from workbench.run.joint import join, older
from workbench.run.plan import Plan
from workbench.study.config import for_study
from workbench.study.workspace import Workspace
from workbench.words import HEADLINE


@dataclass(frozen=True)
class Together:
    """What came of it: the evidence of the joint study, and why variants of it failed."""

    evidence: Evidence
    failures: Mapping[str, str] = field(default_factory=dict)

    def at(self, known: AtCommit, name: str) -> AtCommit:
        """With what was measured of it; ``name`` is what it is called in the joint study."""
        index = self.evidence.capture_index(name).current
        return replace(
            known,
            figures=self._figures(name),
            index=index or known.index,
            wrong=self.failures.get(name, "") or self._wrong_while_timed(name),
        )

    def _wrong_while_timed(self, name: str) -> str:
        file = self.evidence.timing([name])
        why = wrong_outputs(file.timing.sessions).get(name, "") if file else ""
        return why and f"wrong while it was timed: {why}"

    def _figures(self, name: str) -> dict[str, Figure]:
        try:
            capture = Captures(self.evidence).of(name)
        except BadCapture:
            return {}
        return figures(capture.metrics) if capture else {}

    def timed(self, variant: str) -> Timed | None:
        """The newer over the older; None where they were not timed in the same sessions."""
        names = (older(variant), variant)
        file = self.evidence.timing(names)
        if file is None:
            return None
        together = TimedTogether(
            file.name, frozenset(self.evidence.timed(file.timing)), file.timing
        )
        facts = timing_facts(together, "")
        found = timed_pair(file.timing, *names)
        twins = [t for t in facts.twins if t.regime == HEADLINE] if facts else []
        return replace(found, twins=tuple(twins)) if found else None


def measure_together(
    base: Side,
    head: Side,
    variants: Sequence[str],
    *,
    shape: str | None,
    tier: int,
    folder: Path,
    payer: Workspace,
) -> Together:
    """``variants`` are those that both commits have and that are not known to be the same; counters
    at ``tier`` 1, at 2 times as well. ``shape`` is as the user gave it, ``payer`` the workspace
    whose budget it is. Ctrl-C leaves with 130.
    """
    gpu = elsewhere.gpu()
    assert gpu is not None
    control = control_of(base, head)
    workspace = join(folder, base.study, head.study, head.workspace.root, variants, control)
    picked = profiled_shape(workspace.study(head.study.name), shape)
    study, name = picked.study, picked.name
    plan = plan_of(variants, control, name, tier)
    target = EvidenceFolder(workspace.evidence_base(study.name) / gpu.slug)
    config = for_study(workspace.config, study.ladder)
    deciding = Deciding(pairs=tuple((older(variant), variant) for variant in variants))
    job = elsewhere.Job(payer, study, config, target, plan, deciding, tuple(plan.variants))
    result = perform(job)
    return Together(job.evidence, {**result.unsupported, **result.failures})


def plan_of(variants: Sequence[str], control: str, shape: str, tier: int) -> Plan:
    """The pairs, and the control beside them where times are taken."""
    pairs = [name for variant in variants for name in (older(variant), variant)]
    timed = ([control] if control else []) + pairs if tier > 1 else []
    return Plan(shape, checked=tuple(pairs), timed=tuple(timed), captured=tuple(pairs))


def control_of(base: Side, head: Side) -> str:
    """The first step that is the same at both commits; "" where every one changed."""
    for step in head.study.ladder.steps:
        name = step.variant
        if name in base.names and base.prints.of_sources(name) == head.prints.of_sources(name):
            return name
    return ""
