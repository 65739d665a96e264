"""``ceilings.json``: what the card was measured to reach, written by ``workbench calibrate``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import UsageError
from workbench.evidence.layout import EvidenceFolder, read_json
from workbench.run.machine import gpu_slug

AGAIN = "run `workbench calibrate` on that GPU again, or delete the file"
UNITS = ("FLOP/s", "byte/s")


@dataclass(frozen=True)
class CeilingRecord:
    """One ceiling: ``value`` is the median round of its best setting, ``best`` the best of them.

    ``unit`` is FLOP/s or byte/s; clocks in MHz, of the SMs and of the memory while it ran, None
    where not collected; ``ran`` says what was run.
    """

    id: str
    unit: str
    value: float
    best: float
    rounds: int
    ran: str
    sm_clock_mhz: float | None
    memory_clock_mhz: float | None = None


@dataclass(frozen=True)
class Calibration:
    """The ceilings of one GPU by id: dram, l2, l1, fp32, fp64, half, ``tensor <type>``.

    ``absent`` says why others were not collected.
    """

    gpu: str
    date: str
    ceilings: Mapping[str, CeilingRecord]
    absent: Mapping[str, str] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def value(self, name: str) -> float | None:
        """FLOP/s or byte/s; None where not collected."""
        found = self.ceilings.get(name)
        return found.value if found else None

    @property
    def values(self) -> dict[str, float]:
        return {name: found.value for name, found in self.ceilings.items()}


def load_calibration(folder: EvidenceFolder) -> Calibration | None:
    """None without a file. Raises UsageError for one that is damaged or of another GPU."""
    path = folder.ceilings
    if not path.is_file():
        return None
    data = read_json(path)
    try:
        gpu, date = str(data["provenance"]["gpu"]), str(data["provenance"]["date"])
        found = {name: _measured(name, entry) for name, entry in data["ceilings"].items()}
        absent = {str(name): str(why) for name, why in data["not_collected"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path} is damaged: {_why(error)}", hint=AGAIN) from None
    if gpu_slug(gpu) != folder.gpu:
        raise UsageError(f"{path} is of another GPU: {gpu}", hint=AGAIN)
    return Calibration(gpu, date, found, absent, data["provenance"])


def _why(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)


def _measured(name: str, entry: Mapping[str, Any]) -> CeilingRecord:
    value, best = float(entry["value"]), float(entry["best"])
    if not 0 < value < float("inf") or entry["unit"] not in UNITS:
        raise ValueError(f"{name} is {value:g} {entry['unit']}")
    return CeilingRecord(
        name,
        entry["unit"],
        value,
        best,
        int(entry["rounds"]),
        str(entry["ran"]),
        _clock(entry["sm_clock_mhz"]),
        _clock(entry["memory_clock_mhz"]),
    )


def _clock(mhz: float | None) -> float | None:
    return None if mhz is None else float(mhz)
