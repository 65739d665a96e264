"""What the library's calls judge: as the verbs do, with nothing printed and no report written."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.commands.measuring import ensure
from workbench.commands.profile import wanted
from workbench.commands.target import Target
from workbench.commands.track_record import with_record
from workbench.evidence.recorded import Evidence
from workbench.judge.inputs import Snapshot
from workbench.judge.ladder import judge
from workbench.judge.rows import Ablation
from workbench.judge.snapshot import snapshot
from workbench.study.config import Config
from workbench.words import Origin


def on_record(
    evidence: Evidence,
    config: Config,
    source: Origin = Origin.RECORDED,
    only: Sequence[str] = (),
) -> tuple[Ablation, Snapshot]:
    """The whole ladder, or ``only`` some of it, judged by the evidence as it is."""
    seen = snapshot(evidence, evidence.study.ladder.chain([]), only=only)
    return judge(seen, config, source=source), seen


def profiled(target: Target, name: str, fresh: bool) -> tuple[Ablation, Snapshot]:
    """One variant, profiled. Ctrl-C leaves with 130."""
    todo = wanted(target, [name])
    ensured = ensure(target, todo.variants, fresh=fresh, capture=todo.capture)
    judged, seen = on_record(target.evidence(), target.workspace.config, ensured.source, [name])
    return with_record(judged, target), seen
