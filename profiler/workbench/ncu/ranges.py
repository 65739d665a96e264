"""The NVTX ranges by which a launch says which variant it belongs to."""

from __future__ import annotations

from typing import Any

RANGE_PREFIX = "workbench:"


def range_name(study: str, variant: str, shape: str) -> str:
    """The NVTX range around a variant's launches: evidence never depends on launch order."""
    return f"{RANGE_PREFIX}{study}/{variant}/{shape}"


def nvtx_ranges(action: Any) -> list[str]:
    """The workbench ranges that were open around a launch of a report."""
    state = action.nvtx_state()
    if state is None:
        return []
    ranges = (state.domain_by_id(each).push_pop_ranges() for each in state.domains())
    return [name for names in ranges for name in names if name.startswith(RANGE_PREFIX)]
