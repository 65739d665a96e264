"""A variant with each of its switches put back, under ``--json``."""

from __future__ import annotations

from typing import Any

from workbench.judge.leave_one_out import LeftOut


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
