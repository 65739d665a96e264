"""What ``gate`` prints under ``--json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.judge.commits import Change


def gate(
    base: str,
    head: str,
    tier: int,
    studies: Mapping[str, Sequence[Change]],
    folders: Mapping[str, str],
) -> dict[str, Any]:
    """``tier`` is the highest that was tried."""
    return {
        "base": base,
        "head": head,
        "tier": tier,
        "studies": [
            {"study": study, "folder": folders[study], "changes": [_change(c) for c in changes]}
            for study, changes in studies.items()
        ],
    }


def _change(change: Change) -> dict[str, Any]:
    timed = change.timed
    return {
        "variant": change.variant,
        "verdict": change.move,
        "tier": change.tier,
        "cause": change.cause,
        "why": change.why,
        "also": change.also,
        "where": change.spot,
        "moved": change.findings,
        "time": timed
        and {
            "before_us": timed.before,
            "after_us": timed.after,
            "ratio": timed.ratio.ratio,
            "low": timed.ratio.low,
            "high": timed.ratio.high,
            "level": timed.ratio.level,
            "sessions": timed.ratio.sessions,
        },
    }
