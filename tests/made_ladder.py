"""A made-up ablation for tests: plausible numbers, no files, no GPU.

found = ablation(steps=3)                   # baseline, fix1, fix2 (slower), fix3
found = with_row(found, "fix1", capture="") # replace fields of one row
"""

from __future__ import annotations

import dataclasses
from typing import Any

from answers import not_none
from workbench.derive.factors import Factor, LargestChanges, SpeedupFactors
from workbench.derive.figures import Figure, StallTime
from workbench.derive.rooflines import LevelPoint, Peaks, Point
from workbench.derive.speedup import Ratio, Time
from workbench.judge.bottlenecks import Bottleneck, HotLine
from workbench.judge.comparison import Comparison
from workbench.judge.findings import Finding, Gate, finding
from workbench.judge.gates import Accuracy
from workbench.judge.ladder import Ablation
from workbench.judge.provenance import EvidenceEnvironment
from workbench.judge.rows import InRegime, Row, ShapeLadder, best_of
from workbench.judge.session_checks import TimingFacts
from workbench.study.model import Step
from workbench.study.values import Work
from workbench.words import GateState, Origin, Regime, Role, Status, Verdict

CURRENT = dict.fromkeys(("build", "check", "timing", "capture"), Status.CURRENT)
SHAPE = "b2h8s512d64"
PARAMETERS = {"B": 2, "causal": False}
RATES = {"dram": 4.81e12, "fp32": 67.0e12, "tensor fp16": 1073e12, "l2": 10.3e12, "l1": 33.4e12}
CEILINGS = Peaks(1.98e9, RATES)
BASELINE_US, REFERENCE_US, FLOPS = 640.0, 10.4, 1.37e9
SESSIONS, INSTANCES = 5, 4
CAPTURE = "b2h8s512d64-20260102T030405Z.ncu-repz"


def ratio(value: float, spread: float = 0.01) -> Ratio:
    return Ratio(value, value * (1 - spread), value * (1 + spread), SESSIONS)


def time(value: float, regime: Regime = Regime.CHAINED) -> Time:
    return Time(
        value=value,
        low=value * 0.99,
        high=value * 1.01,
        regime=regime,
        sessions=SESSIONS,
        instances=SESSIONS * INSTANCES,
    )


def regimes(microseconds: float, parent: float | None = None) -> dict[Regime, InRegime]:
    """Ratios are the same in both of them."""
    times = {Regime.CHAINED: 1.0, Regime.COLD: 1.5}
    return {
        regime: InRegime(
            microseconds=time(microseconds * slower, regime),
            speedup_over_baseline=ratio(BASELINE_US / microseconds),
            speedup_over_parent=ratio(parent / microseconds) if parent else None,
            speedup_over_reference=ratio(REFERENCE_US / microseconds),
            speedup_over_fastest=ratio(REFERENCE_US / microseconds),
            fastest="sdpa",
        )
        for regime, slower in times.items()
    }


def point(microseconds: float, intensity: float = 400.0, *, tensor: bool = False) -> Point:
    rate = FLOPS / (microseconds * 1e-6)
    compute = RATES["tensor fp16" if tensor else "fp32"]
    bound = min(compute, intensity * RATES["dram"])
    kind = "tensor" if tensor else "fp32"
    limit = "compute" if bound == compute else "dram"
    bandwidths = {"dram": RATES["dram"], "l2": 10.3e12, "l1": 33.4e12}
    levels = tuple(
        LevelPoint(
            name=name,
            flop_per_byte=flop_per_byte,
            share_of_bandwidth=rate / flop_per_byte / bandwidth,
            roof_flops_per_second=min(compute, flop_per_byte * bandwidth),
            bytes_per_second=rate / flop_per_byte,
        )
        for (name, bandwidth), flop_per_byte in zip(
            bandwidths.items(), (intensity, intensity / 2, intensity / 10), strict=True
        )
    )
    return Point(
        flop_per_byte=intensity,
        flops_per_second=rate,
        roof_flops_per_second=bound,
        arithmetic=kind,
        flops=FLOPS,
        above_roof=rate > 1.05 * bound,
        limit=limit,
        share_of_arithmetic_peak=rate / compute,
        levels=levels,
    )


def comparison(before: str, after: str, old: float, new: float) -> Comparison:
    """Of two durations in microseconds under ncu: all of the change is fewer instructions."""
    gain = old / new
    executed = "smsp__inst_executed.sum"
    instructions = ("Warp instructions per scheduler", "inst", 1000.0, 1000.0 / gain, gain)
    factors = (
        Factor("instructions", *instructions, executed),
        Factor("clock", "Clock", "GHz", 1.98, 1.98, 1.0, "clock"),
    )
    times = (
        StallTime("long_scoreboard", 0.7 * old, 0.4 * new),
        StallTime("selected", 0.3 * old, 0.6 * new),
    )
    return Comparison(
        before=before,
        after=after,
        decomposition=SpeedupFactors(old, new, gain, factors),
        stall_microseconds=times,
        largest_changes=LargestChanges((), ()),
    )


def figures(microseconds: float) -> dict[str, Figure]:
    return {
        "duration": Figure("duration", "Duration", 1.5 * microseconds, "µs", "ncu__d", "lower"),
        "achieved_occupancy": Figure("achieved_occupancy", "Occupancy", 6.25, "%", "ncu__o"),
    }


def bottleneck(title: str = "Long Scoreboard Stalls", file: str = "baseline.cu") -> Bottleneck:
    line = HotLine(f"/workbench/kernels/attention/{file}", 30, "long_scoreboard", 0.71)
    return Bottleneck(
        title=title,
        estimated_speedup_pct=75.1,
        scope="global",
        part=1.0,
        hot_line=line,
    )


def stall_mix(microseconds: float) -> dict[str, float]:
    """The slower, the more of its time waits for global memory."""
    waiting = min(0.8, 0.1 + 0.001 * microseconds)
    rest = 1 - waiting
    return {
        "long_scoreboard": waiting,
        "selected": 0.5 * rest,
        "wait": 0.5 * rest,
    }


def step(variant: str, parent: str | None) -> Step:
    return Step(
        variant,
        parent,
        f"key change of {variant}",
        lesson=f"what {variant} taught",
    )


def measured(
    variant: str, microseconds: float, *, intensity: float = 400.0, tensor: bool = False
) -> Row:
    """A variant with times and figures, and nothing said of it."""
    stalls = stall_mix(microseconds)
    return Row(
        variant=variant,
        title=f"Reference {variant}",
        step=None,
        evidence_state=CURRENT,
        status=Status.CURRENT,
        regimes=regimes(microseconds),
        accuracy=Accuracy(times_reference=1.25, shape=SHAPE),
        figures=figures(microseconds),
        stalls=stalls,
        bottlenecks=(bottleneck(file=f"{variant}.cu"),),
        roofline=point(microseconds * 1.5, intensity, tensor=tensor),
        capture=CAPTURE,
        kernels=("attention_forward",),
    )


def reference(variant: str, microseconds: float, intensity: float) -> Row:
    row = measured(variant, microseconds, intensity=intensity, tensor=True)
    return dataclasses.replace(row, role=Role.REFERENCE)


def saying(text: str) -> Finding:
    """A finding that reads like that."""
    return finding("stopped", text, text=text)


GATES = (Gate("correct", GateState.PASSED, saying("max error 0.00041 over 3 shapes")),)


def baseline(microseconds: float = BASELINE_US) -> Row:
    return dataclasses.replace(
        measured("baseline", microseconds),
        title="",
        step=step("baseline", None),
        gates=GATES,
        verdict=Verdict.BASELINE,
    )


def judged(row: Row, parent: Row) -> Row:
    """A step against its parent: kept where it is faster, and then its prediction came true."""
    assert parent.time is not None
    old, new = parent.time.value, not_none(row.time).value
    over = ratio(old / new)
    assert over.low is not None
    kept = over.low >= 1.03
    why = f"lower end {over.low:.3f}x {'≥' if kept else '<'} 1.03x over the parent"
    return dataclasses.replace(
        row,
        title="",
        step=step(row.variant, parent.variant),
        regimes=regimes(new, old),
        deciding_speedup=over,
        gates=(*GATES, Gate("faster", GateState.PASSED if kept else GateState.FAILED, saying(why))),
        verdict=Verdict.KEPT if kept else Verdict.SLOWER,
        against_parent=comparison(parent.variant, row.variant, 1.5 * old, 1.5 * new),
    )


def steps_of(count: int) -> list[Row]:
    """Every step is 1.9 times its parent's speed, but every third from the second is slower."""
    rows = [baseline()]
    parent, now = rows[0], BASELINE_US
    for i in range(1, count + 1):
        bad = i % 3 == 2
        took = now * 1.04 if bad else now / 1.9
        row = judged(measured(f"fix{i}", took, intensity=400 - 12 * i, tensor=i > 3), parent)
        rows.append(row)
        if not bad:
            parent, now = row, took
    return rows


ENVIRONMENT = EvidenceEnvironment(
    ncu_flags=("--set", "full", "--clock-control", "none", "--cache-control", "none"),
)
TIMING = TimingFacts(
    most=5,
    file="20260102T030405Z.json",
    sessions=SESSIONS,
    instances=INSTANCES,
    rounds=6,
    alone=1,
    copies=1,
    controls=(),
    interference=None,
    throttling=None,
)
REFERENCES = (
    ("sdpa", 1.0, 344.0),
    ("sdpa_flash", 1.33, 146.0),
    ("sdpa_cudnn", 1.01, 344.0),
    ("sdpa_efficient", 2.22, 343.0),
)


def ablation(steps: int = 3, *, references: int = 4, **changes: Any) -> Ablation:
    """See ``steps_of``; the ladder of its one shape is made of its rows."""
    rows = tuple(steps_of(steps))
    others = tuple(
        reference(name, REFERENCE_US * slower, at) for name, slower, at in REFERENCES[:references]
    )
    best = not_none(best_of(rows))
    whole = comparison("baseline", best.variant, 1.5 * BASELINE_US, 1.5 * not_none(best.time).value)
    found = Ablation(
        study="attention",
        title="Attention forward",
        summary="",
        shape=SHAPE,
        parameters=PARAMETERS,
        gpu="NVIDIA H200",
        source=Origin.RECORDED,
        date="2026-01-02",
        reference="sdpa",
        rows=rows,
        references=others,
        ceilings=CEILINGS,
        environment=ENVIRONMENT,
        timing_file="20260102T030405Z.json",
        warnings=(),
        whole=whole if steps else None,
        ladders=(
            ShapeLadder(
                shape=SHAPE, parameters=PARAMETERS, rows=rows, references=others, timing=TIMING
            ),
        ),
        timing=TIMING,
        work=Work(FLOPS, 1.0, "float16"),
    )
    return dataclasses.replace(found, **changes)


def with_row(found: Ablation, variant: str, **changes: Any) -> Ablation:
    """The ablation with some fields of one row replaced."""
    return _put(found, dataclasses.replace(found.row(variant), **changes))


def not_current(found: Ablation, variant: str, status: str, problem: str) -> Ablation:
    """The ablation with one row stale, missing or failed, as the judge would make it."""
    old = found.row(variant)
    verdict = Verdict.WRONG if status == "failed" else Verdict.INCONCLUSIVE
    row = Row(
        variant=variant,
        title=old.title,
        step=old.step,
        evidence_state=CURRENT,
        status=Status(status),
        problem=saying(problem),
        verdict=verdict if old.step and old.step.parent else old.verdict,
        role=old.role,
    )
    return _put(found, row)


def _put(found: Ablation, new: Row) -> Ablation:
    return dataclasses.replace(
        found,
        rows=_with(found.rows, new),
        references=_with(found.references, new),
        ladders=tuple(
            dataclasses.replace(
                ladder, rows=_with(ladder.rows, new), references=_with(ladder.references, new)
            )
            for ladder in found.ladders
        ),
    )


def _with(rows: tuple[Row, ...], new: Row) -> tuple[Row, ...]:
    return tuple(new if row.variant == new.variant else row for row in rows)
