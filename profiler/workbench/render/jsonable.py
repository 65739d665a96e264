"""What the verbs print under ``--json``; the names are documented in README."""

from __future__ import annotations

import math
from typing import Any

from msgspec import to_builtins

from workbench.derive.factors import SpeedupFactors
from workbench.derive.figures import Figure
from workbench.derive.roofline.point import Point
from workbench.derive.speedup import Ratio, Time
from workbench.derive.standouts import Standout
from workbench.evidence.store import content
from workbench.judge.bottlenecks import Bottleneck
from workbench.judge.comparison import Comparison
from workbench.judge.rows import Ablation, Row
from workbench.judge.shapes import AcrossShapes
from workbench.render import ceiling_table
from workbench.words import SCHEMA_VERSION


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def time(found: Time | None) -> dict[str, Any] | None:
    return None if found is None else vars(found)


def ratio(found: Ratio | None) -> dict[str, float] | None:
    return None if found is None else vars(found)


def value(row: Row, figure: str) -> float | None:
    found: Figure | None = row.figures.get(figure)
    return found.value if found else None


def bottleneck(found: Bottleneck) -> dict[str, Any]:
    return {
        "title": found.title,
        "rule": found.rule,
        "metric": found.metric,
        "value": _finite(found.value),
        "estimated_speedup_pct": _finite(found.estimated_speedup_pct),
        "scope": found.scope,
        "kernel": found.kernel,
        "hot_line": vars(found.hot_line) if found.hot_line else None,
    }


def point(found: Point | None) -> dict[str, Any] | None:
    if found is None:
        return None
    nearest, share = found.nearest
    return {
        "flops": found.flops,
        "flops_per_second": found.flops_per_second,
        "arithmetic": found.ceiling,
        "tensor_type": found.tensor_type or None,
        "share_of_arithmetic_peak": _finite(found.compute_share),
        "tensor_path": found.path or None,
        "share_of_tensor_path_peak": _finite(found.path_share),
        "levels": {
            level.level: {
                "flop_per_byte": _finite(level.intensity),
                "share_of_bandwidth": level.bandwidth_share,
                "roof_flops_per_second": level.bound,
            }
            for level in found.levels
        },
        "nearest_roof": nearest,
        "share_of_nearest_roof": share,
        "above_roof": found.above_roof,
        "lower_bound": found.undercounted,
        **_measured(found),
    }


def _measured(found: Point) -> dict[str, Any]:
    """Shares of measured ceilings; no key where none is known, as before there were any."""
    shares = {"compute": found.measured_compute}
    shares |= {level.level: level.measured_share for level in found.levels}
    known = {name: share for name, share in shares.items() if math.isfinite(share)}
    clock = _finite(found.sm_clock)
    return {"share_of_measured": known, "sm_clock_hz": clock} if known else {}


def anatomy(found: SpeedupFactors | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "microseconds_before": found.before_us,
        "microseconds_after": found.after_us,
        "ratio": found.measured,
        "residual": found.residual,
        "factors": {
            f.id: {
                "gain": f.gain,
                "before": f.before,
                "after": f.after,
                "unit": f.unit,
                "metric": f.metric,
            }
            for f in found.factors
        },
    }


def move(found: Standout) -> dict[str, Any]:
    return {
        "figure": found.id,
        "before": found.before,
        "after": found.after,
        "unit": found.unit,
        "metric": found.metric,
        "surprise": _finite(found.surprise),
        "part": found.part,
        "speaks_of": found.speaks_of,
        "alike": list(found.alike),
    }


def comparison(found: Comparison | None) -> dict[str, Any] | None:
    """Two captures side by side; durations are under ncu."""
    if found is None:
        return None
    return {
        "before": found.before,
        "after": found.after,
        "anatomy": anatomy(found.factors),
        "stall_microseconds": {
            t.reason: {"before": t.before, "after": t.after} for t in found.stall_times
        },
        "moves": [move(m) for m in found.standouts.top],
        "launch": [move(m) for m in found.standouts.launch],
        "following_duration": list(found.standouts.paced),
        "rules": [
            {
                "rule": r.rule,
                "title": r.title,
                "scope": r.scope or None,
                "change": r.change,
                "estimated_before_pct": _finite(r.estimated_before_pct),
                "estimated_after_pct": _finite(r.estimated_after_pct),
            }
            for r in found.rules
        ],
    }


def row(found: Row) -> dict[str, Any]:
    return {
        "variant": found.variant,
        "parent": found.step.parent if found.step else None,
        "key_change": found.step.key_change if found.step else found.title,
        "status": found.status,
        "problem": found.problem,
        "microseconds": time(found.warm),
        "microseconds_cold": time(found.cold),
        "speedup_over_baseline": ratio(found.over_baseline),
        "speedup_over_parent": ratio(found.over_parent),
        "speedup_over_reference": ratio(found.over_reference),
        "dram_gb_per_s": value(found, "dram_bandwidth"),
        "dram_pct_of_peak": value(found, "dram_pct"),
        "achieved_occupancy_pct": value(found, "achieved_occupancy"),
        "theoretical_occupancy_pct": value(found, "theoretical_occupancy"),
        "occupancy_limiter": list(found.limiters),
        "stalls": dict(found.stalls),
        "bottlenecks": [bottleneck(b) for b in found.bottlenecks],
        "roofline": point(found.point),
        "against_parent": comparison(found.against_parent),
        "gates": {g.name: {"passed": g.passed, "why": g.why} for g in found.gates},
        "predictions": [vars(p) for p in found.predictions],
        "verdict": found.verdict or None,
        "judged_at": found.judged_at or None,
        "deciding_speedup": ratio(found.deciding),
        "against_parent_at": found.compared_at or None,
        "kernels": list(found.kernels),
        "captures": [found.capture] if found.capture else [],
        "adopted": to_builtins(found.adopted) if found.adopted else None,
    }


def full_row(found: Row) -> dict[str, Any]:
    """A row with every figure, for ``profile`` and ``show``."""
    figures = {
        key: {"value": f.value, "unit": f.unit, "metric": f.metric}
        for key, f in found.figures.items()
    }
    return {
        **row(found),
        "figures": figures,
        "build": content(found.build) if found.build else None,
        "checks": {shape: to_builtins(check) for shape, check in found.checks.items()},
        "evidence_state": dict(found.state),
    }


def across(found: AcrossShapes | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "variant": found.variant,
        "geometric_mean_over_reference": found.geometric_mean,
        "worst": found.worst.shape if found.worst else None,
        "shapes": [
            {
                "shape": {"name": r.shape, **r.parameters},
                "microseconds": time(r.time),
                "reference_microseconds": time(r.reference),
                "speedup_over_reference": ratio(r.over_reference),
                "tflops": r.flops_per_second / 1e12,
            }
            for r in found.results
        ],
    }


def ablation(found: Ablation, *, full: bool = False) -> dict[str, Any]:
    each = full_row if full else row
    return {
        "schema_version": SCHEMA_VERSION,
        "study": found.study,
        "shape": {"name": found.shape, **found.parameters},
        "gpu": found.gpu,
        "evidence": {"source": found.source, "date": found.date, "timings": found.timing_file},
        "reference": found.reference,
        "warnings": list(found.warnings),
        "whole": comparison(found.whole),
        "predictions": vars(found.score),
        "noise": {
            "from": "repeated captures" if found.noise.captures else "assumed",
            "captures": found.noise.captures,
        },
        "across_shapes": across(found.across),
        **({"measured_ceilings": ceiling_table.jsonable(found.measured)} if found.measured else {}),
        "versions": [each(r) for r in found.rows],
        "references": [each(r) for r in found.references],
    }
