"""Evidence by hand for tests: a snapshot of a made-up ladder, with times and no captures.

steps = [step("base", None), step("fix", "base")]
found = judge(snapshot(steps, {"small": {"base": 20.0, "fix": 10.0}}), Config())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.evidence.records import Build, BuiltKernel, Check, Provenance, Samples, Session
from workbench.judge.inputs import ShapeEvidence, Snapshot, TimingSession, VariantEvidence
from workbench.judge.ladders import shapes_of
from workbench.study.model import Ladder, Step, Variant
from workbench.words import CheckResult, Regime, Status

ROUNDS = 20
WHEN = Provenance(gpu="NVIDIA H200", date="2026-01-02T03:04:05Z", command="workbench ablate")
CURRENT = {
    "build": Status.CURRENT,
    "check": Status.CURRENT,
    "timing": Status.CURRENT,
    "capture": Status.MISSING,
}
Times = Mapping[str, float]


def step(variant: str, parent: str | None, shape: str = "", chooses: Sequence[str] = ()) -> Step:
    return Step(variant, parent, f"what {variant} changes", shape=shape, chooses=tuple(chooses))


def build(variant: str, *, error: str = "") -> Build:
    kernel = BuiltKernel(
        kernel="k",
        registers=32,
        shared_bytes=0,
        stack_bytes=0,
        spill_store_bytes=0,
        spill_load_bytes=0,
        source=f"{variant}.cu",
    )
    return Build(
        variant=variant,
        fingerprint="",
        sources=(kernel.source,),
        arch="sm_90a",
        kernels=(kernel,),
        warnings=(),
        error=error,
        provenance=WHEN,
    )


def check(status: CheckResult = CheckResult.CORRECT, why: str = "") -> Check:
    return Check(status=status, why=why, max_abs=1e-3, relative=1e-4, fingerprint="")


def session(shape: str, times: Times) -> TimingSession:
    """Every variant takes the same microseconds, within a thousandth, in every round."""
    rows = [(name, i, t * (1 + i * 1e-4)) for name, t in times.items() for i in range(ROUNDS)]
    names, rounds, microseconds = zip(*rows, strict=True)
    count = len(rows)
    samples = Samples(
        variant=names,
        mode=(Regime.WARM,) * count,
        round=rounds,
        order=(0,) * count,
        microseconds=microseconds,
        calls=(1,) * count,
        how=("graph",) * count,
        sm_clock_mhz=(None,) * count,
        temperature_c=(None,) * count,
        throttled=(False,) * count,
    )
    record = Session(study="made", shape=shape, fingerprints={}, samples=samples, provenance=WHEN)
    return TimingSession(file=f"{shape}.json", timed=frozenset(times), session=record)


def variant(name: str, shapes: Sequence[str]) -> VariantEvidence:
    """Built, correct at all shapes, and timed."""
    return VariantEvidence(
        variant=name,
        title=name,
        state=CURRENT,
        correct=True,
        build=build(name),
        checks={shape: check() for shape in shapes},
    )


def snapshot(
    steps: Sequence[Step], times: Mapping[str, Times], reference: str = "library"
) -> Snapshot:
    """``times`` are microseconds by shape and variant; the first shape is the study's own."""
    table = next(iter(times))
    assert set(shapes_of(steps, table)) <= set(times)
    names = [*(s.variant for s in steps), reference]
    return Snapshot(
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
                sessions=(session(shape, at),) if at else (),
                variants={name: variant(name, list(times)) for name in names},
                flops=1e9,
            )
            for shape, at in times.items()
        },
    )
