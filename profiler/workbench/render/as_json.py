"""What the verbs print under ``--json``; docs/json.md says what the names mean.

``FORMS`` has the keys of each kind of record; one that is not named there has all of its fields.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

from workbench.derive.diff.costs import InstructionCost
from workbench.derive.diff.model import DiffRow, Hunk, Shift, SourceDiff, SourceRow
from workbench.derive.factors import Factor, SpeedupFactors
from workbench.derive.figures import Figure, standard_error, top_stall
from workbench.derive.largest_changes import FigureChange
from workbench.derive.roofline.point import LevelPoint, MeasuredCeiling, MeasuredCeilings, Point
from workbench.judge.advice import advise as ranked
from workbench.judge.advice.advise import Advice, KindRecord, Record
from workbench.judge.advice.subject import Spot
from workbench.judge.bottlenecks import Bottleneck
from workbench.judge.commits import Change, Timed
from workbench.judge.comparison import Comparison, rule_words
from workbench.judge.findings import Finding
from workbench.judge.gates import Gate
from workbench.judge.leave_one_out import LeftOut, Worth
from workbench.judge.regimes import AcrossShapes, AtShape, Elsewhere, InRegime
from workbench.judge.rows import Ablation, Row
from workbench.judge.sessions import Company, TimingFacts
from workbench.judge.sizes import AtSize, OverSizes, SizeLine
from workbench.judge.sweep import Combination, Sweep
from workbench.judge.view import VariantPair
from workbench.ncu.report import Launch, Report
from workbench.render.document import ladder_table
from workbench.render.document.advice import CATALOGUE
from workbench.render.document.findings import sentence
from workbench.render.document.launches import Details
from workbench.render.document.limits import samples
from workbench.render.document.phrases import figure
from workbench.words import SCHEMA_VERSION, VIRTUAL_ROOT, Regime

DIGITS = 4
TOP = VIRTUAL_ROOT.rpartition("/")[0] + "/"
MOST_TRIED = 3
MOST_SHIFTS = 20
Data = dict[str, Any]
Form = Callable[[Any], Data]


def keys(spec: str, **others: Callable[[Any], Any]) -> Form:
    """``name``, or ``name=path.to.attribute``, each; one that ends in ``?`` has null for "".
    ``others`` are computed.
    """
    told = [(key, path or key) for key, _, path in (each.partition("=") for each in spec.split())]
    return lambda value: {
        **{key.rstrip("?"): _found(value, path) for key, path in told},
        **{key: of(value) for key, of in others.items()},
    }


def _found(value: Any, path: str) -> Any:
    for name in path.rstrip("?").split("."):
        if value is None:
            return None
        value = value[int(name)] if name.isdigit() else getattr(value, name)
    return None if path.endswith("?") and value == "" else value


def _shape(found: Ablation | AtShape) -> Data:
    return {"name": found.shape, **found.parameters}


def _over_fastest(found: InRegime | AtShape) -> Data | None:
    """With the reference that it is over."""
    over = found.over_fastest
    return None if over is None else {**plain_data(over), "of": found.fastest}


def _finding(found: Finding) -> Data:
    """With the sentence behind the code and its values."""
    return {"code": found.code, "values": found.values, "message": sentence(found)}


def _sides(pair: tuple[Any, Any]) -> Data:
    return {"before": pair[0], "after": pair[1]}


def _span(file: str, lines: tuple[int, int] | None) -> Data | None:
    return {"file": file, "first": lines[0], "last": lines[1]} if lines else None


def _hunk(each: Hunk) -> Data:
    spans = [_span(each.files[side], each.span(side)) for side in (0, 1)]
    measured = not each.cosmetic and not each.host
    return {
        "hunk": each.number,
        "function": each.function,
        "comments_only": each.cosmetic,
        "host": each.host,
        "lines_before": spans[0],
        "lines_after": spans[1],
        "before": each.before if spans[0] and measured else None,
        "after": each.after if spans[1] and measured else None,
        "tied": each.tied,
        "together": each.together if each.tied and measured else None,
        "rows": each.rows,
    }


def _point(found: Point) -> Data:
    """Shares of measured ceilings only where one is known, as of a calibrated GPU."""
    shares = {"compute": found.measured_compute}
    shares |= {level.level: level.measured_share for level in found.levels}
    known = {name: share for name, share in shares.items() if math.isfinite(share)}
    measured = {"share_of_measured": known, "sm_clock_hz": found.sm_clock}
    return {**_theoretical(found), **(measured if known else {})}


_theoretical = keys(
    "flops flops_per_second arithmetic=ceiling tensor_type?"
    " share_of_arithmetic_peak=compute_share tensor_path=path?"
    " share_of_tensor_path_peak=path_share nearest_roof=nearest.0 share_of_nearest_roof=nearest.1"
    " above_roof lower_bound=undercounted",
    levels=lambda found: {level.level: level for level in found.levels},
)


# What two captures are in short; ``diff`` has what else changed.
against = keys(
    "before after decomposition=factors",
    stall_microseconds=lambda found: {
        time.reason: _sides((time.before, time.after)) for time in found.stall_times
    },
)
_of_launch = keys(
    "launch=launch.index kernel=launch.kernel figures stalls occupancy_limiter=limiters"
    " bottlenecks rules_collected=has_rules"
)
_time = keys(
    "before_us=before after_us=after ratio=ratio.ratio low=ratio.low high=ratio.high"
    " level=ratio.level sessions=ratio.sessions"
)

FORMS: Mapping[type, Form] = {
    # of a ladder
    TimingFacts: keys("sessions instances rounds twins interference=company throttling"),
    Company: keys("reference ratio low high"),
    InRegime: keys(
        "microseconds=time speedup_over_baseline=over_baseline speedup_over_parent=over_parent"
        " speedup_over_reference=over_reference",
        speedup_over_fastest=_over_fastest,
    ),
    Elsewhere: keys("regime would_be_kept=kept speedup=ratio"),
    Finding: _finding,
    Gate: keys("passed why binding"),
    AcrossShapes: keys("variant geometric_mean_over_fastest=geometric_mean newer shapes=results"),
    AtShape: keys(
        "microseconds=time reference_microseconds=reference not_timed=untimed"
        " accuracy=times_reference terabytes_per_second",
        shape=_shape,
        speedup_over_fastest=_over_fastest,
        tflops=lambda found: found.flops_per_second / 1e12,
    ),
    OverSizes: keys(
        "study gpu warnings parameter others variants=lines",
        unit=lambda over: "FLOP/s" if over.in_flops else "byte/s",
        shapes=lambda over: [{"shape": shape, "size": size} for shape, size in over.sizes.items()],
    ),
    SizeLine: keys("variant reference=is_reference mean_over_fastest_reference=mean at=points"),
    AtSize: keys(
        "shape size microseconds=time rate share_of_measured=share ceiling=of?"
        " fastest_reference=fastest? over_fastest_reference=over_fastest"
    ),
    # of a capture
    Figure: keys("value unit metric"),
    Bottleneck: keys("title rule metric value estimated_speedup_pct scope kernel part hot_line"),
    Point: _point,
    LevelPoint: keys(
        "flop_per_byte=intensity share_of_bandwidth=bandwidth_share roof_flops_per_second=bound"
    ),
    MeasuredCeilings: keys("gpu date ceilings=by_id not_collected=absent"),
    MeasuredCeiling: keys(
        "unit=measured.unit value=measured.value best=measured.best rounds=measured.rounds"
        " ran=measured.ran sm_clock_mhz=measured.sm_clock_mhz"
        " memory_clock_mhz=measured.memory_clock_mhz theoretical share_of_theoretical=share"
        " above_theory"
    ),
    # of two captures
    Comparison: lambda found: {
        **against(found),
        **keys(
            "moves=largest_changes.figures launch=largest_changes.launch"
            " following_duration=largest_changes.following_duration rules"
        )(found),
    },
    SpeedupFactors: keys(
        "microseconds_before=before_us microseconds_after=after_us ratio=measured residual",
        factors=lambda found: {factor.id: factor for factor in found.factors},
    ),
    Factor: keys("before after unit gain metric"),
    FigureChange: keys("figure before after unit metric surprise part speaks_of alike"),
    Hunk: _hunk,
    DiffRow: keys("kind before after"),
    SourceRow: keys(
        "line=number text share=cost.share samples=cost.samples microseconds=cost.microseconds"
        " top_stall=cost.top_stall top_stalls=cost.top_stalls"
    ),
    Shift: keys("file_before=files.0 file_after=files.1 change_microseconds=change before after"),
    InstructionCost: keys(
        "launch address sass ptx? file=place.0? executed samples share microseconds stalls",
        line=lambda one: one.place[1] or None,
    ),
    Launch: keys(
        "launch=index kernel signature kind grid block microseconds sm_clock_ghz=sm_clock gpu?"
    ),
    Report: keys("report=name gpus compute_capability? ncu? ncu_options=options"),
    Details: lambda found: {
        **_of_launch(found),
        **stall_certainty(found.stalls, found.figures),
        "advice": to_try(found.advice),
    },
    # of advice
    KindRecord: keys("tried kept advised came_true ratio"),
    Spot: keys(
        "line",  # the file as it stands below the top of the workspace
        file=lambda spot: spot.file.removeprefix(TOP),
        stall_share=lambda spot: None if spot.share is None else round(spot.share, DIGITS),
    ),
    # of sweeps and commits
    Sweep: keys(
        "study shape gpu warnings evidence=source variant=base parameters=axes combinations"
        " default=default.variant best=best.variant best_over_default=over_default"
        " picked=was_picked median_over_best=spread.0 worst_over_best=spread.1",
        timed_again=lambda found: found.again is not None,
        may_be_best=lambda found: [each.variant for each in found.tied],
    ),
    Combination: keys(
        "variant values state=fate why? microseconds=time over_default registers"
        " spill_bytes=spills shared_bytes occupancy_percent=occupancy"
    ),
    LeftOut: keys(
        "study shape gpu warnings evidence=source variant base microseconds=time sessions together"
        " product switches"
    ),
    Worth: keys(
        "parameter=switch.name value=switch.value default=switch.default without=switch.without"
        " microseconds=time at_the_end step=switch.step? parent=switch.parent? when_it_came"
        " why?"
    ),
    Change: keys(
        "variant verdict=move tier cause why also stale=is_stale where=spot moved=differences "
        "time=timed"
    ),
    Timed: _time,
}


def ablation(found: Ablation, *, full: bool = False) -> Data:
    each = full_row if full else row
    return {
        **keys("study gpu reference timing warnings predictions=score", shape=_shape)(found),
        "evidence": keys("source date timings=timing_file")(found),
        "whole": against(found.whole) if found.whole else None,
        "across_shapes": found.across,
        "versions": [each(found, r) for r in found.rows],
        "references": [each(found, r) for r in found.references],
    }


def columns(found: Ablation, row: Row) -> Data:
    """What the columns of the ladder have of a row, by their keys in JSON."""
    return {f.column.json: f.cell(row).data for f in ladder_table.fields(found) if f.column.json}


def row(found: Ablation, row: Row) -> Data:
    first = ranked.to_try(row.advice, found.record)
    return {
        **columns(found, row),
        **keys(
            "parent=step.parent lesson=step.lesson? status problem elsewhere price kernels stalls"
            " occupancy_limiter=limiters bottlenecks predictions judged_at?"
            " deciding_speedup=deciding against_parent_at=compared_at?"
        )(row),
        "dram_gb_per_s": figure(row, "dram_bandwidth"),
        "captures": [row.capture] if row.capture else [],
        "regimes": {r: known for r, known in row.regimes.items() if r != Regime.CHAINED},
        "against_parent": against(row.against_parent) if row.against_parent else None,
        "gates": {gate.name: gate for gate in row.gates},
        **({"no_source_lines": row.no_lines} if row.no_lines else {}),
        "advice": first and [{"id": one.id, "gain_up_to": _gain(one)} for one in first],
    }


def full_row(found: Ablation, each: Row) -> Data:
    """A row with every figure, for ``profile`` and ``show``."""
    return {
        **row(found, each),
        **keys("call=nodes figures roofline=point build checks evidence_state=state")(each),
        **stall_certainty(each.stalls, each.figures),
        "advice": to_try(each.advice, found.record),
    }


def stall_certainty(stalls: Mapping[str, float], known: Mapping[str, Figure]) -> Data:
    """The standard errors of the shares of stall samples, and the reasons that tie for the top."""
    count = samples(known)
    top = top_stall(stalls, count)
    return {
        "stall_standard_errors": {name: standard_error(p, count) for name, p in stalls.items()},
        "top_stalls": top.reasons if top else [],
    }


def variant_pair(found: Ablation, pair: VariantPair, changes: SourceDiff) -> Data:
    return {
        **keys("study gpu", shape=_shape)(found),
        **keys("before=before.variant after=after.variant warnings")(pair),
        **keys("speedup speedups comparison")(pair),
        "versions": [full_row(found, row) for row in (pair.before, pair.after)],
        "figures": figure_pairs(pair.before.figures, pair.after.figures),
        **source_diff(changes),
    }


def source_diff(changes: SourceDiff) -> Data:
    outside = changes.elsewhere.items()
    return {
        "not_collected": {side: why for side, why in _sides(changes.why).items() if why},
        "hunks": changes.hunks,
        "outside_hunks": _sides(changes.unchanged),
        "outside_sources": [{"file": file or None, **_sides(costs)} for file, costs in outside],
        "total": _sides(changes.totals),
        "unchanged_lines": changes.shifts[:MOST_SHIFTS],
    }


def figure_pairs(before: Mapping[str, Figure], after: Mapping[str, Figure]) -> Data:
    """Figure id to both values; ``null`` on a side that has not collected it."""
    pairs = {key: (before.get(key), after.get(key)) for key in {**before, **after}}
    return {
        key: {
            "before": old.value if old else None,
            "after": new.value if new else None,
            "factor": new.value / old.value if old and new and old.value else None,
            **keys("unit metric")(old or new),
        }
        for key, (old, new) in pairs.items()
    }


def advised(found: Ablation, row: Row) -> Data:
    """Of ``workbench advise``: ids that stay, and less than 4 KB for a variant."""
    return {
        **keys("study shape gpu")(found),
        "evidence": keys("source date")(found),
        "variant": row.variant,
        "microseconds": round(row.time.value, DIGITS) if row.time else None,
        "advice": to_try(row.advice, found.record),
        "record_of": keys("studies steps told")(found.record),
        "nvidia": [
            {
                "rule": rule_words(limit.rule, limit.title),
                "estimate_pct": round(limit.estimated_speedup_pct, 1),
            }
            for limit in row.bottlenecks
            if limit.rule
        ],
    }


def to_try(advice: Sequence[Advice] | None, record: Record | None = None) -> list[Data] | None:
    """The best first; ``None`` where the capture has nothing to judge by."""
    first = ranked.to_try(advice, record)
    return None if first is None else [_advice(one, record) for one in first]


def _gain(one: Advice) -> float:
    return round(one.gain, DIGITS - 1)


def _advice(one: Advice, record: Record | None) -> Data:
    known = record.of(one.change) if record else KindRecord()
    return {
        **keys("id change")(one),
        **keys("title how")(CATALOGUE[one.change]),
        "why": one.why,
        "limit": {
            **keys("stage=limit.stage of=limit.what? metric=limit.metric unit=limit.unit")(one),
            "share": round(one.limit.share, DIGITS),
            "value": float(f"{one.limit.value:.{DIGITS}g}"),
        },
        "line": one.spot,
        "gain_up_to": _gain(one),
        "record": known if known.tried else None,
        "tried": one.tried[:MOST_TRIED],
    }


def plain_data(value: Any) -> Any:
    """Records as objects, sequences as lists; what is no number is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, msgspec.Struct):
        return {name: plain_data(each) for name, each in msgspec.structs.asdict(value).items()}
    if is_dataclass(value):
        return plain_data(_as_form(value))
    if isinstance(value, Mapping):
        return {key: plain_data(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(each) for each in value]
    return value


def _as_form(value: Any) -> Mapping[str, Any]:
    """A record by its declaration, else with all of its fields."""
    form = FORMS.get(type(value))
    return form(value) if form else {f.name: getattr(value, f.name) for f in fields(value)}


def dumps(data: Mapping[str, Any]) -> str:
    """One object with its ``schema_version``; never NaN."""
    whole = {"schema_version": SCHEMA_VERSION, **data}
    return json.dumps(plain_data(whole), indent=1, allow_nan=False)
