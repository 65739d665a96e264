"""A judged ladder, its rows and their comparisons as data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from workbench.derive.factors import SpeedupFactors
from workbench.derive.figures import Figure
from workbench.derive.roofline.measured import MeasuredCeiling, MeasuredCeilings
from workbench.derive.roofline.point import Point
from workbench.derive.stalls import standard_error, top_stall
from workbench.derive.standouts import Standout
from workbench.judge.bottlenecks import Bottleneck
from workbench.judge.comparison import Comparison
from workbench.judge.regimes import AcrossShapes
from workbench.judge.rows import Ablation, Row
from workbench.judge.sizes import OverSizes
from workbench.render.as_json import advice, plain_data
from workbench.render.document import ladder_table
from workbench.render.document.limits import samples
from workbench.render.document.phrases import figure
from workbench.words import SCHEMA_VERSION

Data = dict[str, Any]


def ablation(found: Ablation, *, full: bool = False) -> Data:
    each = full_row if full else row
    return {
        "schema_version": SCHEMA_VERSION,
        "study": found.study,
        "shape": shape(found.shape, found.parameters),
        "gpu": found.gpu,
        "evidence": {"source": found.source, "date": found.date, "timings": found.timing_file},
        "reference": found.reference,
        "timing": plain_data(found.timing),
        "warnings": list(found.warnings),
        "whole": comparison(found.whole),
        "predictions": plain_data(found.score),
        "noise": {
            "from": "repeated captures" if found.noise.captures else "assumed",
            "captures": found.noise.captures,
        },
        "across_shapes": across(found.across),
        **({"sizes": [sizes(over) for over in found.sizes]} if found.sizes else {}),
        "versions": [each(found, r) for r in found.rows],
        "references": [each(found, r) for r in found.references],
        "track_record": advice.track_record(found.record),
    }


def shape(name: str, parameters: Mapping[str, Any]) -> Data:
    return {"name": name, **parameters}


def columns(found: Ablation, row: Row) -> Data:
    """What the columns of the ladder have of a row, by their keys in JSON."""
    return {f.column.json: f.cell(row).data for f in ladder_table.fields(found) if f.column.json}


def row(found: Ablation, row: Row) -> Data:
    return {
        **columns(found, row),
        "parent": row.step.parent if row.step else None,
        "lesson": (row.step.lesson if row.step else "") or None,
        "status": row.status,
        "problem": row.problem,
        "regimes": {
            regime: {
                "microseconds": plain_data(known.time),
                "speedup_over_baseline": plain_data(known.over_baseline),
                "speedup_over_parent": plain_data(known.over_parent),
                "speedup_over_reference": plain_data(known.over_reference),
                "speedup_over_fastest": plain_data(known.over_fastest),
                "fastest": known.fastest or None,
            }
            for regime, known in row.regimes.items()
        },
        "elsewhere": [
            {"regime": e.regime, "would_be_kept": e.kept, "speedup": plain_data(e.ratio)}
            for e in row.elsewhere
        ],
        "price": list(row.price),
        "dram_gb_per_s": figure(row, "dram_bandwidth"),
        "occupancy_limiter": list(row.limiters),
        "stalls": dict(row.stalls),
        "bottlenecks": [bottleneck(b) for b in row.bottlenecks],
        "against_parent": comparison(row.against_parent),
        "gates": {
            g.name: {"passed": g.passed, "why": g.why, "binding": g.binding} for g in row.gates
        },
        "predictions": plain_data(row.predictions),
        "judged_at": row.judged_at or None,
        "deciding_speedup": plain_data(row.deciding),
        "against_parent_at": row.compared_at or None,
        "kernels": list(row.kernels),
        "captures": [row.capture] if row.capture else [],
        **({"no_source_lines": row.no_lines} if row.no_lines else {}),
        "advice": advice.to_try(row.advice, found.record),
    }


def full_row(found: Ablation, each: Row) -> Data:
    """A row with every figure, for ``profile`` and ``show``."""
    return {
        **row(found, each),
        "call": plain_data(each.nodes),
        "figures": figures(each.figures),
        **stall_certainty(each.stalls, each.figures),
        "roofline": point(each.point),
        "build": {"schema_version": SCHEMA_VERSION, **plain_data(each.build)}
        if each.build
        else None,
        "checks": plain_data(each.checks),
        "evidence_state": dict(each.state),
    }


def figures(known: Mapping[str, Figure]) -> Data:
    return {key: {"value": f.value, "unit": f.unit, "metric": f.metric} for key, f in known.items()}


def bottleneck(found: Bottleneck) -> Data:
    data: Data = plain_data(found)
    del data["message"]
    return data


def point(found: Point | None) -> Data | None:
    if found is None:
        return None
    nearest, share = found.nearest
    return {
        "flops": found.flops,
        "flops_per_second": found.flops_per_second,
        "arithmetic": found.ceiling,
        "tensor_type": found.tensor_type or None,
        "share_of_arithmetic_peak": found.compute_share,
        "tensor_path": found.path or None,
        "share_of_tensor_path_peak": found.path_share,
        "levels": {
            level.level: {
                "flop_per_byte": level.intensity,
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


def _measured(found: Point) -> Data:
    """Shares of measured ceilings; no key where none is known, as before there were any."""
    shares = {"compute": found.measured_compute}
    shares |= {level.level: level.measured_share for level in found.levels}
    known = {name: share for name, share in shares.items() if math.isfinite(share)}
    return {"share_of_measured": known, "sm_clock_hz": found.sm_clock} if known else {}


def anatomy(found: SpeedupFactors | None) -> Data | None:
    if found is None:
        return None
    return {
        "microseconds_before": found.before_us,
        "microseconds_after": found.after_us,
        "ratio": found.measured,
        "residual": found.residual,
        "factors": {
            f.id: {k: v for k, v in plain_data(f).items() if k not in ("id", "label")}
            for f in found.factors
        },
    }


def move(found: Standout) -> Data:
    data: Data = plain_data(found)
    del data["label"]
    return {"figure": data.pop("id"), **data}


def comparison(found: Comparison | None) -> Data | None:
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
        "rules": [{**plain_data(r), "scope": r.scope or None} for r in found.rules],
    }


def across(found: AcrossShapes | None) -> Data | None:
    if found is None:
        return None
    return {
        "variant": found.variant,
        "geometric_mean_over_fastest": found.geometric_mean,
        "worst": found.worst.shape if found.worst else None,
        "newer": dict(found.newer),
        "shapes": [
            {
                "shape": shape(r.shape, r.parameters),
                "microseconds": plain_data(r.time),
                "reference_microseconds": plain_data(r.reference),
                "fastest": r.fastest or None,
                "speedup_over_fastest": plain_data(r.over_fastest),
                "not_timed": list(r.untimed),
                "accuracy": r.times_reference,
                "tflops": r.flops_per_second / 1e12,
                "terabytes_per_second": r.terabytes_per_second,
            }
            for r in found.results
        ],
    }


CEILING = ("unit", "value", "best", "rounds", "ran", "sm_clock_mhz", "memory_clock_mhz")


def ceilings(found: MeasuredCeilings) -> Data:
    """As ``calibrate --json`` prints it; FLOP/s and bytes/s, clocks in MHz."""
    return {
        "schema_version": SCHEMA_VERSION,
        "gpu": found.gpu,
        "date": found.date,
        "ceilings": {key: _ceiling(roof) for key, roof in found.by_id.items()},
        "not_collected": dict(found.absent),
    }


def _ceiling(roof: MeasuredCeiling) -> Data:
    return {
        **{key: getattr(roof.measured, key) for key in CEILING},
        "theoretical": roof.theoretical,
        "share_of_theoretical": roof.share,
        "above_theory": roof.above_theory,
    }


def stall_certainty(stalls: Mapping[str, float], known: Mapping[str, Figure]) -> Data:
    """The standard errors of the shares of stall samples, and the reasons that tie for the top."""
    count = samples(known)
    top = top_stall(stalls, count)
    return {
        "stall_standard_errors": {name: standard_error(p, count) for name, p in stalls.items()},
        "top_stalls": list(top.reasons) if top else [],
    }


def sizes(over: OverSizes) -> Data:
    return {
        "study": over.study,
        "gpu": over.gpu,
        "warnings": over.warnings,
        "parameter": over.parameter,
        "others": over.others,
        "shapes": [{"shape": shape, "size": size} for shape, size in over.sizes.items()],
        "variants": [
            {
                "variant": line.variant,
                "reference": line.is_reference,
                "mean_over_fastest_reference": line.mean,
                "at": [
                    {
                        "shape": point.shape,
                        "size": point.size,
                        "microseconds": point.time,
                        "rate": point.rate,
                        "unit": "FLOP/s" if over.in_flops else "byte/s",
                        "share_of_measured": point.share,
                        "ceiling": point.of or None,
                        "fastest_reference": point.fastest or None,
                        "over_fastest_reference": point.over_fastest,
                    }
                    for point in line.points
                ],
            }
            for line in over.lines
        ],
    }
