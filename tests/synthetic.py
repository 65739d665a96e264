"""A made-up ablation for tests: plausible numbers, no files, no GPU.

found = ablation(steps=3)                       # baseline, fix1, fix2 (rejected), fix3
found = with_row(found, "fix1", status="stale") # replace fields of one row
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from workbench.derive.factors import Factor, SpeedupFactors
from workbench.derive.figures import Figure, stall_label
from workbench.derive.roofline.ceilings import Ceilings
from workbench.derive.roofline.point import LevelPoint, Point
from workbench.derive.speedup import Ratio, Time
from workbench.derive.stalls import StallTime
from workbench.derive.standouts import Standout, Standouts
from workbench.judge.bottlenecks import Bottleneck, HotLine
from workbench.judge.comparison import Comparison
from workbench.judge.gates import Gate, PredictionOutcome
from workbench.judge.rows import Ablation, Row
from workbench.judge.rules import RuleChange
from workbench.study.model import Prediction, Step
from workbench.words import Verdict

CURRENT = {"build": "current", "check": "current", "timing": "current", "capture": "current"}
CEILINGS = Ceilings(dram=4.81e12, fp32=67.0e12, tensor=1073e12, l2=10.3e12, l1=33.4e12)
BASELINE_US, REFERENCE_US, FLOPS = 640.0, 10.4, 1.37e9
CAPTURE = "b2h8s512d64-20260102T030405Z.ncu-repz"


def ratio(value: float, spread: float = 0.01) -> Ratio:
    return Ratio(value, value * (1 - spread), value * (1 + spread))


def time(median: float, mode: str = "warm") -> Time:
    return Time(median, median * 0.98, median * 1.03, mode, 100)


def point(microseconds: float, intensity: float = 400.0, *, tensor: bool = False) -> Point:
    rate = FLOPS / (microseconds * 1e-6)
    compute = CEILINGS.tensor if tensor and CEILINGS.tensor else CEILINGS.fp32
    bound = min(compute, intensity * CEILINGS.dram)
    kind = "tensor" if tensor else "fp32"
    limit = "compute" if bound == compute else "dram"
    bandwidths = {"dram": CEILINGS.dram, "l2": 10.3e12, "l1": 33.4e12}
    levels = tuple(
        LevelPoint(
            name,
            flop_per_byte,
            rate / flop_per_byte / bandwidth,
            min(compute, flop_per_byte * bandwidth),
        )
        for (name, bandwidth), flop_per_byte in zip(
            bandwidths.items(), (intensity, intensity / 2, intensity / 10), strict=True
        )
    )
    return Point(
        intensity,
        rate,
        bound,
        kind,
        FLOPS,
        rate > 1.05 * bound,
        limit,
        rate / compute,
        levels,
        "fp16" if tensor else "",
    )


def comparison(before: str, after: str, was: float, came: float) -> Comparison:
    """Of two durations in microseconds under ncu: all of the change is fewer instructions."""
    gain = was / came
    factors = (
        Factor(
            "instructions",
            "Warp instructions per scheduler",
            "inst",
            1000.0,
            1000.0 / gain,
            gain,
            "smsp__inst_executed.sum",
        ),
        Factor("issue_rate", "Issue rate while active", "inst/cycle", 0.5, 0.5, 1.0, "rate"),
        Factor("active", "Share of the time active", "%", 90.0, 90.0, 1.0, "active"),
        Factor("clock", "Clock", "GHz", 1.98, 1.98, 1.0, "clock"),
    )
    times = (
        StallTime("long_scoreboard", 0.7 * was, 0.4 * came),
        StallTime("selected", 0.3 * was, 0.6 * came),
    )
    move = Standout(
        "warp_instructions",
        "Warp instructions",
        64.0,
        64.0 / gain,
        "M",
        "smsp__inst_executed.sum",
        50.0,
        1.0,
        "warp instructions per scheduler",
    )
    rules = (
        RuleChange("CPIStall", "Long Scoreboard Stalls", "global", "vanished", 75.1, math.nan),
        RuleChange("CPIStall", "Wait Stalls", "global", "appeared", math.nan, 31.0),
    )
    anatomy = SpeedupFactors(before, after, was, came, gain, factors)
    return Comparison(before, after, anatomy, times, Standouts((move,), (), ()), rules)


def figures(microseconds: float, stalls: dict[str, float]) -> dict[str, Figure]:
    plain = [
        ("duration", "Duration under ncu", microseconds * 1.5, "µs", "lower"),
        ("sm_clock", "SM clock", 1.98, "GHz", ""),
        ("dram_bandwidth", "DRAM bandwidth", 2000 / microseconds, "GB/s", "higher"),
        ("dram_pct", "DRAM throughput", 41.6 / microseconds, "% of peak", "higher"),
        ("achieved_occupancy", "Achieved occupancy", 6.25, "%", ""),
        ("l2_hit", "L2 hit rate", 90.0, "%", "higher"),
        ("issue_active", "Issue rate", 77 / microseconds, "inst/cycle", "higher"),
        ("warp_instructions", "Warp instructions", 0.1 * microseconds, "M", "lower"),
        ("registers", "Registers per thread", 167.0, "register", "lower"),
        ("shared_conflicts", "Shared memory bank conflicts", 0.0, "M", "lower"),
    ]
    found = {
        k: Figure(k, label, value, unit, f"ncu__{k}.sum", better)
        for k, label, value, unit, better in plain
    }
    for reason, share in stalls.items():
        key, label = f"stall.{reason}", f"Stall: {stall_label(reason)}"
        found[key] = Figure(key, label, 100 * share, "% of samples", f"ncu__{reason}", "lower")
    return found


def bottleneck(title: str = "Long Scoreboard Stalls", file: str = "baseline.cu") -> Bottleneck:
    line = HotLine(f"/workbench/kernels/attention/{file}", 30, "long_scoreboard", 0.71)
    message = "On average, each warp spends 6.3 cycles waiting for a scoreboard dependency."
    return Bottleneck(
        title,
        "CPIStall",
        "smsp__issue_active.avg.per_cycle_active",
        0.12,
        75.1,
        "global",
        message,
        "attention_forward",
        line,
    )


def row(
    variant: str,
    parent: str | None,
    microseconds: float,
    judged: str,
    *,
    before: float = 0.0,
    intensity: float = 400.0,
    tensor: bool = False,
    reference: bool = False,
) -> Row:
    waiting = min(0.8, 0.1 + 0.001 * microseconds)
    rest = 1 - waiting
    stalls = {
        "long_scoreboard": waiting,
        "selected": 0.5 * rest,
        "wait": 0.3 * rest,
        "barrier": 0.15 * rest,
        "short_scoreboard": 0.05 * rest,
    }
    step = (
        None
        if reference
        else Step(
            variant,
            parent,
            f"key change of {variant}",
            bottleneck=f"what held {parent} back",
            rationale=f"why {variant} should help",
            lesson=f"what {variant} taught",
            predictions=(Prediction("time", (0.25, 0.5), None),),
        )
    )
    over_parent = ratio(before / microseconds) if parent else None
    gates: tuple[Gate, ...] = (
        Gate("correct", True, "max error 0.00041 over 3 shapes"),
        Gate("compiler", True, "no warning, no spill"),
    )
    predictions: tuple[PredictionOutcome, ...] = ()
    if over_parent is not None and judged in (Verdict.KEPT, Verdict.REJECTED):
        passed = judged == Verdict.KEPT
        why = f"lower end {over_parent.low:.3f}x {'≥' if passed else '<'} 1.03x over the parent"
        gates += (Gate("faster", passed, why),)
        result = "confirmed" if passed else "refuted"
        predictions = (
            PredictionOutcome("time", "Time", "µs", "0.25 to 0.5x", before, microseconds, result),
        )
    return Row(
        variant,
        "" if step else f"Reference {variant}",
        step,
        CURRENT,
        "current",
        warm=time(microseconds),
        cold=time(microseconds * 1.5, "cold"),
        over_baseline=ratio(BASELINE_US / microseconds),
        over_parent=over_parent,
        over_reference=ratio(REFERENCE_US / microseconds),
        figures=figures(microseconds, stalls),
        stalls=stalls,
        limiters=("registers",),
        bottlenecks=(bottleneck(file=f"{variant}.cu"),),
        point=point(microseconds * 1.5, intensity, tensor=tensor),
        gates=() if reference else gates,
        verdict="" if reference else judged,
        predictions=predictions,
        capture=CAPTURE,
        kernels=("attention_forward",),
        against_parent=comparison(parent, variant, 1.5 * before, 1.5 * microseconds)
        if parent
        else None,
    )


def ablation(steps: int = 3, *, references: int = 4, **changes: Any) -> Ablation:
    """Every step is 1.9 times its parent's speed, but every third from the second is rejected."""
    rows = [row("baseline", None, BASELINE_US, Verdict.BASELINE)]
    parent, now = "baseline", BASELINE_US
    for i in range(1, steps + 1):
        bad = i % 3 == 2
        took = now * 1.04 if bad else now / 1.9
        name, judged = f"fix{i}", Verdict.REJECTED if bad else Verdict.KEPT
        rows.append(
            row(name, parent, took, judged, before=now, intensity=400 - 12 * i, tensor=i > 3)
        )
        if not bad:
            parent, now = name, took
    kinds = (
        ("sdpa", 1.0, 344.0),
        ("sdpa_flash", 1.33, 146.0),
        ("sdpa_cudnn", 1.01, 344.0),
        ("sdpa_efficient", 2.22, 343.0),
    )
    others = [
        row(name, None, REFERENCE_US * slower, "", intensity=at, tensor=True, reference=True)
        for name, slower, at in kinds[:references]
    ]
    environment = {
        "gpu": "NVIDIA H200",
        "driver": "580.1",
        "cuda": "13.0",
        "nvrtc": "13.0",
        "torch": "2.11.0",
        "python": "3.12.3",
        "ncu": "2025.3.1",
        "date": "2026-01-02T03:04:05Z",
        "ncu_flags": "--set full --clock-control none --cache-control all",
        "workbench": "0.1.0",
        "command": "workbench ablate",
    }
    found = Ablation(
        "attention",
        "Attention forward",
        "",
        "b2h8s512d64",
        {"B": 2, "causal": False},
        "NVIDIA H200",
        "recorded",
        "2026-01-02",
        "sdpa",
        tuple(rows),
        tuple(others),
        CEILINGS,
        environment,
        "20260102T030405Z.json",
        (),
        comparison("baseline", parent, 1.5 * BASELINE_US, 1.5 * now) if steps else None,
    )
    return dataclasses.replace(found, **changes)


def with_row(found: Ablation, variant: str, **changes: Any) -> Ablation:
    """The ablation with some fields of one row replaced."""
    return _put(found, dataclasses.replace(found.row(variant), **changes))


def not_current(found: Ablation, variant: str, status: str, problem: str) -> Ablation:
    """The ablation with one row stale, missing or failed, as the judge would make it."""
    old = found.row(variant)
    judged = Verdict.INCONCLUSIVE if old.step and old.step.parent else old.verdict
    return _put(found, Row(variant, old.title, old.step, CURRENT, status, problem, verdict=judged))


def _put(found: Ablation, new: Row) -> Ablation:
    rows, references = (
        tuple(new if r.variant == new.variant else r for r in group)
        for group in (found.rows, found.references)
    )
    return dataclasses.replace(found, rows=rows, references=references)
