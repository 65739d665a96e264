"""What to try next as data: ids that stay, and less than 4 KB for a variant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.judge.advice import record as ranked
from workbench.judge.advice.advise import Advice
from workbench.judge.advice.record import KindRecord, Record
from workbench.judge.advice.subject import Spot
from workbench.judge.comparison import rule_words
from workbench.judge.rows import Ablation, Row
from workbench.render.as_json import plain_data
from workbench.words import VIRTUAL_ROOT

Data = dict[str, Any]
DIGITS = 4
MOST_TRIED = 3


def variant(found: Ablation, row: Row) -> Data:
    """Of ``workbench advise``."""
    return {
        "study": found.study,
        "shape": found.shape,
        "gpu": found.gpu,
        "evidence": {"source": found.source, "date": found.date},
        "variant": row.variant,
        "microseconds": round(row.time.value, DIGITS) if row.time else None,
        "advice": to_try(row.advice, found.record),
        "record_of": {
            "studies": list(found.record.studies),
            "steps": found.record.steps,
            "told": found.record.told,
        },
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


def _advice(one: Advice, record: Record | None) -> Data:
    known = record.of(one.change) if record else KindRecord()
    return {
        "id": one.id,
        "limit": {
            "stage": one.limit.stage,
            "of": one.limit.what or None,
            "share": round(one.limit.share, DIGITS),
            "metric": one.limit.metric,
            "value": _rounded(one.limit.value),
            "unit": one.limit.unit,
        },
        "line": _spot(one.spot),
        "change": one.change,
        "title": one.kind.title,
        "how": one.kind.how,
        "gain_up_to": round(one.gain, DIGITS - 1),
        "why": one.why,
        "record": _kept(known) if known.tried else None,
        "tried": [{"variant": t.variant, "verdict": t.verdict} for t in one.tried[:MOST_TRIED]],
    }


def _kept(known: KindRecord) -> Data:
    """Its ratios as their median."""
    data: Data = plain_data(known)
    del data["ratios"]
    return {**data, "ratio": known.ratio}


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _spot(found: Spot | None) -> Data | None:
    """The file as it stands below the top of the workspace."""
    if found is None:
        return None
    top = VIRTUAL_ROOT.rpartition("/")[0] + "/"
    share = round(found.share, DIGITS) if found.share is not None else None
    return {"file": found.file.removeprefix(top), "line": found.line, "stall_share": share}


def track_record(known: Record) -> Data:
    """What came of every kind of change."""
    return {
        "studies": list(known.studies),
        "steps": known.steps,
        "told": known.told,
        "kinds": {kind: _kept(one) for kind, one in known.kinds.items()},
    }
