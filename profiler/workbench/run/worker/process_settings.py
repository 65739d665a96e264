"""Settings of torch and Python that hold for the whole process: how to read them, and how to put
them back. In the worker.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch


@dataclass(frozen=True)
class ProcessSetting:
    """One of torch's or Python's, for the whole process."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], None]


def _attribute(path: str) -> ProcessSetting:
    """A flag that is an attribute: ``torch.backends.cudnn.enabled``."""
    owner, _, name = path.rpartition(".")
    parts = owner.split(".")

    def find() -> Any:
        found: Any = import_module(parts[0])
        for part in parts[1:]:
            found = getattr(found, part)
        return found

    def read() -> Any:
        try:
            return getattr(find(), name)
        except RuntimeError as error:  # a newer way to set it was used, which the older cannot read
            return type(error).__name__

    return ProcessSetting(path, read, lambda value: setattr(find(), name, value))


def _signals() -> dict[int, Any]:
    return {int(each): signal.getsignal(each) for each in signal.valid_signals()}


def _set_signals(before: dict[int, Any]) -> None:
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def _timers() -> tuple[bool, ...]:
    return tuple(signal.getitimer(timer) != (0.0, 0.0) for timer in TIMERS)


def _stop_timers(before: tuple[bool, ...]) -> None:
    for timer, was_running in zip(TIMERS, before, strict=True):
        if not was_running:
            signal.setitimer(timer, 0)


MONITORING: Any = getattr(sys, "monitoring", None)  # from Python 3.12 on
TOOLS = range(6)


def _tools() -> tuple[str | None, ...]:
    return tuple(MONITORING.get_tool(tool) for tool in TOOLS) if MONITORING else ()


def _free_tools(before: tuple[str | None, ...]) -> None:
    for tool, name in enumerate(before):
        if name is None and MONITORING.get_tool(tool) is not None:
            MONITORING.free_tool_id(tool)


def _modes(kind: str) -> ProcessSetting:
    """The depth of a stack of torch's modes, which is only ever cut down to what it was."""
    depth = getattr(torch._C, f"_len_torch_{kind}_stack")
    leave = getattr(torch._C, f"_pop_torch_{kind}_stack")

    def cut(before: int) -> None:
        while depth() > before:
            leave()

    return ProcessSetting(f"torch's stack of {kind} modes", depth, cut)


SETTINGS = (
    *map(
        _attribute,
        (
            "torch.backends.cudnn.enabled",
            "torch.backends.cudnn.benchmark",
            "torch.backends.cudnn.deterministic",
            "torch.backends.cudnn.allow_tf32",
            "torch.backends.cuda.matmul.allow_tf32",
            "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
            "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
        ),
    ),
    *(
        ProcessSetting(
            f"torch.backends.cuda.{kind}_sdp_enabled",
            getattr(torch.backends.cuda, f"{kind}_sdp_enabled"),
            getattr(torch.backends.cuda, f"enable_{kind}_sdp"),
        )
        for kind in ("flash", "mem_efficient", "math", "cudnn")
    ),
    ProcessSetting(
        "torch.get_float32_matmul_precision",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    ProcessSetting("torch.get_default_dtype", torch.get_default_dtype, torch.set_default_dtype),
    ProcessSetting(
        "torch.are_deterministic_algorithms_enabled",
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
    ProcessSetting("torch.is_grad_enabled", torch.is_grad_enabled, torch._C._set_grad_enabled),
    *map(_modes, ("function", "dispatch")),
    ProcessSetting("sys.settrace", sys.gettrace, sys.settrace),
    ProcessSetting("sys.setprofile", sys.getprofile, sys.setprofile),
    ProcessSetting("threading.settrace", threading.gettrace, threading.settrace),
    ProcessSetting("threading.setprofile", threading.getprofile, threading.setprofile),
    ProcessSetting("the tools of sys.monitoring", _tools, _free_tools),
    ProcessSetting("the handlers of signals", _signals, _set_signals),
    ProcessSetting("the timers of signals", _timers, _stop_timers),
)
