"""Registers, shared memory and spills of the kernels of a report: the only word on those that
nobody compiled here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from workbench.evidence.records import CapturedKernel
from workbench.ncu.reader import Wanted, actions, kernel_name, metric_value

SHARED = "launch__shared_mem_per_block"
# Instructions that store registers to memory for want of them, and load them again: ncu tells them
# from arrays in local memory since 2025.1.
SPILLING = "sass__inst_executed_register_spilling"


def resources_of(path: Path, wanted: Wanted) -> tuple[CapturedKernel, ...]:
    """Of the wanted launches, those that are alike once. Raises BadCapture."""
    return tuple(dict.fromkeys(map(resources, actions(path, wanted))))


def resources(action: Any) -> CapturedKernel:
    """Of one launch."""
    parts = [_number(action, f"{SHARED}_{part}") for part in ("static", "dynamic")]
    spilled = _number(action, SPILLING)
    return CapturedKernel(
        kernel=kernel_name(action),
        registers=_number(action, "launch__registers_per_thread"),
        shared_bytes=None if None in parts else sum(part or 0 for part in parts),
        spill_instructions=spilled,
    )


def _number(action: Any, name: str) -> int | None:
    found = metric_value(action, name)
    return None if found is None or isinstance(found[0], str) else int(found[0])
