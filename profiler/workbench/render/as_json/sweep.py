"""A sweep under ``--json``."""

from __future__ import annotations

from typing import Any

from workbench.judge.leave_one_out import LeftOut
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


def left_out(found: LeftOut) -> dict[str, Any]:
    return {
        "study": found.study,
        "shape": found.shape,
        "gpu": found.gpu,
        "warnings": found.warnings,
        "evidence": found.source,
        "variant": found.variant,
        "base": found.base,
        "microseconds": found.time,
        "sessions": found.sessions,
        "together": found.together,
        "product": found.product,
        "switches": [
            {
                "parameter": one.switch.name,
                "value": one.switch.value,
                "default": one.switch.default,
                "without": one.switch.without,
                "microseconds": one.time,
                "at_the_end": one.at_the_end,
                "step": one.switch.step or None,
                "parent": one.switch.parent or None,
                "when_it_came": one.when_it_came,
                "why": one.why or None,
            }
            for one in found.switches
        ],
    }
