"""What the card reaches."""

from __future__ import annotations

from typing import ClassVar

from workbench.evidence.records.base import UNITS, Number, Provenance, Record


class Tried(Record, frozen=True, kw_only=True):
    """A setting of a benchmark and the median of its rounds, in the unit of the ceiling."""

    ran: str
    median: Number


class Ceiling(Record, frozen=True, kw_only=True):
    """``value`` is the median round of the best setting, ``best`` the best of them.

    ``unit`` is FLOP/s or byte/s, ``ran`` says what was run. Clocks in MHz, of the SMs and of the
    memory while it ran; None where not collected.
    """

    unit: str
    value: Number
    best: Number
    rounds: int
    round_ms: Number
    settings: int
    ran: str
    sm_clock_mhz: Number | None
    memory_clock_mhz: Number | None
    temperature_c: Number | None
    throttled: bool
    tried: tuple[Tried, ...]

    def __post_init__(self) -> None:
        if not 0 < self.value < float("inf") or self.unit not in UNITS:
            raise ValueError(f"is {self.value:g} {self.unit}")


class CeilingsFile(Record, frozen=True, kw_only=True):
    """``ceilings.json``: what the card was measured to reach, by id; why others are missing."""

    mend: ClassVar[str] = "run `workbench calibrate` on that GPU again, or delete the file"

    ceilings: dict[str, Ceiling]
    not_collected: dict[str, str]
    provenance: Provenance
