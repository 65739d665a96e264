"""Opens reports through NVIDIA's ``ncu_report``: the only module that imports it."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from workbench.errors import BadCapture
from workbench.evidence.records import CapturedKernel
from workbench.evidence.store import digest_of
from workbench.ncu.command import lasting_kernel, nvtx_ranges
from workbench.study.files import decompressed_pieces

T = TypeVar("T")
# Launches of a report: those of one workbench range, those of some indices, or all.
Wanted = str | tuple[int, ...] | None
CUT = "profile it again; a report that a full disk or a kill cut short cannot be repaired"


def load(path: Path) -> Any:
    """The report's context, be it without launches. Raises BadCapture for what is no report."""
    import ncu_report

    if not path.is_file():
        raise BadCapture(f"there is no capture {path}", hint="profile the variant again")
    try:
        deque(decompressed_pieces(path), maxlen=0)  # ncu_report would crash over a part of it
        context = ncu_report.load_report(str(path))
        context.num_ranges()
    except BadCapture:
        raise
    except Exception as error:
        raise BadCapture(
            f"{path} is not a readable Nsight Compute report: {error}", hint=CUT
        ) from None
    return context


def open_report(path: Path) -> Any:
    """Open a report. Raises BadCapture, also for a report without launches."""
    context = load(path)
    if context.num_ranges() == 0:
        if path.suffix not in (".ncu-rep", ".ncu-repz"):
            raise BadCapture(
                f"{path} is no Nsight Compute report", hint="name an .ncu-rep file or a variant"
            )
        raise BadCapture(f"{path} holds no profiled kernel: empty or cut short", hint=CUT)
    return context


# By content: ncu_report never gives the memory of a report back, some 15 MB a launch.
_opened: dict[str, list[tuple[Any, list[str]]]] = {}


def launches(path: Path) -> list[tuple[Any, list[str]]]:
    """Every launch with its NVTX ranges: decoding one takes tens of milliseconds."""
    if not path.is_file():
        return _read_launches(path)
    digest = digest_of(path)
    if digest not in _opened:
        _opened[digest] = _read_launches(path)
    return _opened[digest]


def _read_launches(path: Path) -> list[tuple[Any, list[str]]]:
    actions = [action for kernel_range in open_report(path) for action in kernel_range]
    for index, action in enumerate(actions):
        if not metric_names(action):  # what ncu_report makes of a block that ends too early
            raise BadCapture(
                f"{path} is cut short: launch {index} has a beginning and no metrics", hint=CUT
            )
    return [(action, nvtx_ranges(action)) for action in actions]


def wanted_of(every: Sequence[tuple[T, Sequence[str]]], wanted: Wanted, path: Path) -> list[T]:
    """The wanted of a report's launches, in its order. Raises BadCapture where there is none."""
    if isinstance(wanted, tuple):
        picked = [every[index][0] for index in wanted if index < len(every)]
    else:
        picked = [one for one, ranges in every if wanted is None or wanted in ranges]
    if not picked or (isinstance(wanted, tuple) and len(picked) != len(wanted)):
        raise BadCapture(f"{path} holds no launch of {wanted}", hint="profile the variant again")
    return picked


def actions(path: Path, wanted: Wanted) -> list[Any]:
    """See ``wanted_of``; each as ``ncu_report`` has it."""
    return wanted_of(launches(path), wanted, path)


@cache  # some two thousand, and listing them takes a millisecond
def metric_names(action: Any) -> tuple[str, ...]:
    return tuple(action.metric_names())


def metric_value(action: Any, name: str) -> tuple[float | str, str] | None:
    """Value and unit; None where the report has no such metric, or has it without a value.

    ``value()`` of an unset metric is 0 or None: ``has_value`` tells it from a true zero. Of a
    launch that failed under ncu it is no number.
    """
    metric = action.metric_by_name(name)
    value = metric.value() if metric is not None and metric.has_value() else None
    if value is None or (not isinstance(value, str) and not math.isfinite(value)):
        return None
    return value if isinstance(value, str) else float(value), metric.unit() or ""


def without_number(action: Any) -> tuple[int, int]:
    """How many metrics of a launch ncu collected as NaN, and how many it has in all."""
    names = metric_names(action)
    metrics = (action.metric_by_name(name) for name in names)
    values = [metric.value() for metric in metrics if metric is not None and metric.has_value()]
    return sum(isinstance(v, float) and not math.isfinite(v) for v in values), len(names)


def kernel_name(action: Any) -> str:
    return str(action.name(action.NameBase_FUNCTION))


def mangled_name(action: Any) -> str:
    """Return the name that the driver has, and with it the node of a CUDA graph, but for what
    another process would number otherwise.
    """
    return lasting_kernel(str(action.name(action.NameBase_MANGLED) or ""))


def number(action: Any, name: str) -> float | None:
    """Return the value of a metric that is a number; else None."""
    value = metric_value(action, name)
    return None if value is None or isinstance(value[0], str) else value[0]


def extents(action: Any, what: str) -> tuple[int, int, int] | None:
    """x, y and z of the ``grid`` or the ``block``; None where not collected."""
    x, y, z = (int(number(action, f"launch__{what}_dim_{axis}") or 0) for axis in "xyz")
    return (x, y, z) if x and y and z else None


def launches_by_range(path: Path) -> dict[str, int]:
    """Number of kernel launches in each workbench range of a report. Raises BadCapture."""
    try:
        names = [
            name
            for kernel_range in load(path)
            for action in kernel_range
            for name in nvtx_ranges(action)
        ]
    except BadCapture:
        raise
    except Exception as error:
        raise BadCapture(f"{path.name} cannot be read: {error}", hint=CUT) from error
    return dict(Counter(names))


SHARED = "launch__shared_mem_per_block"
# Instructions that store registers to memory for want of them, and load them again: ncu tells them
# from arrays in local memory since 2025.1.
SPILLING = "sass__inst_executed_register_spilling"


def resources_of(path: Path, wanted: Wanted) -> tuple[CapturedKernel, ...]:
    """Read the resources of the wanted launches, those that are alike once. Raises BadCapture."""
    return tuple(dict.fromkeys(map(resources, actions(path, wanted))))


def resources(action: Any) -> CapturedKernel:
    parts = [_whole(action, f"{SHARED}_{kind}") for kind in ("static", "dynamic")]
    return CapturedKernel(
        kernel=kernel_name(action),
        registers=_whole(action, "launch__registers_per_thread"),
        shared_bytes=None if None in parts else sum(kind or 0 for kind in parts),
        spill_instructions=_whole(action, SPILLING),
    )


def _whole(action: Any, name: str) -> int | None:
    value = number(action, name)
    return None if value is None else int(value)
