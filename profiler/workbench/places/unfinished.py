"""Sessions that were heard of and are not on record, since their block left nothing: a line of the
journal each, as a run that is ended here leaves one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from workbench.evidence import journal
from workbench.evidence.layout import EvidenceFolder
from workbench.evidence.records import Environment, Timing
from workbench.places.blocks import Block
from workbench.places.merge import Merger
from workbench.run.protocol import Surroundings, Timed, WorkerEvent
from workbench.run.recording import provenance, stamp


@dataclass
class Unfinished:
    """By the name of a block: its card, and the sessions that it has told of."""

    environments: dict[str, Environment] = field(default_factory=dict)
    sessions: dict[str, list[Timed]] = field(default_factory=dict)

    def hear(self, name: str, event: WorkerEvent) -> None:
        match event:
            case Surroundings():
                self.environments[name] = event.environment
            case Timed():
                self.sessions.setdefault(name, []).append(event)

    def forget(self, name: str) -> None:
        self.environments.pop(name, None)
        self.sessions.pop(name, None)

    def note(self, name: str, block: Block, merger: Merger, folder: EvidenceFolder) -> None:
        """In the journal, where there was a session that ratios could have come from."""
        events, environment = self.sessions.get(name, []), self.environments.get(name)
        self.forget(name)
        if not events or environment is None:
            return
        sessions = tuple(event.session for event in events)
        variants = {series.variant for session in sessions for series in session.series}
        timing = Timing(
            study=block.study,
            shape=block.shape,
            fingerprints={v: merger.at(v, block.shape) or "" for v in sorted(variants)},
            nodes={},
            stride=events[-1].stride,
            copies=events[-1].copies,
            sessions=sessions,
            provenance=provenance(environment, command=block.command),
        )
        if timing.together:
            file = f"{stamp(timing.provenance.date)}.json"
            journal.append(folder, journal.timing_entry(file, timing, cut_short=True))
