"""Opens reports through NVIDIA's ``ncu_report``: the only module that imports it.

A damaged report can keep ``ncu_report`` busy for ever, or crash it. It is native code that lets no
other Python run, so only a handler of the C library is heard meanwhile; it can do no more than say
so and leave. A child process would have to read every report twice. ``faulthandler`` ends a process
too, but with exit code 1: "the answer is no".
"""

from __future__ import annotations

import atexit
import ctypes
import math
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from workbench import bounds
from workbench.children import temporary_folder
from workbench.errors import BadCapture
from workbench.evidence.records import CapturedKernel
from workbench.evidence.store import digest_of
from workbench.ncu.command import lasting_kernel, nvtx_ranges
from workbench.study.files import check_compressed

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
        check_compressed(path)
        context = ncu_report.load_report(utf8_path(path))
        context.num_ranges()
    except BadCapture:
        raise
    except Exception as error:
        raise BadCapture(
            f"{path} is not a readable Nsight Compute report: {error}", hint=CUT
        ) from None
    return context


_links = ExitStack()  # ncu_report goes on reading the file until the end
atexit.register(_links.close)


def utf8_path(path: Path) -> str:
    """A name of the file that ncu_report takes: it refuses what is not UTF-8."""
    with suppress(UnicodeEncodeError):
        return str(path).encode().decode()
    folder = _links.enter_context(temporary_folder())
    link = folder / f"report{path.suffix}"
    link.symlink_to(path.absolute())
    return str(link)


# By content: ncu_report never gives the memory of a report back, some 15 MB a launch.
_opened: dict[str, list[tuple[Any, list[str]]]] = {}


def launches(path: Path) -> list[tuple[Any, list[str]]]:
    """Every launch with its NVTX ranges: decoding one takes tens of milliseconds.

    Raises BadCapture, also for a report without launches.
    """
    digest = digest_of(path) if path.is_file() else ""
    if digest in _opened:
        return _opened[digest]
    with limited(path):
        context = load(path)
        if context.num_ranges() == 0 and path.suffix not in (".ncu-rep", ".ncu-repz"):
            raise BadCapture(
                f"{path} is no Nsight Compute report", hint="name an .ncu-rep file or a variant"
            )
        if context.num_ranges() == 0:
            raise BadCapture(f"{path} holds no profiled kernel: empty or cut short", hint=CUT)
        actions = [action for kernel_range in context for action in kernel_range]
        for index, action in enumerate(actions):
            if not metric_names(action):  # what ncu_report makes of a block that ends too early
                raise BadCapture(
                    f"{path} is cut short: launch {index} has a beginning and no metrics", hint=CUT
                )
        _opened[digest] = [(action, nvtx_ranges(action)) for action in actions]
    return _opened[digest]


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
        actions = [action for kernel_range in load(path) for action in kernel_range]
        return dict(Counter(name for action in actions for name in nvtx_ranges(action)))
    except BadCapture:
        raise
    except Exception as error:
        raise BadCapture(f"{path.name} cannot be read: {error}", hint=CUT) from error


CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT)
_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)


@contextmanager
def limited(path: Path) -> Iterator[None]:
    """Ends the process as ``BadCapture`` would where a report crashes or busies its reader."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    slow, broken = _said(path, "comes to no end with"), _said(path, "breaks down over")
    # With as little as can be left to do: memory may be in disorder when it is called.
    handler = _HANDLER(lambda number: _leave(slow if number == signal.SIGPROF else broken))
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
    libc.signal.restype = ctypes.c_void_p
    entry = ctypes.cast(handler, ctypes.c_void_p)
    before = {number: libc.signal(number, entry) for number in (signal.SIGPROF, *CRASHES)}
    signal.setitimer(signal.ITIMER_PROF, bounds.REPORT_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, previous in before.items():
            libc.signal(number, previous)


def _said(path: Path, what: str) -> bytes:
    return (
        f"error: {ascii(str(path))[1:-1]} is damaged: ncu_report {what} it\n"
        "hint: copy it again from where it was made, or profile again\n"
    ).encode()


def _leave(text: bytes) -> None:
    try:
        os.write(2, text)
    finally:
        os._exit(BadCapture.exit_code)


SHARED = "launch__shared_mem_per_block"
# Instructions that store registers to memory for want of them, and load them again: ncu tells them
# from arrays in local memory since 2025.1.
SPILLING = "sass__inst_executed_register_spilling"


def resources_of(path: Path, wanted: Wanted) -> tuple[CapturedKernel, ...]:
    """Read the resources of the wanted launches, those that are alike once. Raises BadCapture."""
    return tuple(dict.fromkeys(map(resources, actions(path, wanted))))


def resources(action: Any) -> CapturedKernel:
    def whole(name: str) -> int | None:
        value = number(action, name)
        return None if value is None else int(value)

    static, dynamic = whole(f"{SHARED}_static"), whole(f"{SHARED}_dynamic")
    return CapturedKernel(
        kernel=kernel_name(action),
        registers=whole("launch__registers_per_thread"),
        shared_bytes=None if static is None or dynamic is None else static + dynamic,
        spill_instructions=whole(SPILLING),
    )
