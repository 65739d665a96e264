"""The measured ceilings of a GPU, as ``workbench calibrate`` wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from workbench.errors import UsageError
from workbench.evidence import store
from workbench.evidence.layout import EvidenceFolder, gpu_slug, is_there
from workbench.evidence.records import Ceiling, CeilingsFile


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

    def value(self, name: str) -> float | None:
        """FLOP/s or byte/s; None where not collected."""
        ceiling = self.ceilings.get(name)
        return ceiling.value if ceiling else None

    @property
    def values(self) -> dict[str, float]:
        return {name: ceiling.value for name, ceiling in self.ceilings.items()}


def load_calibration(folder: EvidenceFolder) -> Calibration | None:
    """None without a file. Raises UsageError for one that is damaged or of another GPU."""
    path = folder.ceilings
    if not is_there(path):
        return None
    file = store.read(path, CeilingsFile)
    gpu = file.provenance.gpu
    if gpu is None:
        raise UsageError(f"{path} is damaged: 'provenance' has no 'gpu'", hint=CeilingsFile.mend)
    if gpu_slug(gpu) != folder.gpu:
        raise UsageError(f"{path} is of another GPU: {gpu}", hint=CeilingsFile.mend)
    return Calibration(
        gpu=gpu,
        date=file.provenance.date,
        ceilings={name: _named(name, ceiling) for name, ceiling in file.ceilings.items()},
        absent=file.not_collected,
    )


def _named(name: str, ceiling: Ceiling) -> CeilingRecord:
    return CeilingRecord(
        id=name,
        unit=ceiling.unit,
        value=ceiling.value,
        best=ceiling.best,
        rounds=ceiling.rounds,
        ran=ceiling.ran,
        sm_clock_mhz=ceiling.sm_clock_mhz,
        memory_clock_mhz=ceiling.memory_clock_mhz,
    )
