"""The timed samples behind the times of a ladder. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workbench.judge.inputs import Snapshot
from workbench.judge.times import Times, main_session
from workbench.words import Regime


def timed_samples(snapshot: Snapshot) -> Mapping[str, Mapping[str, Sequence[float]]]:
    """Microseconds by variant and regime, in the order of their rounds, at the snapshot's shape."""
    table = snapshot.shapes[snapshot.shape]
    times = Times(evidence=table, session=main_session(table, snapshot.names), resamples=0)
    return {name: _by_regime(times, name) for name in snapshot.names}


def _by_regime(times: Times, variant: str) -> Mapping[str, Sequence[float]]:
    known = {regime: times.samples(variant, regime) for regime in Regime}
    return {regime: samples.microseconds.tolist() for regime, samples in known.items() if samples}
