"""A sweep under ``--json``."""

from __future__ import annotations

from typing import Any

from workbench.judge.sweep import Combination, Sweep


def sweep(found: Sweep) -> dict[str, Any]:
    best, default = found.best, found.default
    return {
        "study": found.study,
        "shape": found.shape,
        "gpu": found.gpu,
        "warnings": found.warnings,
        "evidence": found.source,
        "variant": found.base,
        "parameters": found.axes,
        "combinations": [_combination(each) for each in found.combinations],
        "default": default.variant if default else None,
        "best": best.variant if best else None,
        "best_over_default": found.over_default,
        "picked": found.was_picked,
        "timed_again": found.again is not None,
        "may_be_best": [each.variant for each in found.tied],
        "median_over_best": found.spread[0] if found.spread else None,
        "worst_over_best": found.spread[1] if found.spread else None,
    }


def _combination(one: Combination) -> dict[str, Any]:
    return {
        "variant": one.variant,
        "values": one.values,
        "state": one.fate,
        "why": one.why or None,
        "microseconds": one.time,
        "over_default": one.over_default,
        "registers": one.registers,
        "spill_bytes": one.spills,
        "shared_bytes": one.shared_bytes,
        "occupancy_percent": one.occupancy,
    }
