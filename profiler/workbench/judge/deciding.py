"""What is decided while a measurement goes on, as data that another machine can be sent. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.evidence.records import Build, Timing
    from workbench.study.config import Config
    from workbench.study.model import Ladder


@dataclass(frozen=True)
class Deciding:
    """Further sessions while a verdict is open: over the parents of the ladder's ``steps``, or of
    the second of each of ``pairs`` over the first. ``refusing``: a build that the compiler gate
    does not let pass is neither checked nor timed.
    """

    steps: bool = False
    pairs: tuple[tuple[str, str], ...] = ()
    refusing: bool = False

    def undecided(self, ladder: Ladder, config: Config) -> Callable[[Timing], Sequence[str]]:
        """Which variants of a timing to time in as many sessions again."""
        from workbench.judge.open_verdicts import open_pairs, open_variants

        if self.steps:
            return partial(open_variants, ladder=ladder, gates=config.gates)
        return partial(open_pairs, pairs=self.pairs, gate=config.gate)

    def refused(self, config: Config) -> Callable[[Build], str] | None:
        """What says why a build is not worth checking and timing, "" where it is."""
        from workbench.judge.sweep import refusal

        return partial(refusal, gates=config.gates) if self.refusing else None
