"""Evidence by hand for tests: a snapshot of a made-up ladder, with times and captures that hold no
more than what bears the times out.

steps = [step("base", None), step("fix", "base")]
found = judge(snapshot(steps, {"small": {"base": 20.0, "fix": 10.0}}), Config())
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from made_records import build_of, built_kernel, made_index
from workbench.derive.figures import figures
from workbench.evidence.records import (
    Audit,
    Build,
    CaptureIndex,
    Check,
    GraphNode,
    Provenance,
    Series,
    Session,
    Timing,
)
from workbench.load import LadderEvidence, ShapeEvidence, TimedTogether, VariantEvidence
from workbench.ncu.capture import Capture, KeptTables, Launched
from workbench.study.model import Ladder, Step, Variant, shapes_of
from workbench.study.values import Work
from workbench.words import CheckResult, NodeKind, Regime, Status

SESSIONS, INSTANCES, ROUNDS = 5, 4, 3
AROUND = 3.5  # microseconds of the neighbours by themselves
MHZ = 1980.0
SLOWER = {Regime.CHAINED: 1.0, Regime.BACK_TO_BACK: 0.95, Regime.COLD: 1.4}
WHEN = Provenance(gpu="NVIDIA H200", date="2026-01-02T03:04:05Z", command="workbench ablate")
CURRENT = {
    "build": Status.CURRENT,
    "check": Status.CURRENT,
    "timing": Status.CURRENT,
    "capture": Status.MISSING,
}
Times = Mapping[str, float]


def step(variant: str, parent: str | None, **own: Any) -> Step:
    return Step(variant, parent, f"what {variant} changes", **own)


TWO_STEPS = [step("base", None), step("fix", "base")]
THEIR_TIMES = {"base": 20.0, "fix": 10.0, "library": 15.0}


def build(variant: str, *, error: str = "") -> Build:
    kernel = built_kernel(source=f"{variant}.cu")
    return build_of(kernel, variant=variant, sources=(kernel.source,), error=error, provenance=WHEN)


def check(status: CheckResult = CheckResult.CORRECT, why: str = "") -> Check:
    return Check(status=status, why=why, max_abs=1e-3, relative=1e-4, fingerprint="")


def series(
    name: str,
    microseconds: float,
    regime: Regime = Regime.CHAINED,
    *,
    instance: int = 0,
    control: bool = False,
    mhz: float = MHZ,
) -> Series:
    """The same in every round; what is around it is not back to back."""
    around = 0.0 if regime == Regime.BACK_TO_BACK else AROUND
    with_neighbours = () if regime == Regime.BACK_TO_BACK else (around,) * ROUNDS
    return Series(
        variant=name,
        instance=instance,
        regime=regime,
        calls=12,
        microseconds=(microseconds + around,) * ROUNDS,
        around=with_neighbours,
        mhz=(mhz,) * ROUNDS,
        around_mhz=(mhz,) * len(with_neighbours),
        control=control,
    )


def session(
    number: int,
    times: Times,
    *,
    regimes: Mapping[Regime, float] = SLOWER,
    controls: Sequence[str] = (),
    spread: float = 1e-3,
    alone: bool = False,
) -> Session:
    """Instances of a variant differ by ``spread`` in all, sessions by another pattern each."""
    groups = [*((name, False) for name in times), *((name, True) for name in controls)]
    return Session(
        number=number,
        instances=INSTANCES,
        series=tuple(
            series(
                name,
                times[name] * slower * (1 + spread * _wobble(place, number, i)),
                regime,
                instance=i,
                control=control,
            )
            for place, (name, control) in enumerate(groups)
            for regime, slower in regimes.items()
            for i in range(INSTANCES)
        ),
        audits=tuple(Audit(variant=name, outputs=INSTANCES, relative=1e-4) for name in times),
        alone=alone,
        throttled=0.0,
    )


def _wobble(place: int, session: int, instance: int) -> float:
    """From -1 to 1, without a pattern that groups share."""
    return ((place * 7919 + session * 104729 + instance * 1299709) % 1009) / 504 - 1


def timing(
    shape: str,
    times: Times,
    *,
    sessions: int = SESSIONS,
    reference: str = "",
    regimes: Mapping[Regime, float] = SLOWER,
    controls: Sequence[str] = (),
    spread: float = 1e-3,
) -> Timing:
    """Some sessions of everything, and one more of the ``reference`` alone, where there is one."""
    found = [
        session(number, times, regimes=regimes, controls=controls, spread=spread)
        for number in range(1, sessions + 1)
    ]
    if reference in times:
        own = {reference: times[reference]}
        found.append(session(sessions + 1, own, regimes=regimes, spread=spread, alone=True))
    return Timing(
        study="made",
        shape=shape,
        fingerprints=dict.fromkeys(times, ""),
        nodes={name: (GraphNode(kind=NodeKind.KERNEL, kernel="k"),) for name in times},
        stride=1,
        sessions=tuple(found),
        provenance=WHEN,
    )


def with_series(known: Timing, change: Callable[[Session, Series], Series | None]) -> Timing:
    """The timing with every series changed, or left out where that is None."""
    changed = ([change(each, one) for one in each.series] for each in known.sessions)
    sessions = (
        msgspec.structs.replace(each, series=tuple(filter(None, series)))
        for each, series in zip(known.sessions, changed, strict=True)
    )
    return msgspec.structs.replace(known, sessions=tuple(sessions))


def with_sessions(known: Timing, **changes: Any) -> Timing:
    """The timing with something of every session changed."""
    sessions = (msgspec.structs.replace(each, **changes) for each in known.sessions)
    return msgspec.structs.replace(known, sessions=tuple(sessions))


def wrongly_timed(known: Timing, name: str, sessions: int = 1) -> Timing:
    """As if outputs of a variant had been zeros in the first of the sessions."""
    first = []
    for each in known.sessions[:sessions]:
        audits = (
            msgspec.structs.replace(audit, why="all zero" if audit.variant == name else "")
            for audit in each.audits
        )
        first.append(msgspec.structs.replace(each, audits=tuple(audits)))
    return msgspec.structs.replace(known, sessions=(*first, *known.sessions[sessions:]))


def with_shape(found: LadderEvidence, shape: str, **changes: Any) -> LadderEvidence:
    """The snapshot with something of a shape changed."""
    changed = dataclasses.replace(found.shapes[shape], **changes)
    return dataclasses.replace(found, shapes={**found.shapes, shape: changed})


def with_timings(found: LadderEvidence, shape: str, *timings: TimedTogether) -> LadderEvidence:
    """The snapshot with other timings at a shape."""
    return with_shape(found, shape, timings=timings)


def with_variant(found: LadderEvidence, shape: str, name: str, **changes: Any) -> LadderEvidence:
    """The snapshot with something of a variant changed at a shape."""
    known = found.shapes[shape].variants
    changed = dataclasses.replace(known[name], **changes)
    return with_shape(found, shape, variants={**known, name: changed})


def together(found: Timing) -> TimedTogether:
    """A timing whose variants are all as they were."""
    return TimedTogether(f"{found.shape}.json", found, frozenset(found.fingerprints))


def capture(microseconds: float) -> Capture:
    """A kernel that took so long, and a byte."""
    launched = Launched("k", (0, 0, 0), (0, 0, 0), 1.0)
    took = ("gpu__time_duration.sum", 1e3 * microseconds, "ns")
    return Capture(Path("r.ncu-repz"), (KeptTables("k", [took], [], [], frozenset(), launched),))


def index(name: str, shape: str) -> CaptureIndex:
    return made_index(name, shape, ncu_flags=("--cache-control", "none"), provenance=WHEN)


def variant(
    name: str, shapes: Sequence[str], shape: str = "", microseconds: float | None = None
) -> VariantEvidence:
    """Built, correct at all shapes, and timed; profiled where it took so many ``microseconds``."""
    captured = None if microseconds is None else capture(microseconds)
    return VariantEvidence(
        variant=name,
        title=name,
        state=CURRENT,
        correct=True,
        build=build(name),
        checks={shape: check() for shape in shapes},
        index=None if microseconds is None else index(name, shape),
        capture=captured,
        figures=figures(captured.metrics) if captured else {},
    )


def snapshot(
    steps: Sequence[Step],
    times: Mapping[str, Times],
    reference: str = "library",
    *,
    captured: bool = True,
    **made: Any,
) -> LadderEvidence:
    """``times`` are microseconds by shape and variant; the first shape is the study's own. Without
    being ``captured`` nothing testifies of them.

    ``made`` are of ``timing``; without any, instances and sessions agree exactly.
    """
    made = {"reference": reference, "spread": 0.0, **made}
    table = next(iter(times))
    assert set(shapes_of(steps, table)) <= set(times)
    names = [*(s.variant for s in steps), reference]
    return LadderEvidence(
        study="made",
        gpu="nvidia-h200",
        ladder=Ladder(
            "made", Path("ablation.toml"), tuple(steps), (Variant(reference, Path()),), reference
        ),
        steps=tuple(steps),
        shape=table,
        default_shape=table,
        shapes={
            shape: ShapeEvidence(
                shape=shape,
                parameters={"size": len(at)},
                timings=(together(timing(shape, at, **made)),) if at else (),
                variants={
                    name: variant(name, list(times), shape, at.get(name) if captured else None)
                    for name in names
                },
                work=Work(flops=0, bytes=1, dtype="float16"),
            )
            for shape, at in times.items()
        },
    )
