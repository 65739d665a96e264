"""Files of older schemas, read as the records of today."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

from workbench.evidence.records import Provenance, Record, Samples, Series, Session, Timing
from workbench.words import Regime

R = TypeVar("R", bound=Record)
REGIMES = {"warm": Regime.BACK_TO_BACK, "cold": Regime.COLD}  # by the modes that there were


class SamplesOfSession(Record, frozen=True, kw_only=True):
    """A timing file of schema 1: one process, one instance of every variant, many rounds."""

    study: str
    shape: str
    fingerprints: dict[str, str]
    samples: Samples
    provenance: Provenance


def timing(old: SamplesOfSession) -> Timing:
    """One session of one instance each, back to back and cold: nothing of it is chained.

    Its clocks were read between the rounds, not inside of the graphs: they are left out.
    """
    samples = old.samples
    rows: dict[tuple[str, str], list[int]] = {}
    for row in sorted(range(len(samples.round)), key=samples.round.__getitem__):
        if samples.mode[row] not in REGIMES:
            continue
        rows.setdefault((samples.variant[row], samples.mode[row]), []).append(row)
    temperatures = [t for t in samples.temperature_c if t is not None]
    known = [t for t in samples.throttled if t is not None]
    session = Session(
        number=1,
        instances=1,
        series=tuple(
            Series(
                variant=variant,
                instance=0,
                regime=REGIMES[mode],
                calls=samples.calls[of[0]],
                microseconds=tuple(samples.microseconds[row] for row in of),
            )
            for (variant, mode), of in rows.items()
        ),
        temperature_c=temperatures[-1] if temperatures else None,
        throttled=sum(known) / len(known) if known else None,
    )
    return Timing(
        study=old.study,
        shape=old.shape,
        fingerprints=old.fingerprints,
        nodes={},
        stride=1,
        sessions=(session,),
        provenance=old.provenance,
    )


@dataclass(frozen=True)
class Older(Generic[R]):
    """How a kind of record stood, and what makes it one of today."""

    kind: type[Record]
    converted: Callable[..., R]


OLDER: Mapping[tuple[type[Record], int], Older[Record]] = MappingProxyType(
    {(Timing, 1): Older(SamplesOfSession, timing)}
)
