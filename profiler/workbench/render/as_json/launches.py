"""Reports of anyone and their launches as data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.ncu.report import Launch, Report
from workbench.render.as_json import advice
from workbench.render.as_json.ladder import bottleneck, figures, stall_certainty
from workbench.render.document.launches import Details

Data = dict[str, Any]


def launch(found: Launch) -> Data:
    return {
        "launch": found.index,
        "kernel": found.kernel,
        "signature": found.signature,
        "kind": found.kind,
        "grid": found.grid,
        "block": found.block,
        "microseconds": found.microseconds,
        "sm_clock_ghz": found.sm_clock,
        "gpu": found.gpu or None,
    }


def launches(found: Sequence[Launch]) -> list[Data]:
    return [launch(each) for each in found]


def report(found: Report) -> Data:
    return {
        "report": found.name,
        "gpus": list(found.gpus),
        "compute_capability": found.compute_capability or None,
        "ncu": found.ncu or None,
        "ncu_options": dict(found.options),
    }


def details(found: Details) -> Data:
    return {
        "launch": found.launch.index,
        "kernel": found.launch.kernel,
        "figures": figures(found.figures),
        "stalls": found.stalls,
        **stall_certainty(found.stalls, found.figures),
        "occupancy_limiter": list(found.limiters),
        "bottlenecks": [bottleneck(b) for b in found.bottlenecks],
        "rules_collected": found.has_rules,
        "advice": advice.to_try(found.advice),
    }
