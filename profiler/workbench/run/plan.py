"""What is to be measured, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from workbench.run.protocol import Broken, Learned


@dataclass(frozen=True)
class Plan:
    """What to measure at one shape.

    ``checked`` are built and compared with the reference, ``timed`` also timed together in
    sessions, ``captured`` profiled in one ncu. ``proven``: those that are timed were checked
    before, by whoever planned this. ``everywhere``: checked at every shape of the study, and not
    at those alone that always are; ``here``: not at these either, where they just were.
    """

    shape: str
    checked: tuple[str, ...] = ()
    timed: tuple[str, ...] = ()
    captured: tuple[str, ...] = ()
    proven: bool = False
    everywhere: bool = False
    here: bool = False

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys([*self.checked, *self.timed, *self.captured]))

    @property
    def built(self) -> list[str]:
        """Those of the first worker; the others are only profiled."""
        timed = () if self.proven else self.timed
        return list(dict.fromkeys([*self.checked, *timed]))


@dataclass
class Measured:
    """What came out besides the files: failures by variant with hints, what was written, and the
    seconds of each part of the run.

    A variant that does not support the shape, or whose build was ``refused``, has not failed, and
    is neither timed nor captured. ``told`` is what a job came to that leaves no evidence.
    """

    failures: dict[str, str] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)
    unsupported: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    written: list[Path] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    told: Learned | Broken | None = None
    interrupted: bool = False

    @property
    def out(self) -> set[str]:
        return {*self.failures, *self.unsupported, *self.refused}
